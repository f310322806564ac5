"""A cache on this machine of S3 objects that must be local files: an index is memory-mapped, completions are read at random.

One copy per machine and version: the first process to ask makes it while others wait at a file lock, and all use it. A
process holds the lock shared until it exits. A copy without a lock is evicted when another version of the same objects is
copied, or when any copy is made a month after it was last used. The next process to ask completes a copy that a kill
interrupted, file by file.

The same folder has the temporary folders of processes (`work_folder`).
"""

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

from cluster.errors import ClusterError, DmqrError
from cluster.storage import Entry
from cluster.storage.s3 import S3Storage

Value = TypeVar("Value")
TRIES = 3  # objects may be replaced while they are copied
KEPT_DAYS = 30  # since a copy was last used
FOLDER = "DMQR_CACHE"  # environment variable: the folder of the cache, in place of one in the temporary folder

_held: dict[Path, IO[bytes]] = {}


def cache_folder() -> Path:
    """Returns the folder of the cache on this machine."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(tempfile.gettempdir(), f"dmqr-{os.getuid()}", "copies")


def copies_folder(storage: S3Storage, name: str = "") -> Path:
    """Returns the folder of all versions of one copy: of the objects below an address, or of the object `name` there."""
    return cache_folder() / hashlib.sha256(storage.url(name).encode()).hexdigest()[:16]


def copied(
    storage: S3Storage,
    entries: Sequence[Entry],
    version: str,
    more: Mapping[str, bytes] | None = None,
    *,
    name: str = "",
    there_only: bool = False,
    on_progress: Callable[[], object] = lambda: None,
) -> Path | None:
    """Returns the folder on this machine with these objects under their keys, and `more` (name -> content) beside them.

    `version` differs for a later set of objects under the same keys. Where an object alone is copied, `name` is its own. With
    `there_only` no copy is made: None.

    Raises ClusterError if there is too little space, or the folder cannot be written, FileNotFoundError if an object was
    removed or replaced.
    """
    folder = copies_folder(storage, name) / hashlib.sha256(version.encode()).hexdigest()[:16]
    if folder in _held and folder.is_dir():
        return folder
    if there_only and not folder.is_dir():
        return None
    with usable(folder.parent):
        lock = folder.with_suffix(".lock").open("ab")
        os.utime(lock.fileno())  # last used
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if folder.is_dir():  # checked under the lock: another process may have evicted it
            _held[folder] = lock
            return folder
        fcntl.flock(lock, fcntl.LOCK_EX)  # a process with a shared lock has found no copy either, and waits here
        if not folder.is_dir():
            _copy(storage, entries, more or {}, folder, on_progress)
            _evict(folder)


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Creates a folder of the cache; ClusterError for any OSError of it or of the body."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = cache_folder().parent
        if FOLDER not in os.environ and (own.is_symlink() or own.stat().st_uid != os.getuid()):  # all may write in /tmp
            raise ClusterError("disk-space", f"{own}: belongs to another user; set {FOLDER} to another folder")
        yield
    except OSError as error:
        what = f"{folder}: cannot hold copies: {error.strerror}"
        raise ClusterError("disk-space", f"{what}; set {FOLDER} to another folder") from error


@contextmanager
def work_folder() -> Iterator[Path]:
    """Creates a temporary folder for the body, or raises ClusterError; removes those of killed processes first."""
    work, handle = cache_folder() / "work", None
    with usable(work):
        for left in work.iterdir():
            _remove(left, _exclusive(left))
        while handle is None:  # another process may have taken it for left over
            folder = Path(tempfile.mkdtemp(dir=work))
            handle = _exclusive(folder)
    try:
        yield folder
    finally:
        _remove(folder, handle)


def _exclusive(folder: Path) -> int | None:
    """Locks a folder until the returned descriptor is closed; None if another process has the lock or the folder is gone."""
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


def retry_if_replaced(copy: Callable[[], Value]) -> Value:
    """Returns `copy()`, called up to TRIES times while it raises FileNotFoundError; it lists the objects anew each time."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return copy()
    return copy()


@contextmanager
def naming(url: str, copy: Path) -> Iterator[None]:
    """Names `url` in place of its copy in the message of an error of the body."""
    try:
        yield
    except DmqrError as error:
        raise type(error)(error.code, error.line.replace(str(copy), url)) from error


def _copy(
    storage: S3Storage, entries: Sequence[Entry], more: Mapping[str, bytes], folder: Path, on_progress: Callable[[], object]
) -> None:
    part = folder.with_suffix(".part")
    try:
        part.mkdir(exist_ok=True)
        missing = [entry for entry in entries if not (part / entry.key).is_file()]  # a kill leaves whole files
        wanted, free = sum(entry.size for entry in missing), shutil.disk_usage(part).free
        if wanted > free:
            problem = f"its copy on this machine takes {wanted:,} bytes, {folder.parent} has {free:,} free"
            remedy = f"free some, or set {FOLDER} to a folder on another disk"
            raise ClusterError("disk-space", f"{storage.root}: {problem}; {remedy}")
        for entry in missing:
            (part / entry.key).parent.mkdir(parents=True, exist_ok=True)
            storage.download(entry, part / entry.key, on_progress)
        for name, content in more.items():
            (part / name).write_bytes(content)
        part.rename(folder)
    except (FileNotFoundError, ClusterError):
        shutil.rmtree(part, ignore_errors=True)
        raise


def _evict(kept: Path) -> None:
    """Removes unlocked copies: other versions of the same objects, and all that were not used for KEPT_DAYS."""
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
