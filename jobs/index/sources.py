"""The files of a corpus, here or on S3, as Parquet: other tables are converted, and of documents passages are made."""

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.cause import absent
from cluster.errors import ConfigError, RetrieverError, UnavailableError
from cluster.storage import FoundFile, files_at, is_hidden, is_there, open_file, remote
from cluster.storage.s3_duckdb import bounded_duckdb, reason
from cluster.storage.sql import file_literal, identifier, text_literal
from jobs.log.files import of_one_form
from jobs.log.sets import irds
from jobs.log.sets.beir import corpus_of
from jobs.log.sets.names import SetName, set_name
from jobs.log.table_file import TableFault, TextTable, form_of, open_table
from jobs.terminal.formats import and_more
from retrievers.corpora.files import Progress, Source, corpus_files, is_corpus_file
from retrievers.passages.corpus import Passages, TextFile, split_documents, write_passages
from retrievers.passages.documents import READERS, ending
from retrievers.settings import CorpusSettings

_WHERE, _BEIR_ID = "corpus.path", "_id"
_NAMED = 3  # of what is counted
_ROWS, _MEMORY = 8192, "256MB"  # read and written at a time; of DuckDB
_TABLES = "*.parquet, *.jsonl or *.csv"


def passages(
    corpus: Sequence[str], columns: CorpusSettings, folder: Path, progress: Progress
) -> tuple[list[str | Source], list[str]]:
    """Returns the Parquet files of a corpus, and notes on what was made of it and left out.

    Other tables, documents and rows to be split are written to `folder` as Parquet.
    `corpus` has paths and URLs of tables (Parquet, lines of JSON, CSV), documents, and folders of either, or names of data
    sets. `progress` hears "convert" or "split", rows or documents done, and all of them.

    Raises:
        RetrieverError: A path leads to no corpus, or a document cannot be read.
        ConfigError: A data set cannot be had.
    """
    sources: list[str | Source] = []
    written: list[Passages] = []
    left_out: list[str] = []
    for number, path in enumerate(corpus):
        to = folder / f"{number}.parquet"
        name = set_name(path)
        files = [] if name else files_at(path)
        documents = documents_of(path, files)
        if documents:
            left_out += [file.name for file in files if not is_hidden(file.name) and not ending(file.name)]
            written.append(write_passages(documents, columns, to, progress))
            sources.append(str(to))
            continue
        tables: list[str | Source]
        if name:
            tables = [_set_corpus(name, columns, folder / f"{number}-0.parquet", progress)]
        else:
            tables = [
                as_parquet(file.path, columns, folder / f"{number}-{index}.parquet", progress)
                if form_of(file.path) in ("json", "csv")
                else Source(file.path, partial(open_file, file.path))
                if remote(path)
                else file.path
                for index, file in enumerate(table_files(path, files))
            ]
        if columns.split is not None:
            written.append(split_documents(corpus_files(tables), columns, to, progress))
            sources.append(str(to))
        else:
            sources += tables
    return sources, _notes(written, left_out)


def documents_of(path: str, files: Sequence[FoundFile]) -> list[TextFile]:
    """Returns the documents among the files at a path or URL, in order of their paths; none where there are Parquet files."""
    if any(is_corpus_file(file.name) for file in files):
        return []
    shown = [file for file in files if file.path == path or not is_hidden(file.name)]
    return [TextFile(file.path, file.name, partial(open_file, file.path)) for file in shown if ending(file.name)]


def table_files(path: str, files: Sequence[FoundFile]) -> list[FoundFile]:
    """Returns the files of a corpus at a path or URL; of a folder its Parquet files if any; raises if there are none."""
    if not files:
        problem = "is an empty folder" if Path(path).is_dir() else absent(path)
        raise RetrieverError("corpus", f"corpus {path}: {problem}; correct corpus.path or --corpus")
    if [file.path for file in files] == [path]:
        return list(files)
    tables = [file for file in files if is_corpus_file(file.name)]
    if not tables:
        with reading(path):
            tables = of_one_form([file for file in files if form_of(file.name) and not is_hidden(file.name)])
    if not tables:
        problem = f"holds no {_TABLES} file and no document ({', '.join(READERS)}); give another"
        raise RetrieverError("corpus", f"corpus {path}: {problem}")
    return tables


def corpus_file(name: SetName) -> str:
    """Returns the file of a set's documents, here or on S3; raises ConfigError or RetrieverError where there is none."""
    if name.kind != "beir":
        raise ConfigError("test-collection", f"{_WHERE}: {name}: has queries only; name the corpus that is searched")
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


def _notes(written: Sequence[Passages], left_out: Sequence[str]) -> list[str]:
    notes = []
    if written:
        notes.append(
            f"{sum(one.passages for one in written):,} passages of {sum(one.documents for one in written):,} documents"
        )
    without = [name for one in written for name in one.without_text]
    if without:
        notes.append(f"warning: no text in {and_more(without, _NAMED)}")
    if left_out:
        endings = Counter(Path(name).suffix.lower() or "without an ending" for name in left_out)
        kinds = and_more([f"{n:,} {one}" for one, n in endings.most_common()], _NAMED)
        notes.append(f"left out {len(left_out):,} files of other kinds ({kinds})")
    return notes


