"""What is put into an Elasticsearch index: documents with their vectors, each text encoded once for all time.

A vector is looked for, by its text's hash, in the index that is being built and in the one that it will replace, and only
made where neither has it: a corpus of which a hundredth is new costs a hundredth, and a build that goes on encodes nothing
anew that it has loaded.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.corpus import joined
from retrievers.elastic_client import Connection
from retrievers.elastic_documents import fetch
from retrievers.elastic_load import Loading, as_line
from retrievers.encoder import Encoder, encoder_settings
from retrievers.retriever import SearchText

PASSAGE = "passage"
"""The field with the hash of a document's text."""


Encode = Callable[[Sequence[str]], np.ndarray]
Load = Callable[[Mapping[str, Any], Iterable[pa.RecordBatch]], "Iterator[Filled]"]
"""Brings the batches of one pass into an index, as the settings of `elastic_build.Build.filling` say."""


class Filled(NamedTuple):
    """Documents loaded, documents that were there, texts encoded, vectors found."""

    loaded: int = 0
    there: int = 0
    encoded: int = 0
    found: int = 0

    def plus(self, other: Filled) -> Filled:
        """Both together."""
        return Filled(*(a + b for a, b in zip(self, other, strict=True)))


class Filling:
    """Puts record batches of a corpus into one index."""

    def __init__(
        self,
        connection: Connection,
        index: str,
        in_flight: int,
        text_field: str,
        vector_field: str | None = None,
        encode: Encode | None = None,
        dim: int = 0,
        vectors_in: Sequence[tuple[str, str]] = (),
        begun: bool = False,
    ) -> None:
        """
        Args:
            vector_field, encode: None: no vectors.
            dim: how long they are.
            vectors_in: index and field of vectors by the same encoder.
            begun: some of the documents may be there already.
        """
        self._connection, self._index, self._begun = connection, index, begun
        self._text_field, self._vector_field, self._vectors_in = text_field, vector_field, vectors_in
        self._encode, self._dim = encode, dim
        self._loading = Loading(connection, index, in_flight)

    def add(self, batch: pa.RecordBatch) -> Filled:
        """Load the documents of a batch, columns as `corpus.write_documents` leaves them; they may still be under way.

        Raises:
            RetrieverError: a document is refused; the server is away for too long.
        """
        rows = batch.num_rows
        if self._begun:
            batch = self._without_those_there(batch)
        if not batch.num_rows:
            return Filled(there=rows)
        texts, made = joined(batch), Filled(batch.num_rows, rows - batch.num_rows)
        fields: list[dict[str, Any]] = [{} for _ in texts]
        if self._encode is not None and self._vector_field is not None:
            hashes = [text_hash(text) for text in texts]
            vectors, known = self._vectors(texts, hashes)
            made = made._replace(encoded=len(set(hashes)) - known, found=known)
            fields = [{PASSAGE: one, self._vector_field: vectors[one]} for one in hashes]
        others = [name for name in batch.schema.names if name not in ("doc_id", "title", "text")]
        kept = batch.select(others).to_pylist() if others else [None] * len(texts)
        ids, titles = batch.column("doc_id").to_pylist(), batch.column("title").to_pylist()
        lines = []
        for doc_id, title, text, columns, field in zip(ids, titles, texts, kept, fields, strict=True):
            document = {"doc_id": doc_id, "title": title, self._text_field: text} | field
            lines.append(as_line(doc_id, document if columns is None else document | {"columns": columns}))
        self._loading.add(lines)
        return made

    def drain(self) -> None:
        """Wait until all is loaded; raises as `add`."""
        self._loading.drain()

    def close(self) -> None:
        """Give up what is not sent yet, and the connection."""
        self._loading.close()
        self._connection.close()

    def _without_those_there(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        doc_ids = batch.column("doc_id").to_pylist()
        there = fetch(self._connection, self._index, doc_ids)
        return batch.filter(pa.array([doc_id not in there for doc_id in doc_ids]))

    def _vectors(self, texts: Sequence[str], hashes: Sequence[str]) -> tuple[dict[str, np.ndarray], int]:
        """hash -> vector, and how many of them were found."""
        assert self._encode is not None
        wanted = dict(zip(hashes, texts, strict=True))
        vectors: dict[str, np.ndarray] = {}
        for index, field in self._vectors_in:
            left = [one for one in wanted if one not in vectors]
            if left:
                vectors |= self._known(index, field, left)
        known = len(vectors)
        new = [one for one in wanted if one not in vectors]
        if new:
            vectors |= dict(zip(new, self._encode([wanted[one] for one in new]), strict=True))
        return vectors, known

    def _known(self, index: str, field: str, hashes: list[str]) -> dict[str, np.ndarray]:
        body = {
            "size": len(hashes),
            "query": {"terms": {PASSAGE: hashes}},
            "collapse": {"field": PASSAGE},
            "_source": [field, PASSAGE],
            "track_total_hits": False,
        }
        params = {"filter_path": "hits.hits._source", "allow_partial_search_results": "false"}
        answer = self._connection.ask("POST", f"/{index}/_search", body, params=params).body or {}
        found = {}
        for hit in (answer.get("hits") or {}).get("hits") or []:
            source = hit["_source"]
            vector = np.array(source.get(field) or [], dtype=np.float32)
            if vector.shape == (self._dim,):
                found[source[PASSAGE]] = vector
        return found


class Passages:
    """Encodes passages; the model is loaded when the first one comes that has no vector yet. Threads take turns."""

    def __init__(self, block: Mapping[str, Any], device: str = "cpu") -> None:
        self._block, self._device = block, device
        self._encoder: Encoder | None = None
        self._turn = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Shape (n, dim), float32, length 1."""
        with self._turn:
            if self._encoder is None:
                self._encoder = Encoder(encoder_settings(self._block), self._device, self._block.get("batch_size"))
            return self._encoder.encode([SearchText(text, "passage") for text in texts])


def open_filling(settings: Mapping[str, Any], device: str = "cpu", encode: Encode | None = None) -> Filling:
    """What `elastic_build.Build.filling` describes, in this process, with its own connection.

    Args:
        encode: texts to vectors; None: as the settings say.
    """
    connection = Connection(settings["where"], settings["block"], settings["in_flight"])
    if encode is None and settings["encoder"]:
        encode = Passages(settings["encoder"], device)
    same = {key: settings[key] for key in ("index", "in_flight", "text_field", "vector_field", "dim", "vectors_in", "begun")}
    return Filling(connection, encode=encode, **same)


class Here:
    """Loads batches in this process: the next are encoded while those before are under way."""

    def __init__(self, device: str = "cpu", encode: Encode | None = None) -> None:
        """
        Args:
            device: where the encoder runs.
            encode: texts to vectors, in place of the config's encoder.
        """
        self._device, self._encode = device, encode

    def __call__(self, settings: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> Iterator[Filled]:
        if self._encode is None and settings["encoder"]:
            self._encode = Passages(settings["encoder"], self._device)  # for the passes to come, too
        filling = open_filling(settings, encode=self._encode)
        try:
            for batch in batches:
                yield filling.add(batch)
            filling.drain()
        finally:
            filling.close()


def text_hash(text: str) -> str:
    """By which a text's vector is found again."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
