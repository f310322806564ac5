"""Copies on this machine of objects that must be files: an index is mapped into memory, completions are read at any place.

One copy per machine and version, made by whoever asks first while others wait at a file lock, and used by all. The lock is
held shared as long as the process lives; a copy that nobody holds goes when another version of the same objects is copied,
or any other after it was not asked for in a month.
A copy that a kill broke off is completed by the next who asks.

Beside them lie the folders that processes work in (`work_folder`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from cluster import ClusterError
from cluster.s3 import S3Storage, partial_path
from cluster.storage import Entry

Value = TypeVar("Value")
TRIES = 3  # objects may be replaced while they are copied
KEPT_DAYS = 30  # of a copy that nobody asks for
FOLDER = "DMQR_CACHE"
"""Environment variable that names another folder for copies than one in the temporary folder."""

_held: dict[Path, IO[bytes]] = {}


def cache_folder() -> Path:
    """Where copies lie on this machine."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(tempfile.gettempdir(), f"dmqr-{os.getuid()}", "copies")


def place(storage: S3Storage, name: str = "") -> Path:
    """The folder of all copies of one thing: of the objects below an address, or of one object there."""
    return cache_folder() / hashlib.sha256(storage.url(name).encode()).hexdigest()[:16]


def copied(
    storage: S3Storage,
    entries: Sequence[Entry],
    version: str,
    more: Mapping[str, bytes] | None = None,
    *,
    name: str = "",
    there_only: bool = False,
    tell: Callable[[], object] = lambda: None,
) -> Path | None:
    """The folder on this machine with these objects under their keys.

    Args:
        version: what tells this set of objects from a later one under the same keys.
        more: files to be written beside them: name -> content.
        name: of the object, where it alone is copied.
        there_only: None where no copy is there, instead of making one.
        tell: called now and then while a copy is made: work goes on.
    Raises:
        ClusterError: no space; the folder cannot be written. FileNotFoundError: an object is gone.
    """
    folder = place(storage, name) / hashlib.sha256(version.encode()).hexdigest()[:16]
    if folder in _held and folder.is_dir():
        return folder
    if there_only and not folder.is_dir():
        return None
    with usable(folder.parent):
        lock = folder.with_suffix(".lock").open("ab")
        os.utime(lock.fileno())  # when it was last asked for
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if folder.is_dir():  # looked at under the lock: a sweep may have come before
            _held[folder] = lock
            return folder
        fcntl.flock(lock, fcntl.LOCK_EX)  # who holds it shared has found no copy either, and waits here, too
        if not folder.is_dir():
            _copy(storage, entries, more or {}, folder, tell)
            _sweep(folder)


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """A folder for copies, made if need be, for as long as something is put there; ClusterError if it cannot be used."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = cache_folder().parent
        if FOLDER not in os.environ and (own.is_symlink() or own.stat().st_uid != os.getuid()):  # anybody may write in /tmp
            raise ClusterError(f"{own}: is another user's; set {FOLDER} to another folder")
        yield
    except OSError as error:
        what = f"{folder}: no copies can be put there: {error.strerror}"
        raise ClusterError(f"{what}; set {FOLDER} to another folder") from error


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder for what is only needed while something is made; what earlier, killed processes have left there goes first.

    Raises:
        ClusterError: it cannot be made.
    """
    work, handle = cache_folder() / "work", None
    with usable(work):
        for left in work.iterdir():
            _remove(left, _alone(left))
        while handle is None:  # another process that sweeps may have been quicker
            folder = Path(tempfile.mkdtemp(dir=work))
            handle = _alone(folder)
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


def fresh(copy: Callable[[], Value]) -> Value:
    """What `copy` gives, which says each time anew what is to be copied; called again where that was replaced meanwhile.

    Raises:
        FileNotFoundError: it was, again and again.
    """
    for _ in range(TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return copy()
    return copy()


@contextmanager
def said_of(url: str, copy: Path, kind: type[Exception]) -> Iterator[None]:
    """What is refused of a copy, by an exception of this kind, is said of what it is a copy of."""
    try:
        yield
    except kind as error:
        raise type(error)(str(error).replace(str(copy), url)) from error


def _copy(
    storage: S3Storage,
    entries: Sequence[Entry],
    more: Mapping[str, bytes],
    folder: Path,
    tell: Callable[[], object],
) -> None:
    part = folder.with_suffix(".part")
    try:
        part.mkdir(exist_ok=True)
        missing = [entry for entry in entries if not _whole(part / entry.key, entry.size)]
        halves = {partial_path(part / entry.key, entry) for entry in missing}
        whole = {part / entry.key for entry in entries}
        for left in [path for path in part.rglob("*") if path.is_file()]:  # by a copy of another version that was killed
            if left not in halves | whole:
                left.unlink()
        wanted = sum(entry.size for entry in missing) - sum(path.stat().st_size for path in halves if path.exists())
        free = shutil.disk_usage(part).free
        if wanted > free:
            raise ClusterError(
                f"{storage.root}: its copy on this machine takes {wanted:,} bytes, {folder.parent} has {free:,} free; "
                f"free some, or set {FOLDER} to a folder on another disk"
            )
        for entry in missing:
            (part / entry.key).parent.mkdir(parents=True, exist_ok=True)
            storage.download(entry, part / entry.key, tell)
        for name, content in more.items():
            (part / name).write_bytes(content)
        part.rename(folder)
    except (FileNotFoundError, ClusterError):
        shutil.rmtree(part, ignore_errors=True)
        raise


def _whole(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _sweep(kept: Path) -> None:
    """Remove the other copies of these objects that no process holds, and those of others that nobody has asked for long."""
    for lock in cache_folder().glob("*/*.lock"):
        folder = lock.with_suffix("")
        unused = time.time() - lock.stat().st_mtime > KEPT_DAYS * 86_400
        if folder == kept or (folder.parent != kept.parent and not unused):
            continue
        with lock.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            for path in (folder, folder.with_suffix(".part")):
                shutil.rmtree(path, ignore_errors=True)
