"""The files of a corpus, here or on S3, as Parquet: other tables are converted, and of documents passages are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from cluster.cause import absent
from cluster.errors import ConfigError, RetrieverError
from cluster.storage import FoundFile, files_at, is_hidden, is_there, open_file, remote
from jobs.index.text_tables import as_parquet, reading
from jobs.log.files import of_one_form
from jobs.log.sets import irds
from jobs.log.sets.beir import corpus_of
from jobs.log.sets.names import SetName, set_name
from jobs.log.table_file import form_of
from jobs.terminal.formats import and_more
from retrievers.corpora.files import Progress, Source, corpus_files, is_corpus_file
from retrievers.passages.corpus import Passages, TextFile, split_documents, write_passages
from retrievers.passages.documents import READERS, ending
from retrievers.settings import CorpusSettings

_WHERE, _BEIR_ID = "corpus.path", "_id"
_NAMED = 3  # of what is counted
_TABLES = "*.parquet, *.jsonl or *.csv"


class Sources(NamedTuple):
    """What indexes are built from."""

    sources: Sequence[str | Source]  # Parquet files or objects on S3; of what was converted what was made of it
    notes: list[str]  # what was made of the corpus, and what was left out of it, in words


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
        files = [] if name else files_at(path)
        found = documents_of(path, files)
        left_out += found.left_out if found.files else []
        if found.files:
            made.append(write_passages(found.files, columns, to, progress))
            sources.append(str(to))
            continue
        tables: list[str | Source]
        if name:
            tables = [_set_corpus(name, columns, folder / f"{number}-0.parquet", progress)]
        else:
            tables = [
                as_parquet(file.path, columns, folder / f"{number}-{place}.parquet", progress)
                if form_of(file.path) in ("json", "csv")
                else Source(file.path, partial(open_file, file.path))
                if remote(path)
                else file.path
                for place, file in enumerate(table_files(path, files))
            ]
        if columns.split is not None:
            made.append(split_documents(corpus_files(tables), columns, to, progress))
            sources.append(str(to))
        else:
            sources += tables
    return Sources(sources, _notes(made, left_out))


class Documents(NamedTuple):
    """The documents of a corpus, in order of their paths, and the paths of files that are of no kind that is read."""

    files: list[TextFile]
    left_out: list[str]


def documents_of(path: str, files: Sequence[FoundFile]) -> Documents:
    """Returns the documents among the files at a path or URL; none where there are Parquet files."""
    if any(is_corpus_file(file.name) for file in files):
        return Documents([], [])
    shown = [file for file in files if file.path == path or not is_hidden(file.name)]
    found = [TextFile(file.path, file.name, partial(open_file, file.path)) for file in shown if ending(file.name)]
    return Documents(found, [file.name for file in shown if not ending(file.name)])


def table_files(path: str, files: Sequence[FoundFile]) -> list[FoundFile]:
    """Returns the files at a path or URL with a corpus's rows, of a folder its Parquet files if any; raises for none."""
    if not files and not Path(path).is_dir():
        raise RetrieverError("corpus", f"corpus {path}: {absent(path)}; correct corpus.path or --corpus")
    if [file.path for file in files] == [path]:
        return list(files)
    found = [file for file in files if is_corpus_file(file.name)]
    if not found:
        with reading(path):
            found = of_one_form([file for file in files if form_of(file.name) and not is_hidden(file.name)])
    if not found:
        words = f"holds no {_TABLES} file and no document ({', '.join(READERS)}); give another"
        raise RetrieverError("corpus", f"corpus {path}: {words}")
    return found


def corpus_file(name: SetName) -> str:
    """Returns the file of a set's documents, here or on S3.

    Raises:
        ConfigError: The set is not there, or has no documents.
        RetrieverError: Its folder has queries alone.
    """
    if name.kind != "beir":
        raise ConfigError("test-collection", f"{_WHERE}: {name}: has queries alone; name the corpus that is searched")
    path = corpus_of(name.rest, _WHERE)
    if not is_there(path):
        raise RetrieverError("corpus", f"{_WHERE}: {name}: there is no {path}; correct it")
    return path


def _set_corpus(name: SetName, columns: CorpusSettings, to: Path, progress: Progress) -> Source:
    """Writes the documents of a data set as Parquet: BEIR's `_id` is the id column; of ir_datasets every field is text."""
    if name.kind != "irds":
        own = columns.model_copy(update={"id_column": _BEIR_ID})
        return as_parquet(corpus_file(name), own, to, progress, {_BEIR_ID: columns.id_column})
    batches = irds.documents(name.rest, _WHERE, partial(progress, "convert"))
    first = next(batches)
    with pq.ParquetWriter(to, first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)
    return Source(str(name), partial(open_file, str(to)))


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
