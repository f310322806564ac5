"""Object storage: keys under one root, in a folder (`files.py`) or on S3 (`s3.py`).

`put_if_absent` is the one operation that commits.
"""

import contextlib
import io
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import pyarrow as pa

from cluster.errors import ClusterError, UnavailableError

PROBE = ".probe-"  # prefix of the objects of checks, which put and remove them; a kill may leave one


class Entry(NamedTuple):
    """One stored object."""

    key: str
    size: int  # bytes
    etag: str | None = None  # the version, where the storage names versions

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


class Storage(Protocol):
    """Objects under one root, named by slash-separated keys."""

    root: str

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Stores `data` unless `key` exists; durable on return. False: another object exists, and stays."""

    def put(self, key: str, data: bytes) -> None:
        """Stores `data`, replacing an older object; a reader sees the old or the new, never a mixture."""

    def upload(self, path: Path, key: str) -> None:
        """Stores a local file under `key`, replacing an older object."""

    def get(self, key: str) -> bytes | None:
        """Returns the object's bytes, or None if it does not exist."""

    def open(self, key: str) -> pa.NativeFile:
        """Opens the object as a random-access file (for Parquet). FileNotFoundError if it does not exist."""

    def stat(self, key: str) -> Entry | None:
        """Returns the entry of exactly this key, or None."""

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Lists every object below the folder `prefix`, sorted by key; unfinished temporary files included."""

    def folders(self) -> Sequence[str]:
        """Returns the names of the folders right under the root, sorted."""

    def delete(self, *keys: str) -> None:
        """Removes the objects; keys that do not exist are ignored."""

    def url(self, key: str) -> str:
        """Returns the object's address, for DuckDB and for messages."""


def remote(url: str) -> bool:
    """Returns True if this names an object or folder of S3."""
    return url.startswith("s3://")


def open_storage(url: str) -> Storage:
    """Returns the storage at `url`: s3://BUCKET/FOLDER or a folder of the file system. ClusterError for other schemes."""
    if remote(url):
        from cluster.storage.s3 import S3Storage

        return S3Storage(url)
    if "://" in url and not url.startswith("file://"):
        scheme = url.split("://", 1)[0]
        remedy = "use s3://BUCKET/FOLDER, or a folder of the file system"
        raise ClusterError("storage-refused", f"{url}: {scheme}:// is not supported; {remedy}")
    from cluster.storage.files import FileStorage

    return FileStorage(str(Path(url.removeprefix("file://")).absolute()))


def object_at(url: str) -> Entry | None:
    """Returns the S3 object of exactly this address, its key its name there; None: there is none, `url` may be a folder."""
    folder, _, name = url.rpartition("/")
    return open_storage(folder).stat(name) if name and folder.count("/") >= 2 else None  # s3://BUCKET alone is no object


class FoundFile(NamedTuple):
    """A file, here or on S3."""

    path: str  # to open it
    name: str  # from the folder that was searched, with "/"
    size: int  # bytes
    changed: int | str  # another when it is replaced: nanoseconds of its last change, or the etag of an object


def files_at(path: str) -> list[FoundFile]:
    """Returns a file, or the files below a folder by name, hidden ones too, here (links are followed) or on S3; or none."""
    if remote(path):
        entry = object_at(path)
        storage = open_storage((path.rpartition("/")[0] if entry else path).rstrip("/"))
        entries = [entry] if entry else storage.list()
        return [FoundFile(storage.url(one.key), one.key, one.size, str(one.etag)) for one in entries]
    if not os.path.isdir(path):
        return [_found(path, os.path.basename(path))] if os.path.exists(path) else []
    listed, seen = [], set[str]()
    for parent, folders, files in os.walk(path, followlinks=True):
        if (real := os.path.realpath(parent)) in seen:  # a link to a parent folder
            folders.clear()
            continue
        seen.add(real)
        listed += [_found(one, os.path.relpath(one, path)) for one in (os.path.join(parent, file) for file in files)]
    return sorted(listed, key=lambda file: file.name)


def _found(path: str, name: str) -> FoundFile:
    stat = os.stat(path)
    return FoundFile(path, name, stat.st_size, stat.st_mtime_ns)


def is_hidden(name: str) -> bool:
    """Returns True if a file, or a folder that it is in, begins with `.` or `_`, by its name from the folder searched."""
    return any(part[:1] in "._" for part in name.split("/"))


def is_there(url: str) -> bool:
    """Returns True if a file or folder exists at a path, or an object at a URL."""
    return object_at(url) is not None if remote(url) else os.path.exists(url)


def open_file(url: str, etag: str | None = None) -> BinaryIO:
    """Opens a file or an S3 object for reading, seekable; with `etag` that version of it, or raises OSError (ESTALE)."""
    if not remote(url):
        return Path(url).open("rb")
    from cluster.storage.s3_file import STREAMED, S3File

    return io.BufferedReader(S3File(url, etag, STREAMED), 1 << 16)


@contextlib.contextmanager
def written(path: str) -> Iterator[Path]:
    """Yields a temporary file that becomes the file or the S3 object `path` if nothing fails; an OSError names `path`.

    A device, such as /dev/stdout, is written to directly.
    """
    target = Path(path)
    if remote(path) or (target.exists() and not target.is_file()):
        from cluster.storage.copies import work_folder

        with work_folder() as folder:
            temporary = folder / "written"
            yield temporary
            if remote(path):
                bucket, _, key = path.removeprefix("s3://").partition("/")
                open_storage(f"s3://{bucket}").upload(temporary, key)
            else:
                target.write_bytes(temporary.read_bytes())
        return
    temporary = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        temporary.touch()
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def probe_key() -> str:
    """Returns a new key for an object that is put and removed to see whether that is possible."""
    return f"{PROBE}{uuid.uuid4().hex}"


def check_writable(storage: Storage, what: str) -> None:
    """Refuses (ClusterError) a root that cannot be written or that does not support put-if-absent."""
    key = probe_key()
    try:
        try:
            first, second = storage.put_if_absent(key, b"1"), storage.put_if_absent(key, b"2")
        except BaseException:
            with contextlib.suppress(OSError, ClusterError):
                storage.delete(key)
            raise
        storage.delete(key)
    except UnavailableError:
        raise
    except OSError as error:
        problem = f"cannot write to {storage.root}: {error.strerror or error}"
        raise ClusterError("storage-refused", f"{what}: {problem}; name another folder") from error
    if not first or second:
        problem = f"{storage.root} overwrites files that were to be created only"
        raise ClusterError("storage-refused", f"{what}: {problem}; name another store")
