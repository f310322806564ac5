"""The files of a corpus that are documents to be read, in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from retrievers.passages.documents import ending


class TextFile(NamedTuple):
    """A document's file, here or in object storage.

    Attributes:
        name: For messages.
        source: Its path in the corpus's folder, by which its passages are known and cited.
        open: Opens it.
    """

    name: str
    source: str
    open: Callable[[], BinaryIO]


class FoundFiles(NamedTuple):
    """The documents of a folder.

    Attributes:
        files: In order of their paths.
        left_out: The paths of files that are of no kind that is read.
    """

    files: list[TextFile]
    left_out: list[str]


def text_files(path: Path) -> FoundFiles:
    """Returns the documents of a file or folder, in its subfolders, too; none of a folder with Parquet files."""
    if path.is_file():
        return FoundFiles([_file(path, path.name)] if ending(path.name) else [], [])
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    paths = {file.relative_to(path).as_posix(): file for file in files}
    return chosen({name: _opening(file) for name, file in paths.items()}, str(path))


def chosen(found: dict[str, Callable[[], BinaryIO]], folder: str) -> FoundFiles:
    """Returns the documents among the files of a folder.

    Args:
        found: Path in the folder -> opens the file.
        folder: For messages.
    """
    shown = {name: one for name, one in found.items() if not any(part[:1] in "._" for part in name.split("/"))}
    if any(name.endswith(".parquet") for name in shown):
        return FoundFiles([], [])
    files = [TextFile(f"{folder.rstrip('/')}/{name}", name, one) for name, one in shown.items() if ending(name)]
    return FoundFiles(files, [name for name in shown if not ending(name)])


def _file(path: Path, source: str) -> TextFile:
    return TextFile(str(path), source, _opening(path))


def _opening(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")
