"""Data sets by an id of `ir_datasets`, which fetches what it lacks and keeps it in its own folder ($IR_DATASETS_HOME)."""

import hashlib
import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal, get_args, get_type_hints

import pyarrow as pa

from cluster.cause import one_line
from cluster.errors import ConfigError, DmqrError, nearest
from jobs.log.sets.names import as_text, table_of

Part = Literal["docs", "queries", "qrels"]
_ROWS = 8192  # of documents, at a time


def data_set(dataset_id: str, part: Part, where: str) -> Any:
    """Returns a data set of `ir_datasets` that has a part; nothing is fetched yet. `where` begins messages."""
    name = f"{where}: irds:{dataset_id}"
    try:
        import ir_datasets
    except ImportError as error:
        raise ConfigError(
            "test-collection", f"{name}: wants the package ir_datasets; install it: pip install 'dmqr[irds]'"
        ) from error
    try:
        loaded = ir_datasets.load(dataset_id)
    except KeyError as error:
        known = nearest(dataset_id, list(ir_datasets.registry))
        raise ConfigError("test-collection", f"{name}: ir_datasets has no such id{known}") from error
    if not loaded.has(part):
        has = ", ".join(each for each in get_args(Part) if loaded.has(each)) or "nothing that is read here"
        message = f"has no {part} (it has {has}); name another, often the id with /train, /dev or /test, or without"
        raise ConfigError("test-collection", f"{name}: {message}")
    return loaded


@contextmanager
def _fetching(dataset_id: str, where: str) -> Iterator[None]:
    """Says in one line why a data set cannot be read: a download failed, or its terms are not accepted yet."""
    try:
        yield
    except DmqrError:
        raise
    except Exception as error:  # ir_datasets passes on what its libraries raise, and has errors of its own
        message = f"cannot be read: {type(error).__name__}: {one_line(error)}"
        remedy = "look whether its server can be reached, or put its files where `ir_datasets` says (IR_DATASETS_HOME)"
        raise ConfigError("test-collection", f"{where}: irds:{dataset_id}: {message}; {remedy}") from error


def queries(dataset_id: str, where: str) -> pa.Table:
    """Returns the queries: `query_id`, `text` (what the set takes for it, such as a title), and the other fields as text."""
    loaded = data_set(dataset_id, "queries", where)
    with _fetching(dataset_id, where):
        return table_of([_query(query) for query in loaded.queries_iter()])


def _query(query: Any) -> dict[str, str | None]:
    row = {name: as_text(value) for name, value in zip(query._fields, query, strict=True) if not isinstance(value, bytes)}
    text = query.default_text() if hasattr(query, "default_text") else row.get("text")
    return row | {"query_id": str(query.query_id), "text": text}


def content_hash(table: pa.Table) -> str:
    """Returns a hash of the rows of a table, whose columns are text."""
    digest = hashlib.sha256(repr(table.column_names).encode())
    for batch in table.to_batches():
        digest.update(repr(batch.to_pylist()).encode("utf-8", "surrogatepass"))
    return f"sha256:{digest.hexdigest()[:32]}"


def judgements(dataset_id: str, where: str) -> Iterator[tuple[str, str, int]]:
    """Yields query_id, doc_id and grade; arguments and errors are those of `queries`."""
    loaded = data_set(dataset_id, "qrels", where)
    with _fetching(dataset_id, where):
        for judgement in loaded.qrels_iter():
            yield str(judgement.query_id), str(judgement.doc_id), int(judgement.relevance)


def documents(dataset_id: str, where: str, progress: Callable[[int, int], None]) -> Iterator[pa.RecordBatch]:
    """Yields the documents in batches of text, one at least, without fields that hold bytes.

    `progress` hears of documents read, and of all where the set knows their number, else of those read.
    """
    loaded = data_set(dataset_id, "docs", where)
    kind, done = loaded.docs_cls(), 0
    hints = get_type_hints(kind)
    names = [name for name in kind._fields if hints.get(name) is not bytes]
    with _fetching(dataset_id, where):
        total, rows = loaded.docs_count() if hasattr(loaded, "docs_count") else 0, iter(loaded.docs_iter())
        while (some := list(islice(rows, _ROWS))) or not done:
            columns = [pa.array([as_text(getattr(row, name)) for row in some], pa.string()) for name in names]
            yield pa.record_batch(columns, names)
            if not some:
                return
            done += len(some)
            progress(done, max(done, total or 0))


def documents_version(dataset_id: str, where: str) -> str:
    """Returns the version of the documents of an id: that of the package, which has hashes."""
    handler = data_set(dataset_id, "docs", where).docs_handler()
    return f"ir_datasets {importlib.metadata.version('ir_datasets')} {type(handler).__name__}"
