"""Loads a corpus into an Elasticsearch index: documents with their vectors.

A vector is looked up, by its text's hash, in the index that is being built and in the one that it will replace, and encoded
only where neither has it: a corpus with one new text in a hundred costs a hundredth, and a resumed build encodes no text
that it has already loaded.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.corpora.corpus import joined
from retrievers.elastic.bulk import BulkLoader, create_action
from retrievers.elastic.connection import Connection, hits_of
from retrievers.elastic.documents import fetch
from retrievers.encoder import TextEncoder, open_encoder, refusals_named
from retrievers.retriever import SearchText
from retrievers.settings import AnyEncoderSettings

PASSAGE = "passage"
"""The field with the hash of a document's text."""

Encode = Callable[[Sequence[str]], np.ndarray]
"""Texts to vectors, shape (n, dim); raises as `TextEncoder.encode`."""

BatchLoader = Callable[[Mapping[str, Any], Iterable[pa.RecordBatch]], Iterator[Counter[str]]]
"""Loads batches into an index, as `build.ElasticBuild.loader_settings` say; yields counts: documents `loaded` and `present` in
the index already, texts `encoded`, and vectors of an index `reused`."""


class CorpusLoader:
    """Loads record batches of a corpus into one index."""

    def __init__(self, settings: Mapping[str, Any], encode: Encode | None) -> None:
        """Opens a connection, with its errors, and a `BulkLoader`; sends nothing.

        `settings` are those of `build.ElasticBuild.loader_settings`; `encode` makes the vectors; None: there are none.
        """
        self._index, self._resumed = settings["index"], settings["resumed"]
        self._text_field, self._vector_field, self._dim = settings["text_field"], settings["vector_field"], settings["dim"]
        self._vector_sources, self._encode = settings["vector_sources"], encode
        self._connection = Connection(settings["where"], settings["connection"], settings["in_flight"])
        self._bulk = BulkLoader(self._connection, self._index, settings["in_flight"])

    def add(self, batch: pa.RecordBatch) -> Counter[str]:
        """Queues the documents of a batch, with the columns of `corpus.write_documents`, that the index lacks."""
        rows = batch.num_rows
        if self._resumed:
            batch = self._missing(batch)
        if not batch.num_rows:
            return Counter(present=rows)
        texts, counts = joined(batch), Counter(loaded=batch.num_rows, present=rows - batch.num_rows)
        ids, titles = batch.column("doc_id").to_pylist(), batch.column("title").to_pylist()
        fields: list[dict[str, Any]] = [{} for _ in texts]
        if self._encode is not None and self._vector_field is not None:
            hashes = [text_hash(text) for text in texts]
            vectors, reused = self._vectors(texts, hashes, ids)
            counts.update(encoded=len(set(hashes)) - reused, reused=reused)
            fields = [{PASSAGE: one, self._vector_field: vectors[one]} if vectors[one].any() else {} for one in hashes]
        others = [name for name in batch.schema.names if name not in ("doc_id", "title", "text")]
        kept = batch.select(others).to_pylist() if others else [None] * len(texts)
        actions = []
        for doc_id, title, text, columns, field in zip(ids, titles, texts, kept, fields, strict=True):
            document = {"doc_id": doc_id, "title": title, self._text_field: text} | field
            actions.append(create_action(doc_id, document if columns is None else document | {"columns": columns}))
        self._bulk.add(actions)
        return counts

    def drain(self) -> None:
        """Waits until all documents are loaded; raises as `add`."""
        self._bulk.drain()

    def close(self) -> None:
        """Drops documents that are not sent yet and closes the connection."""
        self._bulk.close()
        self._connection.close()

    def _missing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the documents of a batch that the index does not hold."""
        doc_ids = batch.column("doc_id").to_pylist()
        present = fetch(self._connection, self._index, doc_ids)
        return batch.filter(pa.array([doc_id not in present for doc_id in doc_ids]))

    def _vectors(self, texts: Sequence[str], hashes: Sequence[str], ids: Sequence[str]) -> tuple[dict[str, np.ndarray], int]:
        """Returns a vector for each hash, and how many of them an index held."""
        assert self._encode is not None
        wanted = dict(zip(hashes, texts, strict=True))
        vectors: dict[str, np.ndarray] = {}
        for index, field in self._vector_sources:
            left = [one for one in wanted if one not in vectors]
            if left:
                vectors |= self._stored_vectors(index, field, left)
        reused = len(vectors)
        new = [one for one in wanted if one not in vectors]
        if new:
            with refusals_named(texts, ids):
                vectors |= dict(zip(new, self._encode([wanted[one] for one in new]), strict=True))
        return vectors, reused

    def _stored_vectors(self, index: str, field: str, hashes: list[str]) -> dict[str, np.ndarray]:
        body = {
            "size": len(hashes),
            "query": {"terms": {PASSAGE: hashes}},
            "collapse": {"field": PASSAGE},
            # not _source: from Elasticsearch 9.2 on it comes without vectors, unless `exclude_vectors` is sent, which servers
            # before 8.19 refuse
            "_source": False,
            "fields": [field, PASSAGE],
        }
        found = {}
        for hit in hits_of(self._connection.search(index, body, "hits.hits.fields")):
            fields = hit["fields"]
            vector = np.array(fields.get(field) or [], dtype=np.float32)
            if vector.shape == (self._dim,):
                found[fields[PASSAGE][0]] = vector
        return found


class PassageEncoder:
    """Encodes passages, one thread at a time; loads the model with the first call."""

    def __init__(self, settings: AnyEncoderSettings, device: str = "cpu") -> None:
        self._settings, self._device = settings, device
        self._encoder: TextEncoder | None = None
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns vectors of length 1: shape (n, dim), float32."""
        with self._lock:
            if self._encoder is None:
                self._encoder = open_encoder(self._settings, self._device)
            return self._encoder.encode([SearchText(text, "passage") for text in texts])


def load_here(
    settings: Mapping[str, Any], batches: Iterable[pa.RecordBatch], encode: Encode | None = None
) -> Iterator[Counter[str]]:
    """Loads batches as a `BatchLoader` in this process: encodes the next one while requests with earlier ones are in flight.

    `encode` replaces the encoder of the config, which runs on the CPU.
    """
    if encode is None and settings["encoder"]:
        encode = PassageEncoder(settings["encoder"])
    loader = CorpusLoader(settings, encode)
    try:
        for batch in batches:
            yield loader.add(batch)
        loader.drain()
    finally:
        loader.close()


def text_hash(text: str) -> str:
    """Returns the hash under which a text's vector is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
