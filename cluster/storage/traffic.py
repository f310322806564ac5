"""Counts the traffic of this process with S3: requests by kind, as stores charge for them, and bytes.

Every request goes through the client of `cluster/storage/s3_client.py` (Parquet and DuckDB read through it, too), which counts
here whatever is put on the wire: each attempt of a retried request is one. Not counted: requests for credentials, and what
a process sends after it was asked for the last time.
"""

import threading
from collections import Counter
from collections.abc import Mapping

_lock = threading.Lock()
_counted: Counter[str] = Counter()


def add_traffic(more: Mapping[str, float]) -> None:
    """Counts amounts by a name of `cluster.costs.STORAGE`; also what `take_traffic` has returned in another process."""
    with _lock:
        _counted.update({name: int(value) for name, value in more.items()})


def take_traffic() -> dict[str, float]:
    """Returns the counts since the last call, each once."""
    with _lock:
        taken: dict[str, float] = {name: value for name, value in _counted.items() if value}
        _counted.clear()
    return taken
