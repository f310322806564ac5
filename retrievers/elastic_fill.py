"""What is put into an Elasticsearch index: documents with their vectors, each text encoded once for all time.

A vector is looked for, by its text's hash, in the index that is being built and in the one that it will replace, and only
made where neither has it: a corpus of which a hundredth is new costs a hundredth, and a build that goes on encodes nothing
anew that it has loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.corpus import joined
from retrievers.elastic_client import Connection
from retrievers.elastic_load import Loading, as_line
from retrievers.encoder import Encoder
from retrievers.retriever import SearchText

PASSAGE = "passage"
"""The field with the hash of a document's text."""


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
        encoder: Encoder | None = None,
        vectors_in: Sequence[tuple[str, str]] = (),
        begun: bool = False,
    ) -> None:
        """
        Args:
            vector_field, encoder: None: no vectors.
            vectors_in: index and field of vectors by the same encoder.
            begun: some of the documents may be there already.
        """
        self._connection, self._index, self._begun = connection, index, begun
        self._text_field, self._vector_field, self._encoder, self._vectors_in = text_field, vector_field, encoder, vectors_in
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
        if self._encoder is not None and self._vector_field is not None:
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
        """Give up what is not sent yet."""
        self._loading.close()

    def _without_those_there(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        body = {"ids": batch.column("doc_id").to_pylist()}
        params = {"_source": "false", "filter_path": "docs.found"}
        documents = self._connection.ask("POST", f"/{self._index}/_mget", body, params=params).body["docs"]
        return batch.filter(pa.array([not document.get("found") for document in documents]))

    def _vectors(self, texts: Sequence[str], hashes: Sequence[str]) -> tuple[dict[str, np.ndarray], int]:
        """hash -> vector, and how many of them were found."""
        assert self._encoder is not None
        wanted = dict(zip(hashes, texts, strict=True))
        vectors: dict[str, np.ndarray] = {}
        for index, field in self._vectors_in:
            left = [one for one in wanted if one not in vectors]
            if left:
                vectors |= self._known(index, field, left, self._encoder.dim)
        known = len(vectors)
        new = [one for one in wanted if one not in vectors]
        encoded = self._encoder.encode([SearchText(wanted[one], "passage") for one in new])
        return vectors | dict(zip(new, encoded, strict=True)), known

    def _known(self, index: str, field: str, hashes: list[str], dim: int) -> dict[str, np.ndarray]:
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
            if vector.shape == (dim,):
                found[source[PASSAGE]] = vector
        return found


def text_hash(text: str) -> str:
    """By which a text's vector is found again."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
