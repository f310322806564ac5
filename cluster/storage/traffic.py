"""What this process has sent to S3: requests by kind, as stores charge for them, and bytes.

Every request goes through the client of `cluster/storage/s3_client.py` (Parquet and DuckDB read through it, too), which counts
here whatever is put on the wire: each attempt of a retried request is one. Not counted: requests for credentials, and what
a process sends after it was asked for the last time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

_KINDS = {
    "PutObject": "put",
    "GetObject": "get",
    "HeadObject": "head",
    "ListObjectsV2": "list",
    "DeleteObject": "delete",
    "CreateMultipartUpload": "multipart",
    "UploadPart": "multipart",
    "CompleteMultipartUpload": "multipart",
    "AbortMultipartUpload": "delete",  # free of charge, as deleting is
}
_lock = threading.Lock()
_counted: Counter[str] = Counter()


def count_request(operation: str, size: int) -> None:
    """Counts a request.

    Args:
        operation: Its name in S3's API.
        size: Bytes of its body.
    """
    with _lock:
        _counted[_KINDS.get(operation, "get")] += 1
        _counted["sent_bytes"] += size


def count_answer(size: int) -> None:
    """Counts the bytes of an object, or of a range of one, that the store has begun to send."""
    with _lock:
        _counted["received_bytes"] += size


def add_traffic(more: Mapping[str, float]) -> None:
    """Counts what `take_traffic` has returned in another process."""
    with _lock:
        _counted.update({name: int(value) for name, value in more.items()})


def take_traffic() -> dict[str, float]:
    """Returns what was counted since the last call, by a name of `cluster.costs.STORAGE`; all of it is given out once."""
    with _lock:
        taken: dict[str, float] = {name: value for name, value in _counted.items() if value}
        _counted.clear()
    return taken
