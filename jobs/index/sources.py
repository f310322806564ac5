"""The files of a corpus, here or on S3, as Parquet: other tables are converted, and of documents passages are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cluster.errors import RetrieverError
from cluster.storage import object_at, open_file, open_storage, remote
from jobs.index.set_corpora import set_corpus
from jobs.index.text_tables import as_parquet, is_text_table, text_tables
from jobs.log.sets.names import set_name
from jobs.terminal.formats import and_more
from retrievers.corpora.files import Progress, Source, corpus_files, is_corpus_file
from retrievers.passages.corpus import Passages, split_documents, write_passages
from retrievers.passages.documents import READERS, ending
from retrievers.passages.files import FoundFiles, TextFile, chosen, text_files
from retrievers.settings import CorpusSettings

_NAMED = 3  # of what is counted
_TABLES = "*.parquet, *.jsonl or *.csv"


class Sources(NamedTuple):
    """What indexes are built from.

    Attributes:
        sources: Parquet files, folders of them, or objects on S3; of converted tables what was made of them.
        notes: What was made of the corpus, and what was left out of it, in words.
    """

    sources: Sequence[str | Source]
    notes: list[str]


def passages(corpus: Sequence[str], columns: CorpusSettings, folder: Path, progress: Progress) -> Sources:
    """Returns the Parquet files of a corpus; what is none, and rows that are to be split, are written as such first.

    Args:
        corpus: Paths and URLs: tables (Parquet, lines of JSON, CSV), documents, and folders of either; or names of data sets.
        columns: The config's `corpus`.
        folder: Where what is made of them is written.
        progress: Called with "convert" or "split", rows or documents done, and all of them.

    Raises:
        RetrieverError: A path leads to no corpus, or a document cannot be read.
        ConfigError: A data set cannot be had.
    """
    sources: list[str | Source] = []
    made: list[Passages] = []
    left_out: list[str] = []
    for number, path in enumerate(corpus):
        to = folder / f"{number}.parquet"
        name = set_name(path)
        keys = [] if name else _keys(path)
        found = FoundFiles([], []) if name else _documents(path, keys)
        left_out += found.left_out if found.files else []
        if found.files:
            made.append(write_passages(found.files, columns, to, progress))
            sources.append(str(to))
            continue
        tables = (
            [set_corpus(name, columns, folder / f"{number}-0.parquet", progress)]
            if name
            else [
                as_parquet(one, columns, folder / f"{number}-{place}.parquet", progress)
                if isinstance(one, str) and is_text_table(one)
                else one
                for place, one in enumerate(table_files(path, keys))
            ]
        )
        if columns.split is not None:
            made.append(split_documents(corpus_files(tables), columns, to, progress))
            sources.append(str(to))
        else:
            sources += tables
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


def table_files(path: str, keys: Sequence[str]) -> list[str | Source]:
    """Returns the files of a path or URL with a corpus's rows; of a folder the Parquet files, where there are any.

    Parquet files of S3 are streams, an object or those among the keys below a folder.

    Raises:
        RetrieverError: There are none below a folder.
    """
    if not remote(path):
        if not Path(path).is_dir() or any(Path(path).rglob("*.parquet")):
            return [path]
        inside = [file.relative_to(path).as_posix() for file in Path(path).rglob("*") if file.is_file()]
        if found := text_tables(inside, path):
            return [str(Path(path, name)) for name in found]
        raise RetrieverError(
            "corpus",
            f"corpus {path}: the folder holds no {_TABLES} file and no document ({', '.join(READERS)}); give another",
        )
    if object_at(path) is not None:
        return [path if is_text_table(path) else _source(path)]
    storage = open_storage(path)
    if parquet := [key for key in keys if is_corpus_file(key)]:
        return [_source(storage.url(key)) for key in parquet]
    if found := text_tables(keys, path):
        return [storage.url(key) for key in found]
    raise RetrieverError(
        "corpus",
        f"corpus {path}: no such object, and no {_TABLES} or document below it; correct corpus.path or --corpus",
    )


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
