"""The state of an index that other programs write to: what a search finds in it now."""

from __future__ import annotations

import uuid
from typing import Any

from retrievers.elastic.connection import Connection
from retrievers.elastic.failures import RequestRefused
from retrievers.elastic.index import ElasticIndex
from retrievers.elastic.query import filtered


def closed_to_writing(index: ElasticIndex) -> bool:
    """Returns whether the server refuses to write to an index."""
    return (index.settings.get("blocks") or {}).get("write") == "true"


def index_state(connection: Connection, index: ElasticIndex, only: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the state of an index, as JSON values; while they are the same, so are its documents.

    `only` is the filter of its searches; None: none.

    None: it was built here and is closed to writing.

    Every write gives its document the next sequence number of its shard, so among the documents that a search finds a new or
    changed one raises the sum of these numbers, and a removed one lowers their count. They are those of the documents that are
    searched, so a write that is not refreshed yet does not count. A server that does not tell them is given a state of its own
    each time, so nothing is taken for unchanged.
    """
    if index.note is not None and closed_to_writing(index):
        return None
    body = {
        "size": 0,
        "track_total_hits": False,
        "query": filtered({"match_all": {}}, only),
        "aggs": {"written": {"stats": {"field": "_seq_no"}}},
    }
    params = {"allow_partial_search_results": "false"}
    path = f"/{index.name}/_search"
    try:
        answer = connection.request("POST", path, body, params=params, patience=connection.opening_patience).body
        found = answer["aggregations"]["written"]
    except (RequestRefused, KeyError, TypeError):
        return {"unknown": uuid.uuid4().hex}
    return {"documents": found["count"], "last": found["max"], "sum": found["sum"]}
