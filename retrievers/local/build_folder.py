"""The folder of a local index while it is built.

A build writes to a temporary folder in INDEX and becomes visible with the rename of `index.json`, so that a killed build
leaves the old index or the new one. Readers that have the old index open keep its mapped files. A lock, which the kernel
releases when a process ends, keeps other builds out.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cluster.errors import RetrieverError
from retrievers.local.index import INDEX, SOURCE_NOTE, read_index

_LOCK = ".lock"


@contextmanager
def build_folder(target: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Yields a temporary folder and the current index.json, under a lock; removes the files of killed builds."""
    is_new = not target.exists()
    if target.exists() and not target.is_dir():
        raise RetrieverError("storage-refused", f"index {target}: there is a file of this name; give the index a folder")
    if not is_new and not (target / INDEX).exists() and any(not _is_index_file(f.name) for f in target.iterdir()):
        words = "the folder is not empty and not an index; give another folder"
        raise RetrieverError("storage-refused", f"index {target}: {words}")
    try:
        target.mkdir(parents=True, exist_ok=True)
        lock = open(target / _LOCK, "a+")  # noqa: SIM115 - closed below
    except OSError as e:
        words = f"cannot be written: {e.strerror}; give it another folder"
        raise RetrieverError("storage-refused", f"index {target}: {words}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = os.path.samestat(os.fstat(lock.fileno()), os.stat(target / _LOCK))  # else a build that failed removed it
        except OSError:
            held = False
        if not held:
            raise RetrieverError("run-held", f"index {target}: is being built by another process; wait for it")
        old = _current_entry(target)
        _remove_others(target, keep=old["data"] if old else None)
        work = target / f".building-{os.getpid()}"
        work.mkdir()
        try:
            yield work, old
        except ConnectionError:  # of a corpus in object storage
            raise
        except OSError as e:
            words = f"cannot be written: {e.strerror or e}; free space there, or give it another folder"
            raise RetrieverError("storage-refused", f"index {target}: {words}") from e
        finally:
            shutil.rmtree(work, ignore_errors=True)
            if not (target / INDEX).exists():
                _remove_others(target, keep=None)
                (target / _LOCK).unlink(missing_ok=True)
                if is_new:
                    with suppress(OSError):  # another build may have begun there
                        target.rmdir()
    finally:
        lock.close()


def is_being_built(path: Path) -> bool:
    """Returns whether a process builds the index in this folder; one that was killed does not."""
    try:
        with open(path / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _current_entry(target: Path) -> dict[str, Any] | None:
    """Returns the content of index.json; None if it is missing or cannot be read, since it will be replaced."""
    try:
        return read_index(target)
    except RetrieverError:
        return None


def publish(target: Path, work: Path, data: str, entry: dict[str, Any]) -> None:
    """Syncs all files, renames the data folder, replaces index.json atomically, and removes the old data."""
    for name in entry["files"]:
        _sync(work / name)
    shutil.rmtree(target / data, ignore_errors=True)  # damaged, or of a build that was killed at this point
    work.rename(target / data)
    new = target / f"{INDEX}.new"
    new.write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _sync(new)
    os.replace(new, target / INDEX)
    _sync(target)
    _remove_others(target, keep=data)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_index_file(name: str) -> bool:
    return name.startswith((".building-", "data-", f"{INDEX}.new")) or name in (_LOCK, SOURCE_NOTE)


def _remove_others(target: Path, keep: str | None) -> None:
    for path in target.iterdir():
        if path.name in (_LOCK, keep) or not _is_index_file(path.name):
            continue
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
