"""Pages of the web as a run's searches found them (`web/`): what is said of a page differs from search to search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from jobs.runs.folder import RunFolder
from retrievers.web.hits import indexed_text

_PAGES = """
SELECT pages.query_id, doc_id, url, title, text FROM read_parquet($pages) AS pages {corrected}
WHERE {wanted} IN (SELECT unnest($ids))
QUALIFY row_number() OVER (PARTITION BY {each} ORDER BY {order}) = 1 ORDER BY {order}
"""
_ORDER = "pages.query_id, rank, searched"
_CORRECTED = """
LEFT JOIN (SELECT query_id, web_query FROM read_parquet($corrections) WHERE arm = $arm) AS corrected
ON corrected.query_id = pages.query_id AND retriever = 'web.search' AND searched = web_query
"""


class FoundPage(NamedTuple):
    """A page, as a search of a query found it; `text` is with its title, as documents are indexed."""

    query_id: str
    doc_id: str
    url: str
    text: str


def pages_by_id(connection: duckdb.DuckDBPyConnection, run: RunFolder, doc_ids: Sequence[str]) -> dict[str, FoundPage]:
    """Returns doc_id -> the page as the first search of the first query has it, of those that are pages."""
    return {one.doc_id: one for one in _read(connection, run, doc_ids, "doc_id", "doc_id")}


def pages_of_queries(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: Sequence[str], arm: str
) -> dict[tuple[str, str], FoundPage]:
    """Returns (query_id, doc_id) -> the page as the arm's query to the web has it, else as the query's own searches have it."""
    found = _read(connection, run, query_ids, "pages.query_id", "pages.query_id, doc_id", arm)
    return {(one.query_id, one.doc_id): one for one in found}


def page_texts(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: Sequence[str]
) -> dict[tuple[str, str], list[str]]:
    """Returns (query_id, doc_id) -> the different texts that searches of the query have of a page, the first ranks first."""
    texts: dict[tuple[str, str], list[str]] = {}
    for one in _read(connection, run, query_ids, "pages.query_id", "pages.query_id, doc_id, title, text"):
        texts.setdefault((one.query_id, one.doc_id), []).append(one.text)
    return texts


def _read(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, ids: Sequence[str], wanted: str, each: str, arm: str | None = None
) -> list[FoundPage]:
    """Returns pages in order; of each thing the first one, those of the arm's query to the web before others."""
    tables = run.tables
    if "web" not in tables or not ids:
        return []
    corrected = arm is not None and "corrections" in tables
    order = f"web_query IS NULL, {_ORDER}" if corrected else _ORDER
    query = _PAGES.format(corrected=_CORRECTED if corrected else "", wanted=wanted, each=each, order=order)
    of_arm = {"corrections": tables["corrections"], "arm": arm} if corrected else {}
    rows = connection.execute(query, {"pages": tables["web"], "ids": list(ids)} | of_arm).fetchall()
    return [
        FoundPage(query_id, doc_id, url or "", indexed_text(title or "", text or ""))
        for query_id, doc_id, url, title, text in rows
    ]
