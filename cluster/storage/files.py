"""Storage in a folder of the file system.

A commit is a fsynced temporary file that is hard-linked to its final name: `link` fails if the name exists, and a kill
leaves either nothing or the whole file (`O_EXCL` alone would leave an empty one).
"""

import contextlib
import io
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from cluster.storage import Entry

UNFINISHED_SECONDS = 600.0  # a temporary file that was not written to for so long has no writer


class FileStorage:
    """Objects as files of a folder; the methods keep the contract of `cluster.storage.Storage`."""

    def __init__(self, root: str) -> None:
        """Sets the root; the first write creates the folder."""
        self.root = root.rstrip("/") or "/"
        self._folder = Path(self.root)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        target = self._target(key)
        temporary = self._write_temporary(target, io.BytesIO(data))
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        _sync_folder(target.parent)
        return True

    def put(self, key: str, data: bytes) -> None:
        self._replace(key, io.BytesIO(data))

    def upload(self, path: Path, key: str) -> None:
        with path.open("rb") as source:
            self._replace(key, source)

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
        entries = []
        for folder, _, files in os.walk(self._folder / prefix):
            for file in files:
                path = Path(folder, file)
                try:
                    entries.append(Entry(path.relative_to(self._folder).as_posix(), path.stat().st_size))
                except FileNotFoundError:  # a temporary that was renamed meanwhile
                    continue
        yield from sorted(entries)

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

    def _replace(self, key: str, source: BinaryIO) -> None:
        target = self._target(key)
        self._write_temporary(target, source).replace(target)
        _sync_folder(target.parent)

    def _target(self, key: str) -> Path:
        """Returns the file's path; makes its folders, and makes their names durable."""
        target = self._folder / key
        missing = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            _sync_folder(folder.parent)
        return target

    @staticmethod
    def _write_temporary(target: Path, source: BinaryIO) -> Path:
        """Writes a file beside the target, durably; leaves none behind if that fails."""
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


def left_behind(root: str, folders: Sequence[str]) -> list[str]:
    """Returns the keys of temporary files that killed processes have left right in these folders of a root ("": the root).

    A file of the last minutes may be another thread's that writes, and is none.
    """
    now, paths = time.time(), []
    for path in (path for folder in folders for path in Path(root, folder).glob(".*.tmp")):
        with contextlib.suppress(FileNotFoundError):
            if now - path.stat().st_mtime > UNFINISHED_SECONDS:
                paths.append(path.relative_to(root).as_posix())
    return paths


def _sync_folder(folder: Path) -> None:
    """Makes the new name itself durable; file systems that refuse it (some network mounts) order names themselves."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
