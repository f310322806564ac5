"""Checks a config's BM25 query with one search, before a run begins."""

from __future__ import annotations

from cluster.errors import RetrieverError
from retrievers.elastic.connection import Connection
from retrievers.elastic.failures import RequestRefused
from retrievers.elastic.index import ElasticIndex, field_of
from retrievers.elastic.query import bm25_query
from retrievers.elastic.settings import ElasticSettings

_TEXT = "two words"
_TYPES = ("text", "keyword")


def try_query(connection: Connection, index: ElasticIndex, settings: ElasticSettings) -> None:
    """Sends the query of `query.bm25_query` for two words and asks for no hits.

    Raises:
        RetrieverError: A field of `query.fields` is missing or holds no text; the server refuses the query.
    """
    where = f"{connection.where}: index {settings.index}"
    for field in settings.bm25_query.fields:
        mapped = field_of(index.fields, field)
        if mapped is None:
            has = ", ".join(sorted(index.fields))
            raise RetrieverError("index-other", f"{where} has no field {field!r}; it has: {has}; correct query.fields")
        if mapped.get("type", "object") not in _TYPES:
            kind = mapped.get("type", "object")
            raise RetrieverError(
                "index-other", f"{where} has {kind} in the field {field!r}, no text or keyword; correct query.fields"
            )
    body = {"query": bm25_query(_TEXT, settings.searched_field, settings.bm25_query), "size": 0, "track_total_hits": False}
    params = {"allow_partial_search_results": "false"}
    try:
        connection.request("POST", f"/{index.name}/_search", body, params=params, patience=connection.opening_patience)
    except RequestRefused as refused:
        raise RetrieverError(
            "elastic-refused", f"{where}: {connection.address} refuses the query: {refused.said}; correct query"
        ) from None
