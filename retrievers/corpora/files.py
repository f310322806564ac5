"""The files of a corpus and their columns, checked before anything is read.

Columns: `doc_id` (string or integer) and `text`, under these names or those of `CorpusSettings`; `title` is optional;
others are kept unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.settings import CorpusSettings

COLUMNS = CorpusSettings()
Progress = Callable[[str, int, int], None]  # hears the phase, the amount done and the total


class Source(NamedTuple):
    """A Parquet file of a corpus on another machine or in object storage."""

    name: str
    open: Callable[[], BinaryIO]

    def __str__(self) -> str:
        return self.name


Paths = str | Path | Source | Sequence[str | Path | Source]  # a corpus: a Parquet file, or a list of them


def is_corpus_file(name: str) -> bool:
    """Returns True if a file of a folder is one of a corpus's Parquet files, by its path."""
    return name.lower().endswith((".parquet", ".pq")) and not name.rpartition("/")[2].startswith((".", "_"))


def corpus_files(paths: Paths) -> list[Path | Source]:
    """Returns the Parquet files of a corpus, which nobody has opened yet."""
    several = [paths] if isinstance(paths, str | Path | Source) else paths
    return [file if isinstance(file, Source) else Path(file) for file in several]


def open_source(file: Path | Source) -> Path | BinaryIO:
    """Returns a file of the corpus as pyarrow reads it."""
    return file.open() if isinstance(file, Source) else file


@contextmanager
def reading(file: Path | Source) -> Iterator[None]:
    """Raises RetrieverError, which names the file, where the body cannot read it as Parquet."""
    try:
        yield
    except ConnectionError:  # of a Source: the corpus itself may be intact
        raise
    except (pa.ArrowException, OSError) as e:
        remedy = "copy it again"
        if not str(file).lower().endswith((".parquet", ".pq")):
            remedy = "let its name end as its form does: .parquet, .jsonl, .csv, or that of a document"
        raise RetrieverError("corpus", f"corpus {file}: cannot be read as Parquet: {one_line(e)}; {remedy}") from None


def corpus_schema(files: Sequence[Path | Source], columns: CorpusSettings = COLUMNS) -> pa.Schema:
    """Returns the schema of the corpus (doc_id, title, text, then the others), after a check of every file."""
    others: list[pa.Schema] = []
    for file in files:
        with reading(file):
            schema = pq.read_schema(open_source(file))
        for column, name in columns.read_as.items():
            if name is None or (name == "title" == column and name not in schema.names):
                continue
            if name not in schema.names:
                key = f"corpus.{column.removeprefix('doc_')}_column"
                present = ", ".join(schema.names) or "none"
                problem = f"no column {name!r}; it has: {present}; name one of them in the config: {key}"
                raise RetrieverError("corpus", f"corpus {file}: {problem}")
            kind = schema.field(name).type
            integers = column == "doc_id" and pa.types.is_integer(kind)
            if not (integers or _value_type(kind) in (pa.string(), pa.large_string(), pa.null())):
                allowed = "string or integer" if column == "doc_id" else "string"
                raise RetrieverError("corpus", f"corpus {file}: column {name!r} must be {allowed}, found {kind}; convert it")
        rest = [f for f in schema if f.name not in {*columns.read_as, *columns.read_as.values()}]
        others.append(pa.schema([pa.field(f.name, _value_type(f.type)) for f in rest]))
    try:
        rest_schema = pa.unify_schemas(others, promote_options="permissive")
    except pa.ArrowException as e:
        problem = f"differ in a column's type: {one_line(e)}; convert them"
        raise RetrieverError("corpus", f"corpus {shown(files)}: {problem}") from None
    return pa.schema([(name, pa.string()) for name in ("doc_id", "title", "text")] + list(rest_schema))


def shown(files: Sequence[Path | Source]) -> str:
    """Returns the names of the first files of a corpus, for messages."""
    return ", ".join(map(str, files[:3]))


def _value_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a dictionary's values, so that record batches need no shared dictionaries; else the type itself."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.string() if pa.types.is_string_view(kind) else kind
