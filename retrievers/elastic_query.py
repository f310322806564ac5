"""Texts and vectors as searches of Elasticsearch: what one item of a `_msearch` says.

Never ``query_string``: logs hold operators, quotes, brackets, and those would be obeyed. `match` takes any text as words.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from retrievers.analyzer import words

MOST_HITS = 10_000
"""What Elasticsearch gives at most (index.max_result_window, and the limit of num_candidates)."""

SLACK = 8
"""Hits asked for beyond the depth where the server does not order equal scores by doc_id: those at the cut are chosen here."""

QUERY: dict[str, Any] = {"fields": {}, "type": "best_fields", "minimum_should_match": None, "max_terms": 100}
"""The config's ``query`` with its defaults."""

_COPIES = 16


def header(text: str) -> dict[str, Any]:
    """The line before a search: the same text goes to the same copy of a shard, different texts to different ones, so that
    results repeat and replicas share the work; a search that not every shard answers is an error."""
    key = zlib.crc32(text.encode("utf-8", "replace")) % _COPIES
    return {"preference": f"dmqr-{key}", "allow_partial_search_results": False}


def envelope(depth: int, ordered: bool) -> dict[str, Any]:
    """What every search asks to be given: doc_ids and scores, nothing else.

    ordered: the index has the field doc_id, so the server itself puts equal scores in order, those at the cut included.
    """
    asked: dict[str, Any] = {"size": depth, "_source": False, "track_total_hits": False}
    if ordered:
        return asked | {"stored_fields": "_none_", "sort": [{"_score": "desc"}, {"doc_id": "asc"}]}
    return asked


def bm25_query(text: str, field: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """A text as a query over ``field``, or over ``query.fields`` (field -> boost).

    A text of more than ``max_terms`` different words is searched with its most telling ones only (those of the highest
    tf-idf, chosen by each shard): what a search costs grows with its words, and a pseudo-answer has hundreds. Fields are
    then searched each for itself, so cross_fields is as most_fields.
    """
    fields = dict(query["fields"]) or {field: 1.0}
    least = query["minimum_should_match"]
    if len(set(words(text))) > query["max_terms"]:
        telling = [_telling(text, name, boost, query["max_terms"], least) for name, boost in fields.items()]
        if len(telling) == 1:
            return telling[0]
        return {"dis_max": {"queries": telling}} if query["type"] == "best_fields" else {"bool": {"should": telling}}
    asked: dict[str, Any] = {"query": text}
    if least is not None:
        asked["minimum_should_match"] = least
    if not query["fields"]:
        return {"match": {field: asked}}
    return {"multi_match": asked | {"fields": [f"{name}^{boost:g}" for name, boost in fields.items()], "type": query["type"]}}


def _telling(text: str, field: str, boost: float, terms: int, least: Any) -> dict[str, Any]:
    return {
        "more_like_this": {
            "fields": [field],
            "like": text,
            "min_term_freq": 1,
            "min_doc_freq": 1,
            "max_query_terms": terms,
            "minimum_should_match": 1 if least is None else least,
            "boost": boost,
        }
    }


def knn_query(field: str, vector: np.ndarray, depth: int, candidates: int | None, oversample: float | None) -> dict[str, Any]:
    """The ``depth`` nearest vectors; ``candidates`` are looked at per shard (None: three times the depth, 100 at least)."""
    looked = max(depth, candidates or max(100, 3 * depth))
    asked: dict[str, Any] = {"field": field, "query_vector": vector, "k": depth, "num_candidates": min(MOST_HITS, looked)}
    if oversample is not None:
        asked["rescore_vector"] = {"oversample": oversample}
    return asked


def cosines(scores: np.ndarray, similarity: str) -> np.ndarray:
    """Elasticsearch's scores of vectors of length 1 as their cosines, rounded to 6 decimals as local dense search does.

    Raises:
        ValueError: a similarity that is none of Elasticsearch's four.
    """
    if similarity in ("dot_product", "cosine"):  # (1 + x) / 2
        values = 2 * scores - 1
    elif similarity == "max_inner_product":  # x + 1, or 1 / (1 - x) below 0
        values = np.where(scores >= 1, scores - 1, 1 - 1 / np.maximum(scores, 1e-12))
    elif similarity == "l2_norm":  # 1 / (1 + distance squared)
        values = 1 - (1 / np.maximum(scores, 1e-12) - 1) / 2
    else:
        raise ValueError(f"similarity {similarity!r}")
    rounded: np.ndarray = np.round(values, 6) + 0.0
    return rounded
