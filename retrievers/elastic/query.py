"""Builds the searches of `_msearch`: a header and a body for each text or vector.

Never `query_string`: it interprets operators, quotes and brackets, which logs contain. `match` takes any text as words.
"""

import re
import textwrap
import zlib
from collections import Counter
from typing import Any

import numpy as np

from retrievers.analysis.words import split_words
from retrievers.elastic.settings import MOST_HITS, QuerySettings
from retrievers.join import joined_text, repetitions
from retrievers.retriever import JoinedText

SLACK = 8  # hits requested beyond the depth where the server does not order equal scores by doc_id; the client orders and cuts

MAX_TERMS = 100  # texts with more different words are searched with this many of the most telling ones

FORM = {"type": "best_fields", "max_terms": MAX_TERMS, "minimum_should_match": None}  # of a query's identity what no key sets

MOST_CLAUSES = 1024  # terms of a query that every server allows; more with more memory (indices.query.bool.max_clause_count)

_COPIES = 16
_PARSED = 5000  # tokens of a text that more_like_this reads, and thus characters that it reads for sure; of several texts each
_TERM = re.compile(r"[^\W\u1100-\U0010ffff]+|\w")


def filtered(query: dict[str, Any], only: dict[str, Any] | None) -> dict[str, Any]:
    """Returns a query of the documents that a filter leaves; scores stay as they are."""
    return query if only is None else {"bool": {"must": [query], "filter": [only]}}


def search_lines(text: str, search: dict[str, Any], depth: int, ordered: bool) -> bytes:
    """Returns the header and the body of a search that gives doc_ids and scores of `depth` hits and nothing else.

    The `preference` depends on the text: the same text goes to the same copy of a shard, so results repeat, and different texts
    use all replicas. A search that not every shard answers is an error. Where `ordered`, the index has the field doc_id, so the
    server orders equal scores, also at the cut.
    """
    import orjson

    copy = zlib.crc32(text.encode("utf-8", "replace")) % _COPIES
    header = {"preference": f"dmqr-{copy}", "allow_partial_search_results": False}
    search |= {"size": depth, "_source": False, "track_total_hits": False}
    if ordered:
        search |= {"stored_fields": "_none_", "sort": [{"_score": "desc"}, {"doc_id": "asc"}]}
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(header, option=option) + orjson.dumps(search, option=option)


def bm25_query(text: str | JoinedText, field: str, query: QuerySettings) -> dict[str, Any]:
    """Returns a BM25 query over `field`, or over `query.fields` (field -> boost).

    A text of more than `MAX_TERMS` different words, or more than `MOST_CLAUSES` in all, is searched with its words of highest
    tf-idf only, each once, selected by each shard: a search's cost grows with its words, and a pseudo-answer has hundreds.

    Of a query's texts searched as one each different word is a clause, boosted by how often it occurs: the score of the
    repeated text. Every text may bring `MAX_TERMS` words, together `MOST_CLAUSES` terms. Longer texts are searched as texts
    alone: the original, boosted by its repetitions, and the rewrites with their most telling words.
    """
    fields = dict(query.fields) or {field: 1.0}
    if isinstance(text, JoinedText):
        counts = Counter(joined_text(text).split())
        if len(counts) <= MAX_TERMS * len(text.texts) and sum(map(_most_terms, counts)) <= MOST_CLAUSES:
            clauses = [
                [{"match": {name: {"query": word, "boost": count * boost}}} for word, count in counts.items()]
                for name, boost in fields.items()
            ]
            return _best([{"bool": {"should": of_field, "minimum_should_match": 1}} for of_field in clauses])
        rewrites = bm25_query(" ".join(rewrite.text for rewrite in text.rewrites), field, query)
        if text.original is None:
            return rewrites
        original = {"bool": {"must": bm25_query(text.original.text, field, query), "boost": repetitions(text)}}
        return {"bool": {"should": [original, rewrites]}}
    if len(set(split_words(text))) > MAX_TERMS or sum(map(_most_terms, text.split())) > MOST_CLAUSES:
        return _best([_top_terms(text, name, boost) for name, boost in fields.items()])
    if not query.fields:
        return {"match": {field: {"query": text}}}
    boosted = [f"{name}^{boost:g}" for name, boost in fields.items()]
    return {"multi_match": {"query": text, "fields": boosted, "type": FORM["type"]}}


def _most_terms(word: str) -> int:
    """Returns the most terms that the usual analysers make of a word: one for each character from U+1100 (CJK) on."""
    return max(1, len(_TERM.findall(word)))


def _best(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] if len(parts) == 1 else {"dis_max": {"queries": parts}}


def _top_terms(text: str, field: str, boost: float) -> dict[str, Any]:
    return {
        "more_like_this": {
            "fields": [field],
            "like": textwrap.wrap(text, _PARSED, break_on_hyphens=False),
            "min_term_freq": 1,
            "min_doc_freq": 1,
            "max_query_terms": MAX_TERMS,
            "minimum_should_match": 1,
            "boost": boost,
        }
    }


def knn_query(
    field: str, vector: np.ndarray, depth: int, oversample: float | None, only: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Returns a kNN query over `field`; three times the depth, at least 100, are compared per shard.

    `oversample` is that of quantised vectors; the filter `only` leaves its documents before the nearest are taken.
    """
    compared = max(100, 3 * depth)
    asked: dict[str, Any] = {"field": field, "query_vector": vector, "k": depth, "num_candidates": min(MOST_HITS, compared)}
    if oversample is not None:
        asked["rescore_vector"] = {"oversample": oversample}
    if only is not None:
        asked["filter"] = only
    return asked


def cosines(scores: np.ndarray, similarity: str) -> np.ndarray:
    """Returns cosines for Elasticsearch's scores of vectors of length 1, rounded to 6 decimals as in local dense search."""
    if similarity in ("dot_product", "cosine"):  # (1 + x) / 2
        values = 2 * scores - 1
    elif similarity == "max_inner_product":  # x + 1, or 1 / (1 - x) below 0
        values = np.where(scores >= 1, scores - 1, 1 - 1 / np.maximum(scores, 1e-12))
    elif similarity == "l2_norm":  # 1 / (1 + distance squared)
        values = 1 - (1 / np.maximum(scores, 1e-12) - 1) / 2
    else:
        raise ValueError(f"similarity {similarity!r}")
    return np.round(values, 6) + 0.0
