"""Whether the server does what a config asks of a BM25 query: found out before anything is done, by one search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retrievers.elastic_client import Connection, Refused
from retrievers.elastic_index import ElasticIndex, field_of
from retrievers.elastic_query import bm25_query
from retrievers.retriever import RetrieverError

_WORDS = "two words"
_TYPES = ("text", "keyword")


def try_query(connection: Connection, index: ElasticIndex, block: Mapping[str, Any]) -> None:
    """Search for two words as `elastic_query.bm25_query` would, for no hits.

    Raises:
        RetrieverError: a field of ``query.fields`` is not there or no text; the server refuses the query.
    """
    where = f"{connection.where}: index {block['index']}"
    for field in block["query"]["fields"]:
        mapped = field_of(index.fields, field)
        if mapped is None:
            has = ", ".join(sorted(index.fields))
            raise RetrieverError(f"{where} has no field {field!r}; it has: {has}; correct query.fields")
        if mapped.get("type", "object") not in _TYPES:
            kind = mapped.get("type", "object")
            raise RetrieverError(f"{where} has {kind} in the field {field!r}, no text or keyword; correct query.fields")
    body = {"query": bm25_query(_WORDS, block["field"], block["query"]), "size": 0, "track_total_hits": False}
    params = {"allow_partial_search_results": "false"}
    try:
        connection.ask("POST", f"/{index.name}/_search", body, params=params, patience=connection.opening)
    except Refused as refused:
        raise RetrieverError(f"{where}: {connection.shown} refuses the query: {refused.said}; correct query") from None
