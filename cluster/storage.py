"""Where tables lie: keys under one root, with put-if-absent as the one verb that commits.

On a file system a commit is a fsynced temporary file that is hard-linked to its final name: `link` fails if the name
exists, and a kill leaves either nothing or the whole file (`O_EXCL` alone would leave an empty one). Object storage:
`cluster/s3.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import pyarrow as pa

from cluster import ClusterError, UnavailableError

PROBE = ".probe-"  # how the names begin of what `check_writable` puts and removes; a kill may leave one


class Entry(NamedTuple):
    """One stored object."""

    key: str
    size: int  # bytes
    etag: str | None = None  # the version, where the storage names versions


class Storage(Protocol):
    """Objects under one root, named by slash-separated keys."""

    root: str

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` unless `key` exists; durable on return. False: somebody else's is there, and stays."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing what was there; a reader sees the old or the new, never a mixture."""
        ...

    def upload(self, path: Path, key: str) -> None:
        """Store a local file under `key`, replacing what was there."""
        ...

    def get(self, key: str) -> bytes | None:
        """The object's bytes, or None if there is none."""
        ...

    def open(self, key: str) -> pa.NativeFile:
        """The object as a random-access file (for Parquet). FileNotFoundError if there is none."""
        ...

    def stat(self, key: str) -> Entry | None:
        """The object of this very key, or None."""
        ...

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object whose key starts with the folder `prefix`, sorted by key; unfinished temporaries included."""
        ...

    def folders(self) -> Sequence[str]:
        """The names of the folders right under the root, sorted."""
        ...

    def delete(self, *keys: str) -> None:
        """Remove the objects; nothing happens where there is none."""
        ...

    def url(self, key: str) -> str:
        """How DuckDB and people name the object."""
        ...


class FileStorage:
    """A folder of the file system."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        self._folder = Path(self.root)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        target = self._target(key)
        temporary = self._write_temporary(target, data)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        _sync_folder(target.parent)
        return True

    def put(self, key: str, data: bytes) -> None:
        target = self._target(key)
        self._write_temporary(target, data).replace(target)
        _sync_folder(target.parent)

    def upload(self, path: Path, key: str) -> None:
        target = self._target(key)
        temporary = _temporary_beside(target)
        with path.open("rb") as source, temporary.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)

    def get(self, key: str) -> bytes | None:
        try:
            return (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, key: str) -> pa.NativeFile:
        return pa.OSFile(str(self._folder / key), "rb")

    def stat(self, key: str) -> Entry | None:
        path = self._folder / key
        return Entry(key, path.stat().st_size) if path.is_file() else None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        found = []
        for folder, _, files in os.walk(self._folder / prefix):
            for file in files:
                path = Path(folder, file)
                try:
                    found.append(Entry(path.relative_to(self._folder).as_posix(), path.stat().st_size))
                except FileNotFoundError:  # a temporary that was renamed meanwhile
                    continue
        yield from sorted(found)

    def folders(self) -> Sequence[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._folder) if entry.is_dir())
        except FileNotFoundError:
            return []

    def delete(self, *keys: str) -> None:
        for key in keys:
            (self._folder / key).unlink(missing_ok=True)

    def url(self, key: str) -> str:
        return str(self._folder / key)

    def _target(self, key: str) -> Path:
        target = self._folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    @staticmethod
    def _write_temporary(target: Path, data: bytes) -> Path:
        temporary = _temporary_beside(target)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return temporary


def remote(url: str) -> bool:
    """Whether this names an object or folder of S3."""
    return url.startswith("s3://")


def open_storage(url: str) -> Storage:
    """The storage at `url`: s3://BUCKET/FOLDER or a folder of the file system. ClusterError for another kind."""
    if remote(url):
        from cluster.s3 import S3Storage

        return S3Storage(url)
    if "://" in url and not url.startswith("file://"):
        scheme = url.split("://", 1)[0]
        raise ClusterError(f"{url}: {scheme}:// is not supported; use s3://BUCKET/FOLDER, or a folder of the file system")
    return FileStorage(str(Path(url.removeprefix("file://")).absolute()))


def object_at(url: str) -> Entry | None:
    """The object of this very address on S3, its key its name there; None: there is none, what is named may be a folder."""
    folder, _, name = url.rpartition("/")
    return open_storage(folder).stat(name) if name and folder.count("/") >= 2 else None  # s3://BUCKET alone is no object


def open_file(url: str, etag: str | None = None) -> BinaryIO:
    """A file or an object of S3 (of this version, if one is given), to be read as a stream of bytes or at any place. OSError if
    it cannot be; ESTALE: it is another version."""
    if not remote(url):
        return Path(url).open("rb")
    from cluster.s3_file import RangedFile

    bucket, _, key = url.removeprefix("s3://").partition("/")
    return io.BufferedReader(RangedFile(bucket, key, etag), 1 << 16)


def check_writable(storage: Storage, what: str) -> None:
    """Refuse early (ClusterError) a root that cannot be written or that does not keep put-if-absent."""
    key = f"{PROBE}{uuid.uuid4().hex}"
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
        raise ClusterError(f"{what}: cannot write to {storage.root}: {error.strerror or error}; name another folder") from error
    if not first or second:
        raise ClusterError(f"{what}: {storage.root} overwrites what it was told to create only; name a folder elsewhere")


def _temporary_beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable; file systems that refuse it (some network mounts) order names themselves."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
