"""Pages of the web as a run's searches found them (`web/`): what is said of a page differs from search to search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import duckdb

from jobs.job.steps import WEB_SEARCH
from jobs.runs.arms import arm_values
from jobs.runs.folder import RunFolder
from jobs.runs.rewrites import searched_rewrites
from jobs.tables import ITERATE, ORIGINAL
from retrievers.fusion import takes_part
from retrievers.settings import FuseSettings
from retrievers.web.hits import cut, indexed_text, page_id
from retrievers.web.providers import PROVIDERS

_PAGES = """
SELECT query_id, doc_id, url, title, text FROM rows_of($pages) WHERE doc_id IN (SELECT unnest($ids))
QUALIFY row_number() OVER (PARTITION BY doc_id ORDER BY query_id, rank, searched) = 1 ORDER BY query_id, rank, searched
"""
_ROWS = """
SELECT query_id, doc_id, url, title, text, retriever, searched, rank FROM rows_of($pages)
WHERE query_id IN (SELECT unnest($ids)) ORDER BY query_id, doc_id, rank
"""
_OriginOrder = tuple[int, str, int]
_OF_QUERY, _OF_REWRITE, _OF_ROUND, _UNKNOWN = range(4)  # whose text a page was found by, in the order of a query's lists


class FoundPage(NamedTuple):
    """A page, as a search of a query found it; `text` is with its title, as documents are indexed."""

    query_id: str
    doc_id: str
    url: str
    text: str


def pages_by_id(connection: duckdb.DuckDBPyConnection, run: RunFolder, doc_ids: Sequence[str]) -> dict[str, FoundPage]:
    """Returns doc_id -> the page as the first search of the first query has it, of those that are pages."""
    if "web" not in run.tables or not doc_ids:
        return {}
    rows = connection.execute(_PAGES, {"pages": run.tables["web"], "ids": list(doc_ids)}).fetchall()
    return {
        doc_id: FoundPage(query_id, doc_id, url or "", indexed_text(title or "", text or ""))
        for query_id, doc_id, url, title, text in rows
    }


def pages_of_queries(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: Sequence[str], arm: str
) -> dict[tuple[str, str], FoundPage]:
    """Returns (query_id, doc_id) -> the page as an LLM was shown it in the arm.

    A hit of the arm's query to the web has the text of that search. A result has that of the first of the arm's lists that has
    it: the original's, then by strategy, position and retriever, then those of further rounds; so has a graded result that the
    query to the web has found, too.
    """
    if "web" not in run.tables or not query_ids:
        return {}
    place_of, found = _Origins(connection, run, query_ids, arm), dict[tuple[str, str], FoundPage]()
    asked = _of_arm(connection, run, "corrections", "query_id, coalesce(web_query, '')", query_ids, arm)
    corrected = {query_id: " ".join(text.split()) for query_id, text in asked}
    graded = {(one, page_id(doc_id)) for one, doc_id in _of_arm(connection, run, "grades", "query_id, doc_id", query_ids, arm)}
    best: dict[tuple[str, str], tuple[Any, ...]] = {}
    rows = connection.execute(_ROWS, {"pages": run.tables["web"], "ids": list(query_ids)}).fetchall()
    for query_id, doc_id, url, title, text, retriever, searched, rank in rows:
        key = query_id, doc_id
        if retriever == WEB_SEARCH:
            if key in graded or not corrected.get(query_id, "").startswith(searched):  # it may be cut
                continue
            place: tuple[Any, ...] = (-1,)
        elif rank > place_of.depth:
            continue
        else:
            place = *place_of(query_id, retriever, searched), retriever, rank
        if key not in best or place < best[key]:
            best[key] = place
            found[key] = FoundPage(query_id, doc_id, url or "", indexed_text(title or "", text or ""))
    return found


class _Origins:
    """By which text of a query a search was made, from what was sent."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: Sequence[str], arm: str) -> None:
        self._places: dict[tuple[str, str, str], _OriginOrder] = {}
        values = arm_values(run, arm)
        fuse, named = FuseSettings.model_validate(values["fuse"]), values["retrieve"]["retrievers"]
        self.depth = fuse.depth
        texts = list(self._texts(connection, run, query_ids, arm))
        for name, provider in ((name, PROVIDERS[one["provider"]]) for name, one in named.items() if one["kind"] == "web"):
            for query_id, strategy, weight, place, text in texts:
                if strategy in (ORIGINAL, ITERATE) or takes_part(fuse, strategy, name, weight, 1.0):
                    sent = cut(text, provider.characters, provider.words)
                    self._places.setdefault((query_id, name, sent), place)

    def __call__(self, query_id: str, retriever: str, searched: str) -> _OriginOrder:
        """Returns the place of a search among those of its query."""
        return self._places.get((query_id, retriever, searched), (_UNKNOWN, "", 0))

    def _texts(
        self, connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: Sequence[str], arm: str
    ) -> Iterator[tuple[str, str, float, _OriginOrder, str]]:
        """Yields query_id, strategy, weight, place and text of each text, in their order."""
        given = {"queries": run.tables["queries"], "ids": list(query_ids)}
        sql = "SELECT query_id, query FROM rows_of($queries) WHERE query_id IN (SELECT unnest($ids))"
        for query_id, query in connection.execute(sql, given).fetchall():
            yield query_id, ORIGINAL, 1.0, (_OF_QUERY, "", 0), query
        for one in searched_rewrites(connection, run, query_ids, arm):
            yield one.query_id, one.strategy, one.weight, (_OF_REWRITE, one.strategy, one.position), one.text
        for query_id, number, text in _of_arm(connection, run, "rounds", "query_id, round, text", query_ids, arm):
            yield query_id, ITERATE, 1.0, (_OF_ROUND, "", number), text


def _of_arm(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, table: str, columns: str, query_ids: Sequence[str], arm: str
) -> list[tuple[Any, ...]]:
    """Returns the rows that an arm has in a table."""
    if table not in run.tables:
        return []
    sql = f"SELECT {columns} FROM rows_of($files) WHERE arm = $arm AND query_id IN (SELECT unnest($ids)) ORDER BY ALL"
    rows: list[tuple[Any, ...]] = connection.execute(
        sql, {"files": run.tables[table], "arm": arm, "ids": list(query_ids)}
    ).fetchall()
    return rows
