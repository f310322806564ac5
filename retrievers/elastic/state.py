"""The state of an index that other programs write to: what a search finds in it now."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

from cluster.errors import RetrieverError
from retrievers.elastic.connection import Connection
from retrievers.elastic.failures import RequestRefused
from retrievers.elastic.index import ElasticIndex, content_hash
from retrievers.elastic.query import filtered

_MOST_RULES = 10_000  # of one answer


def closed_to_writing(index: ElasticIndex) -> bool:
    """Returns whether the server refuses to write to an index."""
    return (index.settings.get("blocks") or {}).get("write") == "true"


def index_state(connection: Connection, index: ElasticIndex, only: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the state of an index for searches with a filter: while it is the same, so is what they find.

    None: it was built here and is closed to writing.

    Every write gives its document the next sequence number of its shard, so among the documents that a search finds a new or
    changed one raises the sum of these numbers, and a removed one lowers their count. They are those of the documents that are
    searched, so a write that is not refreshed yet does not count. A server that does not tell them is given a state of its own
    each time, so nothing is taken for unchanged. A set of synonyms that is put again under its name writes no document; so the
    sets of the index's analysis belong to its state.
    """
    if index.note is not None and closed_to_writing(index):
        return None
    written = {"written": {"stats": {"field": "_seq_no"}}}
    body = {"size": 0, "query": filtered({"match_all": {}}, only), "aggs": written}
    try:
        found = connection.search(index.name, body, patience=connection.opening_patience)["aggregations"]["written"]
        sets = _synonym_sets(connection, index)
    except (RequestRefused, KeyError, TypeError):
        return {"unknown": uuid.uuid4().hex}
    return {"documents": found["count"], "last": found["max"], "sum": found["sum"]} | ({"synonyms": sets} if sets else {})


def _synonym_sets(connection: Connection, index: ElasticIndex) -> dict[str, str]:
    """Returns a hash of the rules of each synonym set that the index's analysis names."""
    filters = ((index.settings.get("analysis") or {}).get("filter") or {}).values()
    found: dict[str, str] = {}
    for name in sorted({one["synonyms_set"] for one in filters if "synonyms_set" in one}):
        path, params = f"/_synonyms/{quote(name, safe='')}", {"size": str(_MOST_RULES)}
        try:
            answer = connection.request("GET", path, params=params, patience=connection.opening_patience)
        except RetrieverError as error:
            if error.code != "server-access":
                raise
            raise KeyError(name) from None
        rules = answer["synonyms_set"]
        if answer["count"] != len(rules):
            raise KeyError(name)
        found[name] = content_hash(sorted([one["synonyms"], one["id"]] for one in rules))
    return found
