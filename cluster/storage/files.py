"""Storage in a folder of the file system.

A commit is a fsynced temporary file that is hard-linked to its final name: `link` fails if the name exists, and a kill
leaves either nothing or the whole file (`O_EXCL` alone would leave an empty one).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from cluster.storage import Entry


class FileStorage:
    """Objects as files of a folder; the methods keep the contract of `cluster.storage.Storage`."""

    def __init__(self, root: str) -> None:
        """Sets the root; the first write creates the folder."""
        self.root = root.rstrip("/") or "/"
        self._folder = Path(self.root)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes a temporary file and links it to its final name, which fails if that exists."""
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
        """Writes a temporary file and renames it."""
        target = self._target(key)
        self._write_temporary(target, data).replace(target)
        _sync_folder(target.parent)

    def upload(self, path: Path, key: str) -> None:
        """Copies a local file to a temporary one and renames that."""
        target = self._target(key)
        temporary = _temporary_beside(target)
        with path.open("rb") as source, temporary.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)

    def get(self, key: str) -> bytes | None:
        """Returns the file's bytes, or None."""
        try:
            return (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, key: str) -> pa.NativeFile:
        """Opens the file."""
        return pa.OSFile(str(self._folder / key), "rb")

    def stat(self, key: str) -> Entry | None:
        """Returns the file's entry, or None."""
        path = self._folder / key
        return Entry(key, path.stat().st_size) if path.is_file() else None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Lists the files below a folder, sorted by key."""
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
        """Lists the folders right under the root, sorted."""
        try:
            return sorted(entry.name for entry in os.scandir(self._folder) if entry.is_dir())
        except FileNotFoundError:
            return []

    def delete(self, *keys: str) -> None:
        """Removes the files."""
        for key in keys:
            (self._folder / key).unlink(missing_ok=True)

    def url(self, key: str) -> str:
        """Returns the file's path."""
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


def _temporary_beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")


def _sync_folder(folder: Path) -> None:
    """Makes the new name itself durable; file systems that refuse it (some network mounts) order names themselves."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
