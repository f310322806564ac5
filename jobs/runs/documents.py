"""Texts of documents: from the index of a run's first retriever, of pages from web/.

A page may have another text in each search that found it: that of the best rank is taken.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import duckdb
import pyarrow as pa

from cluster.cause import one_line
from cluster.errors import ClusterError, RetrieverError
from jobs.job.corpora import corpus_of, searched_indexes
from jobs.job.retrievers import is_replaced, open_documents
from jobs.job.steps import WEB_SEARCH
from jobs.runs.folder import RunFolder
from jobs.runs.tables import create_views, database, portions, queries_table
from jobs.terminal.formats import place_beside
from retrievers.web.hits import indexed_text, is_page

_PAGES = """
SELECT query_id, doc_id, url, title, text FROM rows_of($pages) WHERE {key} IN (SELECT unnest($ids))
QUALIFY row_number() OVER (PARTITION BY {key}, doc_id ORDER BY retriever = $corrective, rank, query_id, searched) = 1
"""
RESULTS = pa.schema(
    [("query", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string()), ("score", pa.float64()), ("text", pa.string())]
)
_RESULTS = "SELECT query, rank, doc_id, score FROM results JOIN queries USING (query_id) ORDER BY query, query_id, rank"
_PORTION = 1 << 16  # rows of results, whose documents are in memory
_BEGINNING = 300  # characters of a document in RESULTS


class FoundPage(NamedTuple):
    """A page, as a search of a query found it; `text` is with its title, as documents are indexed."""

    query_id: str
    doc_id: str
    url: str
    text: str


def pages(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, key: Literal["query_id", "doc_id"], ids: Sequence[str]
) -> list[FoundPage]:
    """Returns pages of web/ by query or id, each once; hits of lists come before those of corrective searches."""
    if "web" not in run.tables or not ids:
        return []
    given = {"pages": run.tables["web"], "ids": list(ids), "corrective": WEB_SEARCH}
    rows = connection.execute(_PAGES.format(key=key), given).fetchall()
    return [
        FoundPage(query, doc_id, url or "", indexed_text(title or "", text or "")) for query, doc_id, url, title, text in rows
    ]


def texts_of(run: RunFolder, doc_ids: Sequence[str], *, addresses: bool = False) -> tuple[dict[str, str], str | None]:
    """Returns doc_id -> text, and the reason if the texts cannot be read: the index is gone or replaced.

    With `addresses` a text begins with where it is from: the address of a page of the web, source and page of a document.
    """
    texts = _pages(run, doc_ids, addresses)
    others = [doc_id for doc_id in doc_ids if doc_id not in texts]
    name = run.config.retrieve.text_retriever
    if not others or not run.config.retrieve.retrievers[name].indexed(name):
        return texts, None
    try:
        documents = RunDocuments(run)
        places = documents.places(others) if addresses else {}
        heads = {one: f"{beside}: " for one, place in places.items() if (beside := place_beside(one, place))}
        return texts | {one: f"{heads.get(one, '')}{text}" for one, text in documents(others).items()}, None
    except (RetrieverError, ClusterError, OSError) as error:
        return texts, one_line(error, None)


def results_with_texts(run: RunFolder, missing: Callable[[str], object]) -> Iterator[pa.Table]:
    """Yields the results of a run, some shards at a time; `missing` hears why documents have no text, where it is so."""
    for portion in portions(run.manifests, "results", _PORTION):
        with database(run) as connection:
            create_views(connection, run, ["results"], portion)
            connection.register("queries", queries_table(run, (one.shard for one in portion), ["query_id", "query"]))
            rows = connection.sql(_RESULTS).to_arrow_table()
        doc_ids = rows.column("doc_id").to_pylist()
        texts, reason = texts_of(run, sorted({*doc_ids}))
        if reason:
            missing(reason)
        beginnings = [" ".join(texts.get(one, "").split())[:_BEGINNING] for one in doc_ids]
        yield rows.append_column("text", pa.array(beginnings, pa.string())).cast(RESULTS)


class RunDocuments:
    """The texts of a run's documents, from an index that is opened once."""

    def __init__(self, run: RunFolder) -> None:
        """Opens the index that has the texts. Raises RetrieverError, ClusterError or OSError if it is gone or replaced."""
        self._run, name = run, run.config.retrieve.text_retriever
        retriever, index = run.config.retrieve.retrievers[name], run.record["indexes"].get(name, {})
        self._documents = open_documents(name, retriever.at(index), cached_only=True)
        if is_replaced(self._documents, corpus_of(searched_indexes({name: retriever}, {name: index}))):
            what = f"the index of {name} ({retriever.location({})}) holds other documents now than those that were searched"
            raise RetrieverError("index-other", what)

    def __call__(self, doc_ids: Sequence[str]) -> dict[str, str]:
        """Returns doc_id -> text; raises RetrieverError where no index has such a document."""
        of_pages = _pages(self._run, doc_ids, addresses=False)
        others = [doc_id for doc_id in doc_ids if doc_id not in of_pages]
        texts = self._documents.texts(others) if others else []
        return of_pages | dict(zip(others, texts, strict=True))

    def places(self, doc_ids: Sequence[str]) -> dict[str, str]:
        """Returns doc_id -> source and page, "" without, of documents that an index has; raises as `__call__`."""
        return dict(zip(doc_ids, self._documents.places(doc_ids), strict=True))


def _pages(run: RunFolder, doc_ids: Sequence[str], addresses: bool) -> dict[str, str]:
    called = sorted({doc_id for doc_id in doc_ids if is_page(doc_id)})
    if not called or "web" not in run.tables:
        return {}
    with database(run) as connection:
        rows = pages(connection, run, "doc_id", called)
    return {one.doc_id: (f"{one.url} " if addresses else "") + one.text for one in rows}
