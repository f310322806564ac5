"""Elasticsearch, opened: BM25 or dense search by `_msearch`, and the documents' texts by `_mget`.

An index built by `elastic_build` is written once and then closed to writing, so what is found in it stays. One that
somebody else built can be searched too; it must not change during a run, and its vectors are taken to be the encoder's.
Lists are fused on the client: Elasticsearch's own fusion wants a licence, and lists that are kept can be shared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.elastic_block import elastic_block, is_dense
from retrievers.elastic_client import Connection
from retrievers.elastic_documents import ElasticDocuments, text_field
from retrievers.elastic_index import BUILD, ElasticIndex, field_of, ready_index
from retrievers.elastic_query import MOST_HITS, SLACK, bm25_query, cosines, envelope, header, knn_query
from retrievers.elastic_search import Hits, Searches
from retrievers.elastic_trial import try_query
from retrievers.encoder import Encoder, RecentVectors, encoder_identity, encoder_settings
from retrievers.local import differences
from retrievers.retriever import Alive, RankedLists, Retriever, RetrieverError, SearchText, distinct, named, unwatched


class ElasticBM25:
    """BM25 over an index's text; implements `retrievers.retriever.Retriever`."""

    def __init__(self, connection: Connection, index: ElasticIndex, block: Mapping[str, Any], identity: dict[str, Any]) -> None:
        self._block, self._identity = block, identity
        self._ordered = index.note is not None
        self._searches = Searches(connection, index.name, _in_flight(block), block["batch"], self._ordered)

    def identity(self) -> dict[str, Any]:
        """The concrete index and the form of the query."""
        return self._identity

    def search(self, texts: Sequence[SearchText], depth: int, alive: Alive = unwatched) -> RankedLists:
        """The ``depth`` best documents of each text; only documents that hold one of its terms are hits."""
        once, inverse = distinct([text[0] for text in texts])
        asked = [place for place, text in enumerate(once) if text.strip()]
        size = _size(depth, self._ordered)
        shape = envelope(size, self._ordered)
        bodies = [
            _lines(once[place], {"query": bm25_query(once[place], self._block["field"], self._block["query"])} | shape)
            for place in asked
        ]
        found = dict(zip(asked, self._searches.run(bodies, alive), strict=True))
        none = Hits([], [])
        return _ranked([found.get(place, none) for place in inverse.tolist()], depth)


