"""The files of a corpus that are documents to be read, in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from retrievers.corpora.files import is_corpus_file
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
        return FoundFiles([TextFile(str(path), path.name, _opening(path))] if ending(path.name) else [], [])
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return chosen({file.relative_to(path).as_posix(): _opening(file) for file in files}, str(path))


def chosen(found: dict[str, Callable[[], BinaryIO]], folder: str) -> FoundFiles:
    """Returns the documents among the files of a folder.

    Args:
        found: Path in the folder -> opens the file.
        folder: For messages.
    """
    if any(map(is_corpus_file, found)):
        return FoundFiles([], [])
    shown = {name: one for name, one in found.items() if not any(part[:1] in "._" for part in name.split("/"))}
    files = [TextFile(f"{folder.rstrip('/')}/{name}", name, one) for name, one in shown.items() if ending(name)]
    return FoundFiles(files, [name for name in shown if not ending(name)])


def _opening(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")
