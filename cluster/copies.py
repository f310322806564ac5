"""Copies on this machine of objects that must be files: an index is mapped into memory, completions are read at any place.

One copy per machine and version, made by whoever asks first while others wait at a file lock, and used by all. The lock is
held shared as long as the process lives; a copy that nobody holds goes when another version of the same objects is copied.
A copy that a kill broke off is completed by the next who asks.

Beside them lie the folders that processes work in (`work_folder`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cluster import ClusterError
from cluster.s3 import S3Storage
from cluster.storage import Entry

FOLDER = "DMQR_CACHE"
"""Environment variable that names another folder for copies than one in the temporary folder."""

_held: dict[Path, IO[bytes]] = {}


def cache_folder() -> Path:
    """Where copies lie on this machine."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(tempfile.gettempdir(), f"dmqr-{os.getuid()}", "copies")


def place(storage: S3Storage) -> Path:
    """The folder of all copies of objects below one address."""
    return cache_folder() / hashlib.sha256(storage.root.encode()).hexdigest()[:16]


def copied(
    storage: S3Storage,
    entries: Sequence[Entry],
    version: str,
    more: Mapping[str, bytes] | None = None,
    *,
    there_only: bool = False,
) -> Path | None:
    """The folder on this machine with these objects under their keys.

    Args:
        version: what tells this set of objects from a later one under the same keys.
        more: files to be written beside them: name -> content.
        there_only: None where no copy is there, instead of making one.
    Raises:
        ClusterError: no space; the folder cannot be written. FileNotFoundError: an object is gone.
    """
    folder = place(storage) / hashlib.sha256(version.encode()).hexdigest()[:16]
    if folder in _held and folder.is_dir():
        return folder
    if there_only and not folder.is_dir():
        return None
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("ab")
    except OSError as error:
        raise _unwritable(folder.parent, error) from error
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if folder.is_dir():  # looked at under the lock: a sweep may have come before
            _held[folder] = lock
            return folder
        fcntl.flock(lock, fcntl.LOCK_EX)  # who holds it shared has found no copy either, and waits here, too
        if not folder.is_dir():
            _copy(storage, entries, more or {}, folder)
            _sweep(folder)


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder for what is only needed while something is made; what earlier, killed processes have left there goes first.

    Raises:
        ClusterError: it cannot be made.
    """
    work = cache_folder() / "work"
    try:
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in work.iterdir():
            _remove(left, _alone(left))
        handle = None
        while handle is None:  # another process that sweeps may have been quicker
            folder = Path(tempfile.mkdtemp(dir=work))
            handle = _alone(folder)
    except OSError as error:
        raise _unwritable(work, error) from error
    try:
        yield folder
    finally:
        _remove(folder, handle)


def _alone(folder: Path) -> int | None:
    """A lock on a folder, as long as it is not closed and the process lives; None where another has it, or the folder is
    gone."""
    handle = None
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.is_dir():
            return handle
    if handle is not None:
        os.close(handle)
    return None


def _remove(folder: Path, handle: int | None) -> None:
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _unwritable(folder: Path, error: OSError) -> ClusterError:
    return ClusterError(f"{folder}: no copies can be put there: {error.strerror}; set {FOLDER} to another folder")


def _copy(storage: S3Storage, entries: Sequence[Entry], more: Mapping[str, bytes], folder: Path) -> None:
    part = folder.with_suffix(".part")
    try:
        part.mkdir(exist_ok=True)
        missing = [entry for entry in entries if not _whole(part / entry.key, entry.size)]
        wanted, free = sum(entry.size for entry in missing), shutil.disk_usage(part).free
        if wanted > free:
            raise ClusterError(
                f"{storage.root}: its copy on this machine takes {wanted:,} bytes, {folder.parent} has {free:,} free; "
                f"free some, or set {FOLDER} to a folder on another disk"
            )
        for entry in missing:
            (part / entry.key).parent.mkdir(parents=True, exist_ok=True)
            storage.download(entry.key, part / entry.key)
            found = (part / entry.key).stat().st_size
            if found != entry.size:
                what = f"was replaced while it was copied ({found:,} bytes, not {entry.size:,})"
                raise FileNotFoundError(errno.ENOENT, what, storage.url(entry.key))
        for name, content in more.items():
            (part / name).write_bytes(content)
        part.rename(folder)
    except (FileNotFoundError, ClusterError):
        shutil.rmtree(part, ignore_errors=True)
        raise


def _whole(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _sweep(kept: Path) -> None:
    """Remove the other copies of these objects that no process holds."""
    for lock in kept.parent.glob("*.lock"):
        folder = lock.with_suffix("")
        if folder == kept:
            continue
        with lock.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            for path in (folder, folder.with_suffix(".part")):
                shutil.rmtree(path, ignore_errors=True)