class ElasticDense:
    """kNN over an index's vectors; implements `retrievers.retriever.Retriever` and `Embedder`."""

    def __init__(
        self, connection: Connection, index: ElasticIndex, block: Mapping[str, Any], identity: dict[str, Any], encoder: Encoder
    ) -> None:
        self._block, self._identity = block, identity
        self._ordered = index.note is not None
        self._similarity = str((field_of(index.fields, block["field"]) or {}).get("similarity", "cosine"))
        self._vectors = RecentVectors(encoder)
        self._searches = Searches(connection, index.name, _in_flight(block), max(1, block["batch"] // 2), self._ordered)

    def identity(self) -> dict[str, Any]:
        """The concrete index, the encoder and how the neighbours are looked for."""
        return self._identity

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Shape (n, dim), float32, length 1. Texts of the last call of `embed` or `search` are not encoded again."""
        return self._vectors.encode(texts)

    def search(self, texts: Sequence[SearchText], depth: int, alive: Alive = unwatched) -> RankedLists:
        """The ``depth`` documents with the highest cosines, rounded to 6 decimals; exact with a vector type ``flat``."""
        once, inverse = distinct([SearchText(*text) for text in texts])
        vectors = self.embed(once)
        size = _size(depth, False)  # who is among the nearest is not chosen by doc_id, whatever the order of hits
        shape = envelope(size, self._ordered)
        field, candidates, oversample = (self._block[key] for key in ("field", "num_candidates", "oversample"))
        bodies = [
            _lines(text.text, {"knn": knn_query(field, vector, size, candidates, oversample)} | shape)
            for text, vector in zip(once, vectors, strict=True)
        ]
        found = self._searches.run(bodies, alive)
        return _ranked([found[place] for place in inverse.tolist()], depth, self._similarity)


def open_retriever(
    name: str, settings: Mapping[str, Any], device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """`retrievers.retriever.open_retriever` for ``kind: elastic``: BM25, or dense search where ``encoder`` is given.

    With ``expect_identity`` the concrete index is opened that it names, wherever the alias points by now.

    Raises:
        RetrieverError: the server is not there, refuses the key or is of another major version; no index; of another
            encoder or analyzer; replaced since ``expect_identity`` was noted.
    """
    block = elastic_block(name, settings)
    patient = expect_identity is not None
    planned = str((expect_identity or {}).get("index") or block["index"])
    connection, index, _ = _reached(name, block, planned, patient=patient)
    identity = _identity(name, block, index, connection)
    if expect_identity is not None and dict(expect_identity) != identity:
        raise RetrieverError(
            f"retrieve.retrievers.{name}: index {index.name} was replaced since this run was planned "
            f"({differences(expect_identity, identity)}); start a new run, or put the old index back"
        )
    if not is_dense(block):
        return ElasticBM25(connection, index, block, identity)
    encoder = Encoder(encoder_settings(block["encoder"]), device, block["encoder"].get("batch_size"))
    dims = (field_of(index.fields, block["field"]) or {}).get("dims")
    if dims is not None and dims != encoder.dim:
        raise RetrieverError(
            f"retrieve.retrievers.{name}: field {block['field']} of index {index.name} has {dims} dimensions, the encoder "
            f"{encoder.settings.model} {encoder.dim}; set the encoder it was built with"
        )
    return ElasticDense(connection, index, block, identity, encoder)


def open_documents(name: str, settings: Mapping[str, Any]) -> ElasticDocuments:
    """`retrievers.retriever.open_documents` for ``kind: elastic``.

    Raises:
        RetrieverError: as `open_retriever`; the index keeps no text.
    """
    block = elastic_block(name, settings)
    patient = block["in_flight"] is not None  # a worker of a run
    connection, index, _ = _reached(name, block, block["index"], patient=patient)
    return ElasticDocuments(connection, index, text_field(f"retrieve.retrievers.{name}", block, index), _in_flight(block))


def retriever_identity(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`retrievers.retriever.retriever_identity` for ``kind: elastic``.

    Raises:
        RetrieverError: as `open_retriever`.
    """
    block = elastic_block(name, settings)
    connection, index, _ = _reached(name, block, block["index"])
    with contextlib.closing(connection):
        return _identity(name, block, index, connection)


def retriever_facts(name: str, settings: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """`retrievers.retriever.retriever_facts` for ``kind: elastic``: what is worth noting and decides no identity."""
    block = elastic_block(name, settings)
    connection, index, version = _reached(name, block, str(identity["index"]))
    with contextlib.closing(connection):
        count = connection.ask("GET", f"/{index.name}/_count", patience=connection.opening).body["count"]
    return {
        "named": block["index"],
        "documents": count,
        "server": version,
        "written_by_dmqr": index.note is not None,
        "closed_to_writing": (index.settings.get("blocks") or {}).get("write") == "true",
        "point_in_time": None,
    }


def _reached(
    name: str, block: Mapping[str, Any], index: str, *, patient: bool = False
) -> tuple[Connection, ElasticIndex, str | None]:
    """The server, which this client fits, the index, which can be searched, and the server's version."""
    connection = Connection(f"retrieve.retrievers.{name}", block, _in_flight(block), patient=patient)
    try:
        version = connection.check()
        return connection, ready_index(connection, index), version
    except BaseException:
        connection.close()
        raise


def _identity(name: str, block: Mapping[str, Any], index: ElasticIndex, connection: Connection) -> dict[str, Any]:
    """What decides the hits, checked against what the block asks for."""
    where = f"retrieve.retrievers.{name}: index {block['index']}"
    field, dense = block["field"], is_dense(block)
    mapped = field_of(index.fields, field)
    if mapped is None or (mapped.get("type") == "dense_vector") != dense:
        what = "no field" if mapped is None else f"{mapped.get('type', 'object')} in the field"
        wanted = "vectors" if dense else "text"
        raise RetrieverError(
            f"{where} has {what} {field!r}, where {wanted} should be; correct field, or build it again: {BUILD}"
        )
    same = {
        "kind": "elastic", "index": index.name, "uuid": index.uuid, "mapping": index.mapping, "corpus": index.corpus,
        "field": field,
    }  # fmt: skip
    if not dense:
        if index.note and mapped.get("analyzer") != block["analyzer"]:
            raise RetrieverError(
                f"{where} was built with analyzer {mapped.get('analyzer')!r}, the config asks for {block['analyzer']!r}; "
                f"set analyzer: {mapped.get('analyzer')}, or build it again: {BUILD}"
            )
        try_query(connection, index, block)
        return same | {"query": dict(block["query"])}
    with named(f"retrieve.retrievers.{name}.encoder"):
        settings = encoder_settings(block["encoder"])
        encoder = encoder_identity(settings)
    stored = index.note["encoder"] if index.note else None
    if stored is not None and encoder != stored:
        differ = ", ".join(f"{k} {stored.get(k)!r} against {v!r}" for k, v in encoder.items() if v != stored.get(k))
        raise RetrieverError(
            f"{where} was built with encoder {(index.note or {}).get('encoder_name')}, the config asks for {settings.model} "
            f"({differ}); set the encoder it was built with, or build it again: {BUILD}"
        )
    options = mapped.get("index_options") or {}
    if index.note and options.get("type") != block["vector"]["type"]:
        raise RetrieverError(
            f"{where} was built with vectors of type {options.get('type')}, the config asks for {block['vector']['type']}; "
            f"set vector.type: {options.get('type')}, or build it again: {BUILD}"
        )
    return same | {"encoder": encoder, "num_candidates": block["num_candidates"], "oversample": block["oversample"]}


def _in_flight(block: Mapping[str, Any]) -> int:
    """Requests at a time of one worker: its share, where the job has said what that is."""
    return int(block["in_flight"] or min(4, block["max_in_flight"]))


def _size(depth: int, ordered: bool) -> int:
    if depth > MOST_HITS:
        raise RetrieverError(f"retrieve.depth: {depth} is more than the {MOST_HITS:,} hits that Elasticsearch gives; lower it")
    return depth if ordered else min(MOST_HITS, depth + SLACK)


def _lines(text: str, search: dict[str, Any]) -> bytes:
    """A search as the two lines that `_msearch` takes."""
    import orjson

    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(header(text), option=option) + orjson.dumps(search, option=option)


def _ranked(found: Sequence[Hits], depth: int, similarity: str | None = None) -> RankedLists:
    """Hits in the server's order as ranked lists: best first, equal scores by doc_id, cut at the depth."""
    doc_ids: list[str] = []
    scores: list[np.ndarray] = []
    for hits in found:
        values = np.array(hits.scores, dtype=np.float64)
        if similarity is not None:
            values = cosines(values, similarity)
        ids = hits.doc_ids
        rows = list(range(len(ids)))
        if np.any(values[1:] >= values[:-1]):  # a tie, or scores that have become equal by rounding
            listed = values.tolist()
            rows.sort(key=lambda row: (-listed[row], ids[row]))
        rows = rows[: max(0, depth)]
        doc_ids += [ids[row] for row in rows]
        scores.append(values[rows])
    offsets = np.zeros(len(found) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in scores], out=offsets[1:])
    flat = np.concatenate(scores) if scores else np.empty(0)
    return RankedLists(offsets, pa.array(doc_ids, pa.string()), flat)
