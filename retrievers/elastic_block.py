"""A config block of ``kind: elastic`` with its defaults, for whoever builds or opens what it describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retrievers.elastic_access import KEYS
from retrievers.elastic_query import QUERY
from retrievers.retriever import RetrieverError, unknown

ANALYZER = "english"
TEXT_FIELD, VECTOR_FIELD = "text", "vector"
VECTOR: dict[str, Any] = {"type": "int8_hnsw", "m": 16, "ef_construction": 100}
VECTOR_TYPES = ("flat", "int8_flat", "int4_flat", "bbq_flat", "hnsw", "int8_hnsw", "int4_hnsw", "bbq_hnsw")
SIMILARITY: dict[str, float] = {"k1": 1.2, "b": 0.75}
_COARSE = ("int4_flat", "bbq_flat", "int4_hnsw", "bbq_hnsw")
_OVERSAMPLE = 3.0  # of the coarse types, where nothing is said: Elasticsearch's own for bbq

_DEFAULTS: dict[str, Any] = KEYS | {
    "shards": 1,
    "replicas": 1,
    "max_in_flight": 8,
    "in_flight": None,
    "batch": 64,
    "num_candidates": None,
    "oversample": None,
}
_BM25_ONLY = ("analyzer", "query", "similarity")
_DENSE_ONLY = ("encoder", "vector", "num_candidates", "oversample")


def elastic_block(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The block with every key in it: those of BM25, or with ``encoder`` those of dense search.

    Raises:
        RetrieverError: an unknown key; no index; keys of both kinds.
    """
    where = f"retrieve.retrievers.{name}"
    given = {key: value for key, value in settings.items() if value is not None}
    allowed = {"kind", "index", "field", *_DEFAULTS, *_BM25_ONLY, *_DENSE_ONLY}
    for key in given:
        if key not in allowed:
            raise RetrieverError(f"{where}: {unknown('key', key, sorted(allowed))}")
    if not given.get("index"):
        raise RetrieverError(f"{where}: no index is named; give it a name")
    dense = "encoder" in given
    for key in _BM25_ONLY if dense else _DENSE_ONLY:
        if key in given:
            kinds = "of BM25, and encoder makes it dense" if dense else "of dense search, and there is no encoder"
            raise RetrieverError(f"{where}.{key}: is a key {kinds}; make two retrievers of it, they may share one index")
    block = _DEFAULTS | given
    if not dense:
        query = QUERY | {key: value for key, value in (given.get("query") or {}).items() if value is not None}
        return (
            {"field": TEXT_FIELD, "analyzer": ANALYZER}
            | block
            | {"query": query, "similarity": SIMILARITY | (given.get("similarity") or {})}
        )
    vector = VECTOR | {key: value for key, value in (given.get("vector") or {}).items() if value is not None}
    if vector["type"] not in VECTOR_TYPES:
        raise RetrieverError(f"{where}.vector.type: {unknown('type', vector['type'], VECTOR_TYPES)}")
    if vector["type"].endswith("flat"):  # has no graph
        vector = {"type": vector["type"]}
    if block["oversample"] is None and vector["type"] in _COARSE:
        block["oversample"] = _OVERSAMPLE
    return {"field": VECTOR_FIELD} | block | {"vector": vector}


def is_dense(block: Mapping[str, Any]) -> bool:
    """Whether a block searches with vectors."""
    return block.get("encoder") is not None
