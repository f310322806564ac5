"""Samples that `plan --sample` has paid for: runs of the name `<name>-sample`, whose log is there until they are finished."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from hashlib import sha256

from cluster.storage import Storage

ENDING = "-sample"
_LOG = re.compile(r"(?:.*/)?([^/]+-sample/log-[0-9a-f]{12}(?:-[0-9]+)?\.parquet)")


def sample_log(output: Storage, name: str, data: bytes) -> str:
    """Stores the log `data` of a sample; returns its key, that of an unfinished run of the same queries, or a new one."""
    start = f"{name}/log-{sha256(data).hexdigest()[:12]}-"
    known = [entry.key for entry in output.list(name) if entry.key.startswith(start)]
    key = known[-1] if known else f"{start}{int(1000 * time.time())}.parquet"
    output.put_if_absent(key, data)  # a log that was written anew would be another one
    return key


def sample_logs(output: Storage) -> Iterator[str]:
    """Yields the keys of the logs of samples that lie below an output: of those that were stopped or killed."""
    for folder in output.folders():
        if folder.endswith(ENDING):
            yield from (entry.key for entry in output.list(folder) if _LOG.fullmatch(entry.key))
