"""Hashes of files, made anew only where a file has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path


def hash_of_files(files: Iterable[tuple[str, Path]]) -> str:
    """Returns 32 hex digits for files with their places: of these and of their content."""
    whole = hashlib.sha256()
    for place, path in files:
        stat = path.stat()
        whole.update(f"{place}\0{_hash_of_file(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)}\n".encode())
    return whole.hexdigest()[:32]


@lru_cache(maxsize=4096)
def _hash_of_file(path: Path, *_state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
