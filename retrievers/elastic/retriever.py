"""Retrievers of `kind: elastic`: BM25 or dense search through `_msearch`, documents' texts through `_search`.

An index built by `build` is closed to writing, so its results do not change. One built elsewhere can be searched, also while it
changes (`index_state`); its vectors are assumed to be those of the config's encoder. Lists are fused on the client: that of
Elasticsearch needs a licence, and stored lists can be shared.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster.errors import RetrieverError
from retrievers.elastic.connection import Connection, RequestRefused
from retrievers.elastic.documents import ElasticDocuments, text_field
from retrievers.elastic.index import ElasticIndex, connect, field_of, index_state
from retrievers.elastic.query import FORM, SLACK, bm25_query, cosines, filtered, knn_query, search_lines
from retrievers.elastic.search import MultiSearch
from retrievers.elastic.settings import ElasticSettings
from retrievers.encoder import RecentVectors, TextEncoder, checked_encoder, open_encoder
from retrievers.join import joined_text, search_vectors
from retrievers.ranking import distinct
from retrievers.retriever import (
    BUILD,
    Alive,
    RankedLists,
    Retriever,
    Search,
    SearchText,
    check_built,
    check_planned,
    lists_of,
    no_heartbeat,
)

BATCH = 64  # searches per request; of dense ones half as many


class _ElasticSearch:
    def __init__(
        self, connection: Connection, index: ElasticIndex, settings: ElasticSettings, identity: dict[str, Any], batch: int
    ) -> None:
        self._settings, self._identity, self._only = settings, identity, identity.get("filter")
        self._ordered, self._most_hits = index.note is not None, index.most_hits
        self._multi_search = MultiSearch(connection, index.name, settings.max_in_flight, batch, self._ordered)

    def identity(self) -> dict[str, Any]:
        return self._identity

    def _size(self, depth: int, slack: int) -> int:
        """Returns the hits to request, `slack` more than the depth where the index returns as many."""
        return max(depth, min(self._most_hits, depth + slack))


class ElasticBM25(_ElasticSearch):
    """BM25 over an index's text; implements `retrievers.retriever.Retriever`."""

    def search(self, texts: Sequence[Search], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Returns the `depth` best documents of each text; a term that it repeats counts as often, as `bm25_query` says."""
        unique, inverse = distinct([one.text if isinstance(one, SearchText) else one for one in texts])
        places, searches = [], []
        for number, text in enumerate(unique):
            flat = text if isinstance(text, str) else joined_text(text)
            if flat.strip():
                query = bm25_query(text, self._settings.searched_field, self._settings.bm25_query)
                size = self._size(depth, 0 if self._ordered else SLACK)
                places.append(number)
                searches.append(search_lines(flat, {"query": filtered(query, self._only)}, size, self._ordered))
        hits = dict(zip(places, self._multi_search.run(searches, alive), strict=True))
        return lists_of([hits.get(place, []) for place in inverse.tolist()], depth)


class ElasticDense(_ElasticSearch):
    """kNN over an index's vectors; implements `retrievers.retriever.Retriever` and `Embedder`."""

    def __init__(
        self, connection: Connection, index: ElasticIndex, settings: ElasticSettings, identity: dict[str, Any],
        encoder: TextEncoder,
    ) -> None:  # fmt: skip
        """Searches an index, as its settings say, with the encoder's vectors, half a batch at a time."""
        super().__init__(connection, index, settings, identity, BATCH // 2)
        self._similarity = str((field_of(index.fields, settings.searched_field) or {}).get("similarity", "cosine"))
        self._vectors = RecentVectors(encoder)

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns vectors of length 1, shape (n, dim), float32; texts of the last `embed` or `search` are not encoded again."""
        return self._vectors.encode(texts)

    def search(self, texts: Sequence[Search], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Returns the `depth` documents of highest cosine, rounded to 6 decimals; exact with a vector type `flat`."""
        unique, inverse = distinct(texts)
        size = self._size(depth, SLACK)  # kNN does not select among equal scores by doc_id, even where the hits are ordered
        searches = []
        for text, vector in zip(unique, search_vectors(unique, self.embed), strict=True):
            knn = knn_query(self._settings.searched_field, vector, size, self._settings.rescored, self._only)
            searches.append(search_lines(joined_text(text), {"knn": knn}, size, self._ordered))
        lists = []
        for hits in self._multi_search.run(searches, alive):
            scores = cosines(np.array([score for _, score in hits], dtype=np.float64), self._similarity)
            lists.append([(doc_id, score) for (doc_id, _), score in zip(hits, scores.tolist(), strict=True)])
        return lists_of([lists[place] for place in inverse.tolist()], depth)


def open_retriever(
    name: str, settings: ElasticSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """Opens BM25, or dense search where `encoder` is given; with `expect_identity` the concrete index that it names."""
    patient = expect_identity is not None
    planned = str((expect_identity or {}).get("index") or settings.index)
    connection, index = connect(name, settings, planned, patient=patient)
    identity = _identity(name, settings, index, connection, patient=patient)
    check_planned(f"retrieve.retrievers.{name}: index {index.name}", expect_identity, identity)
    if settings.encoder is None:
        return ElasticBM25(connection, index, settings, identity, BATCH)
    encoder = open_encoder(settings.encoder, device, patient=patient)
    dims = (field_of(index.fields, settings.searched_field) or {}).get("dims")
    if dims is not None and dims != encoder.dim:
        problem = f"field {settings.searched_field} of index {index.name} has {dims} dimensions"
        remedy = f"the encoder {settings.encoder.model} {encoder.dim}; set the encoder it was built with"
        raise RetrieverError("index-other", f"retrieve.retrievers.{name}: {problem}, {remedy}")
    return ElasticDense(connection, index, settings, identity, encoder)


def open_documents(name: str, settings: ElasticSettings, *, patient: bool = False) -> ElasticDocuments:
    """Opens the documents of an index that keeps their texts; raises as `open_retriever`."""
    connection, index = connect(name, settings, settings.index, patient=patient)
    field = text_field(f"retrieve.retrievers.{name}", settings, index)
    return ElasticDocuments(connection, index, field, settings.max_in_flight, _only(settings, index))


def retriever_identity(name: str, settings: ElasticSettings) -> dict[str, Any]:
    """Returns the identity of a retriever without opening it; raises as `open_retriever`."""
    connection, index = connect(name, settings, settings.index)
    with contextlib.closing(connection):
        return _identity(name, settings, index, connection)


def retriever_facts(name: str, settings: ElasticSettings, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns facts for the run's record that are no part of the identity; see `retrievers.retriever.retriever_facts`."""
    connection, index = connect(name, settings, str(identity["index"]))
    only = identity.get("filter")
    with contextlib.closing(connection):
        body = None if only is None else {"query": only}
        count = connection.request("POST", f"/{index.name}/_count", body, patience=connection.opening_patience)["count"]
        state = index_state(connection, index, only)
    return {"named": settings.index, "documents": count, "state": state, "most_hits": index.most_hits}


def _identity(
    name: str, settings: ElasticSettings, index: ElasticIndex, connection: Connection, *, patient: bool = False
) -> dict[str, Any]:
    """Returns the identity of the hits, checked against the settings."""
    where = f"retrieve.retrievers.{name}: index {settings.index}"
    field, dense = settings.searched_field, settings.encoder is not None
    mapped = field_of(index.fields, field)
    if mapped is None or (mapped.get("type") == "dense_vector") != dense:
        what = "no field" if mapped is None else f"{mapped.get('type', 'object')} in the field"
        wanted = "vectors" if dense else "text"
        raise RetrieverError(
            "index-other", f"{where} has {what} {field!r}, where {wanted} should be; correct field, or build it again: {BUILD}"
        )
    if index.note:
        check_built(where, {"shards": int(index.settings["number_of_shards"])}, {"shards": settings.shards})
    same: dict[str, Any] = {
        "kind": "elastic", "index": index.name, "uuid": index.uuid, "mapping": index.mapping, "corpus": index.corpus,
        "field": field,
    }  # fmt: skip
    if (only := _only(settings, index)) is not None:
        same["filter"] = only
        _try_query(connection, index, "filter", only)
    if settings.encoder is None:
        if index.note:
            check_built(where, {"analyzer": mapped.get("analyzer")}, {"analyzer": settings.analyzer})
            constants = (index.settings.get("similarity") or {}).get("default") or {}
            built = {key: float(value) for key, value in constants.items() if key in ("k1", "b")}  # its numbers are texts
            check_built(where, built, settings.bm25_constants.model_dump(), "similarity.")
        _check_query_fields(connection, index, settings)
        _try_query(connection, index, "query", bm25_query("two words", field, settings.bm25_query))
        return same | {"query": {"fields": settings.bm25_query.fields} | FORM}
    note = index.note or {}
    encoder = checked_encoder(name, where, settings.encoder, note.get("encoder"), note.get("encoder_name"), patient=patient)
    if note:
        check_built(where, mapped.get("index_options") or {}, {"type": settings.vectors["type"]}, "vector.")
    return same | {"encoder": encoder, "num_candidates": None, "oversample": settings.rescored}


def _check_query_fields(connection: Connection, index: ElasticIndex, settings: ElasticSettings) -> None:
    """Raises RetrieverError if a field of `query.fields` is missing or holds no text."""
    where = f"{connection.where}: index {settings.index}"
    for field in settings.bm25_query.fields:
        mapped = field_of(index.fields, field)
        kind = None if mapped is None else mapped.get("type", "object")
        if kind not in ("text", "keyword"):
            problem = f"has {kind} in the field {field!r}, no text or keyword"
            if mapped is None:
                problem = f"has no field {field!r}; it has: {', '.join(sorted(index.fields))}"
            raise RetrieverError("index-other", f"{where} {problem}; correct query.fields")


def _try_query(connection: Connection, index: ElasticIndex, key: str, query: dict[str, Any]) -> None:
    """Sends the query of a key of the config once, before a run begins; asks for no hits."""
    try:
        connection.search(index.name, {"query": query, "size": 0}, patience=connection.opening_patience)
    except RequestRefused as refused:
        what = f"index {index.name}: {connection.address} refuses the {key}: {refused.problem}"
        raise RetrieverError("elastic-refused", f"{connection.where}: {what}; correct {key}") from None


def _only(settings: ElasticSettings, index: ElasticIndex) -> dict[str, Any] | None:
    """Returns the filter of all searches: the config's, and the alias's, which has no name to search it by later."""
    both = [one for one in (index.only, settings.filter) if one is not None]
    return {"bool": {"filter": both}} if len(both) > 1 else both[0] if both else None
