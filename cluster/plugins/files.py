"""Files by their content: which of a package are its code, and hashes that are made anew only where a file has changed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_JUST_NOW = 2_000_000_000  # ns: file systems note times so coarsely, at most


class FileState(NamedTuple):
    """What differs where a file has been written since: its path, size and times.

    Attributes:
        path: Of the file.
        size: In bytes.
        changed: When its content was changed, in ns.
        noted: When its entry was changed, in ns, which nobody can set.
        looked: When it was looked at, in ns, where it has been changed just now, so that it may change again without a
            difference in the others; 0: it has not.
    """

    path: str
    size: int
    changed: int
    noted: int
    looked: int


def file_state(path: Path) -> FileState:
    """Returns the state of a file."""
    found, now = path.stat(), time.time_ns()
    lately = abs(now - max(found.st_mtime_ns, found.st_ctime_ns)) < _JUST_NOW
    return FileState(str(path), found.st_size, found.st_mtime_ns, found.st_ctime_ns, now if lately else 0)


def hash_of_files(files: Iterable[tuple[str, Path]]) -> str:
    """Returns 32 hex digits for files with their places: of these and of their content."""
    return _joined((place, _hash_of_file(file_state(path))) for place, path in files)


def hash_of_contents(contents: Mapping[str, bytes]) -> str:
    """Returns `hash_of_files` of files with these contents."""
    return _joined((place, hashlib.sha256(content).hexdigest()) for place, content in contents.items())


def package_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Returns the files of a package that count and are sent, sorted: place below its folder -> file.

    They are all but what is hidden (`.ipynb_checkpoints`) or compiled by Python (`__pycache__`). A namespace package has
    several folders; of a place that is in two the first counts, as imports find it.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for file in _below(folder, frozenset()):
            found.setdefault(file.relative_to(folder).as_posix(), file)
    return dict(sorted(found.items()))


def _below(folder: Path, above: frozenset[str]) -> Iterator[Path]:
    above |= {os.path.realpath(folder)}
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.startswith(".") or entry.name == "__pycache__" or entry.name.endswith(".pyc"):
                continue
            if entry.is_file():
                yield folder / entry.name
            elif entry.is_dir() and os.path.realpath(entry.path) not in above:  # a link may lead upwards
                yield from _below(folder / entry.name, above)


@lru_cache(maxsize=4096)
def _hash_of_file(state: FileState) -> str:
    with open(state.path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _joined(hashes: Iterable[tuple[str, str]]) -> str:
    whole = hashlib.sha256()
    for place, one in hashes:
        whole.update(f"{place}\0{one}\n".encode())
    return whole.hexdigest()[:32]
