"""The files of a corpus, here or on S3, and the passages that are made of its documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cluster.errors import RetrieverError
from cluster.storage import object_at, open_file, open_storage, remote
from jobs.terminal.formats import and_more
from retrievers.corpora.files import Source, corpus_files, is_corpus_file
from retrievers.passages.corpus import Passages, split_documents, write_passages
from retrievers.passages.documents import READERS, ending
from retrievers.passages.files import FoundFiles, TextFile, chosen, text_files
from retrievers.settings import CorpusSettings

_NAMED = 3  # of what is counted


class Sources(NamedTuple):
    """What indexes are built from.

    Attributes:
        sources: Parquet files, folders of them, or objects on S3.
        notes: What was made of the corpus, and what was left out of it, in words.
    """

    sources: Sequence[str | Source]
    notes: list[str]


def passages(
    corpus: Sequence[str], columns: CorpusSettings, folder: Path, progress: Callable[[str, int, int], None]
) -> Sources:
    """Returns the Parquet files of a corpus; documents, and rows that are to be split, are written as passages first.

    Args:
        corpus: Paths and URLs: Parquet files, documents, and folders of either.
        columns: The config's `corpus`.
        folder: Where passages are written.
        progress: Called with "split", documents done, documents in all.

    Raises:
        RetrieverError: A path leads to no corpus, or a document cannot be read.
    """
    sources: list[str | Source] = []
    made: list[Passages] = []
    left_out: list[str] = []
    for number, path in enumerate(corpus):
        keys = _keys(path)
        found = _documents(path, keys)
        to = folder / f"{number}.parquet"
        left_out += found.left_out if found.files else []
        if found.files:
            made.append(write_passages(found.files, columns, to, progress))
            sources.append(str(to))
        elif columns.split is not None:
            made.append(split_documents(corpus_files(parquet_files(path, keys)), columns, to, progress))
            sources.append(str(to))
        else:
            sources += parquet_files(path, keys)
    return Sources(sources, _notes(made, left_out))


def _keys(path: str) -> list[str]:
    """Returns the keys of the objects below a URL; of an object, and of a path, none."""
    return [entry.key for entry in open_storage(path).list()] if remote(path) and object_at(path) is None else []


def _documents(path: str, keys: Sequence[str]) -> FoundFiles:
    """Returns the documents of a path or URL; none where it has Parquet files."""
    if not remote(path):
        return text_files(Path(path)) if Path(path).exists() else FoundFiles([], [])
    if object_at(path) is not None:
        name = path.rpartition("/")[2]
        return FoundFiles([TextFile(path, name, partial(open_file, path))] if ending(name) else [], [])
    storage = open_storage(path)
    return chosen({key: partial(open_file, storage.url(key)) for key in keys}, path)


def parquet_files(path: str, keys: Sequence[str]) -> list[str | Source]:
    """Returns the Parquet files of a path or URL: of S3 as streams, an object or those among the keys below a folder.

    Raises:
        RetrieverError: There are none below a URL.
    """
    if not remote(path):
        if Path(path).is_dir() and not any(Path(path).rglob("*.parquet")):
            kinds = ", ".join(READERS)
            raise RetrieverError(
                "corpus-missing", f"corpus {path}: the folder holds no *.parquet file and no document ({kinds}); give another"
            )
        return [path]
    if object_at(path) is not None:
        return [_source(path)]
    found = [key for key in keys if is_corpus_file(key)]
    if not found:
        raise RetrieverError(
            "corpus-missing", f"corpus {path}: no such object, and no *.parquet or document below it; correct --corpus"
        )
    storage = open_storage(path)
    return [_source(storage.url(key)) for key in found]


def _source(url: str) -> Source:
    return Source(url, partial(open_file, url))


def _notes(made: Sequence[Passages], left_out: Sequence[str]) -> list[str]:
    notes = []
    if made:
        notes.append(f"{sum(one.passages for one in made):,} passages of {sum(one.documents for one in made):,} documents")
    without = [name for one in made for name in one.without_text]
    if without:
        notes.append(f"warning: no text in {and_more(without, _NAMED)}")
    if left_out:
        endings = Counter(Path(name).suffix.lower() or "without an ending" for name in left_out)
        kinds = and_more([f"{n:,} {one}" for one, n in endings.most_common()], _NAMED)
        notes.append(f"left out {len(left_out):,} files of other kinds ({kinds})")
    return notes