_PLAIN = ("VARCHAR", "UBIGINT", "BIGINT", "DOUBLE", "BOOLEAN")
_MIXED = "JSON"


def as_parquet(
    path: str, columns: CorpusSettings, to: Path, progress: Progress, renamed: Mapping[str, str] = MappingProxyType({})
) -> Source:
    """Writes the rows of a file of CSV or lines of JSON, here or on S3, as Parquet; returns it under the file's own name.

    Of CSV every column is text. Of lines of JSON a column has the type that all its values have, whole numbers, fractions,
    truth values, text, or lists of one of them; of what is mixed or nested it has text, and JSON where a value is none. What
    looks like a date stays text: DuckDB's own reading would take an id 2024-01-31 for a day. `renamed` has column of the file
    -> its name in the Parquet file.

    Raises:
        RetrieverError: The file cannot be read, or one of the columns that are indexed has an unsuitable type.
    """
    done = 0
    with reading(path), bounded_duckdb(_MEMORY, 1, ordered=True) as connection:
        table = open_table(path)
        if table is None or not isinstance(table, TextTable):
            raise TableFault("no documents in it; give another")
        try:
            batches: Iterable[pa.RecordBatch]
            if table.head:
                total, rows = _json_rows(connection, path, columns)
                schema, batches = rows.schema, rows
            else:
                _check_distinct(table.names)
                total, schema = 0, pa.schema([(name, pa.string()) for name in table.names])
                batches = table.batches(table.names, _ROWS)
            names = [renamed.get(name, name) for name in schema.names]
            with pq.ParquetWriter(to, pa.schema(zip(names, schema.types, strict=True))) as writer:
                for batch in batches:
                    progress("convert", done, max(total, done))
                    writer.write_batch(batch.cast(schema).rename_columns(names))
                    done += len(batch)
        except (duckdb.Error, pa.ArrowException):
            deque(table.records(table.names), 0)  # says in which line
            raise
    return Source(path, partial(open_file, str(to)))


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raises RetrieverError, which names the file, where the body cannot read it."""
    try:
        yield
    except TableFault as fault:
        raise RetrieverError("corpus", f"corpus {path}{fault.at}: {fault.message}") from None
    except UnavailableError:
        raise
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        problem = f"cannot be read: {reason(error)}; correct it, or export it again"
        raise RetrieverError("corpus", f"corpus {path}: {problem}") from None


def _check_distinct(names: Sequence[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise TableFault(f"two columns are called {twice[0]!r}; rename one")


def _json_rows(connection: duckdb.DuckDBPyConnection, path: str, columns: CorpusSettings) -> tuple[int, pa.RecordBatchReader]:
    """Returns the number of rows of a file, and the rows, which are read when they are iterated over."""
    objects = f"read_json_objects({file_literal(path)}, format = 'newline_delimited')"
    ((total, told),) = connection.execute(f"SELECT count(*), json_group_structure(json) FROM {objects}").fetchall()
    kinds = json.loads(str(told))
    if not isinstance(kinds, dict) or not kinds:
        raise TableFault("holds JSON that is no object with fields; write an object a line, as jq -c does")
    _check_distinct([name.lower() for name in kinds])  # DuckDB does not tell fields apart by case
    for column, name in columns.read_as.items():
        if name is not None and name in kinds and _type(kinds[name]) is None:
            _check_mixed(connection, path, name, whole_numbers=column == "doc_id")
    types = {name: _type(kind) for name, kind in kinds.items()}
    table = _table(path, {name: _MIXED if kind is None else kind for name, kind in types.items()})
    picked = (identifier(name) + ("->>'$'" if kind is None else "") + f" AS {identifier(name)}" for name, kind in types.items())
    return total, connection.sql(f"SELECT {', '.join(picked)} FROM {table}").to_arrow_reader(_ROWS)


def _type(kind: Any) -> str | None:
    """Returns the type of a column, as DuckDB has it, by what its values are found to be; None: it is mixed or nested."""
    if isinstance(kind, list):
        inside = _type(kind[0]) if kind else "VARCHAR"
        return None if inside is None or inside.endswith("[]") else f"{inside}[]"
    if kind == "NULL":
        return "VARCHAR"
    return kind if isinstance(kind, str) and kind in _PLAIN else None


def _check_mixed(connection: duckdb.DuckDBPyConnection, path: str, name: str, *, whole_numbers: bool) -> None:
    """Checks that a column that is mixed or nested, and will be text, has text and perhaps whole numbers."""
    query = f"SELECT DISTINCT json_type({identifier(name)}) FROM {_table(path, {name: _MIXED})}"
    rows = connection.execute(query).fetchall()
    odd = {kind for (kind,) in rows if kind} - {"VARCHAR", "NULL"} - ({"UBIGINT", "BIGINT"} if whole_numbers else set())
    if odd:
        wanted, kinds = "string or integer" if whole_numbers else "string", ", ".join(sorted(odd)).lower()
        raise TableFault(f"column {name!r} must be {wanted}, found {kinds} in some rows; convert it")


def _table(path: str, types: Mapping[str, str]) -> str:
    read = ", ".join(f"{text_literal(name)}: '{kind}'" for name, kind in types.items())
    return f"read_json({file_literal(path)}, format = 'newline_delimited', records = true, columns = {{{read}}})"
