"""Hashes of files, made anew only where a file has changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_JUST_NOW = 2_000_000_000  # ns: file systems note times so coarsely, at most


class FileState(NamedTuple):
    """Identifies one state of a file: its path, size and times in ns."""

    path: str
    size: int  # bytes
    changed: int  # when its content was changed
    noted: int  # when its entry was changed, which nobody can set
    looked: int  # when it was looked at, where it may change again without a difference in the others; 0: it may not


def file_state(path: Path) -> FileState:
    """Returns the state of a file."""
    found, now = path.stat(), time.time_ns()
    lately = abs(now - max(found.st_mtime_ns, found.st_ctime_ns)) < _JUST_NOW
    return FileState(str(path), found.st_size, found.st_mtime_ns, found.st_ctime_ns, now if lately else 0)


def hash_of_files(files: Iterable[tuple[str, Path]]) -> str:
    """Returns 32 hex digits for files with their places: of these and of their content."""
    return _joined((place, _hash_of_file(file_state(path))) for place, path in files)


@lru_cache(maxsize=4096)
def _hash_of_file(state: FileState) -> str:
    with open(state.path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _joined(hashes: Iterable[tuple[str, str]]) -> str:
    whole = hashlib.sha256()
    for place, one in hashes:
        whole.update(f"{place}\0{one}\n".encode())
    return whole.hexdigest()[:32]
