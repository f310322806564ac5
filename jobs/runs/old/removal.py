"""The removal of a run's folder: at any moment the run is whole, or known as one that is being removed.

The marker is put first. `_SUCCESS.json` goes before all else, and the marker last: a run without `_SUCCESS.json` and with the
marker is half removed. No reader takes it for a run, and no driver goes on with it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from cluster.errors import ConfigError, HeldError
from cluster.run.lease import Lease
from cluster.run.shards import COMMITS, SUCCESS
from cluster.storage import Storage, remote
from jobs.chain.journal import remove_journals

MARKER = "removing.json"
HALF_REMOVED = "half removed"  # the state of a run
_LAST = ("run.json", "lease")


def half_removed(storage: Storage, folder: str = "") -> bool:
    """Returns whether the removal of a run has begun and did not end; its `_SUCCESS.json` may be there or not.

    Args:
        storage: The run's folder, or one above it.
        folder: Its name there.
    """
    return storage.stat(f"{folder}/{MARKER}" if folder else MARKER) is not None


def check_not_removed(storage: Storage) -> None:
    """Checks that a run without `_SUCCESS.json` is not half removed.

    Raises:
        ConfigError: It is.
    """
    if half_removed(storage):
        words = "is half removed: runs --prune did not come to its end; run that again, or remove the folder"
        raise ConfigError("run-damaged", f"{storage.root}: {words}")


def remove_run(storage: Storage, leases: int) -> None:
    """Removes a run's folder.

    Args:
        storage: The folder.
        leases: How many drivers had held it when it was found to be old.

    Raises:
        HeldError: A driver works on it, or has since; nothing was removed.
    """
    lease = Lease.acquire(storage)
    if lease.number != leases + 1:
        lease.release()
        raise HeldError("run-held", f"{storage.root}: a driver has worked on this run meanwhile; look at it again")
    try:
        body = json.dumps({"began": time.time()}).encode()
        storage.put(MARKER, body)
        storage.delete(SUCCESS)
        storage.put(MARKER, body)  # on a file system durable with what was deleted beside it
        remove_journals(storage)
        _delete(storage, COMMITS)
        _delete(storage, "", but=(*_LAST, MARKER))
        storage.delete("run.json")
    finally:
        lease.release()
    _delete(storage, "lease")
    storage.delete(MARKER)
    if not remote(storage.root):
        _remove_folders(Path(storage.root))


def _delete(storage: Storage, folder: str, but: tuple[str, ...] = ()) -> None:
    storage.delete(*(entry.key for entry in storage.list(folder) if entry.key.partition("/")[0] not in but))


def _remove_folders(folder: Path) -> None:
    """Removes empty folders; one that has files again stays."""
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        _remove_empty(path)
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:  # not empty
        return
