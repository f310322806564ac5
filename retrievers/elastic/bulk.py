"""Loads a corpus into an Elasticsearch index: documents with their vectors.

A vector is looked up, by its text's hash, in the index that is being built and in the one that it will replace, and encoded
only where neither has it: a corpus with one new text in a hundred costs a hundredth, and a resumed build encodes no text
that it has already loaded.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.batches import in_threads, made_ahead
from retrievers.corpora.corpus import joined
from retrievers.elastic.connection import BUSY, Connection, RequestRefused, ServerUnavailable, error_words, hits_of
from retrievers.elastic.documents import fetch
from retrievers.encoder import TextEncoder, open_encoder, refusals_named
from retrievers.retriever import SearchText
from retrievers.settings import AnyEncoderSettings

PASSAGE = "passage"  # the field with the hash of a document's text

Encode = Callable[[Sequence[str]], np.ndarray]  # texts to vectors, shape (n, dim); raises as `TextEncoder.encode`
BatchLoader = Callable[[Mapping[str, Any], Iterable[pa.RecordBatch]], Iterator[Counter[str]]]
"""Loads batches into an index, as `build.ElasticBuild.loader_settings` say; yields counts: documents `loaded` and `present` in
the index already, texts `encoded`, and vectors of an index `reused`."""

_DOCUMENTS, _BYTES = 512, 5 << 20  # per bulk request, at most; a larger document has a request to itself
_LONGEST_ID = 512  # bytes that Elasticsearch accepts
_CONFLICT = 409
_CLOSED_INDEX = "cluster_block_exception"  # a finished build blocks writing; a full disk is answered 429
_FILTER = "errors,items.create._id,items.create.status,items.create.error.type,items.create.error.reason"

Action = dict[str, Any]  # a document as `streaming_bulk` takes it; by `create_action`


def load_documents(connection: Connection, index: str, documents: Sequence[Action], in_flight: int) -> None:
    """Loads documents into a concrete index, in up to `in_flight` concurrent bulk requests, by `streaming_bulk`.

    That cuts documents into requests, and reads the answers item by item. Its own retries are not used: they wait in
    `time.sleep`, which an error cannot interrupt, count attempts and not minutes, have no jitter, and leave out lost
    connections, timeouts and answers cut short. `Connection.retry` covers all of these.

    Documents are created, never overwritten. One that is in the index already, because an answer was lost or an earlier build
    loaded it, is answered 409 and counts as loaded: nothing is indexed twice, and no deleted copy distorts BM25's statistics.
    Raises RetrieverError if one is refused, or patience ends.
    """
    parts = [documents[start : start + _DOCUMENTS] for start in range(0, len(documents), _DOCUMENTS)]
    in_threads(partial(_load, connection, index), parts, in_flight)


def _load(connection: Connection, index: str, documents: Sequence[Action], stop: threading.Event) -> None:
    left = {action["_id"]: action for action in documents}
    try:
        connection.retry(lambda: _send(connection, index, left), connection.patience, stop)
    except RequestRefused as refused:
        if refused.status != 413 or len(left) == 1:
            problem = f"{refused.problem}; correct the corpus or the config"
            raise RetrieverError("elastic-refused", f"index {index} at {connection.address}: {problem}") from None
        rest = list(left.values())  # a proxy before the server may limit requests to less than `_BYTES`
        _load(connection, index, rest[: len(rest) // 2], stop)
        _load(connection, index, rest[len(rest) // 2 :], stop)


def _send(connection: Connection, index: str, left: dict[str, Action]) -> None:
    """Sends documents once and removes those that are in the index from `left`."""
    from elasticsearch.helpers import streaming_bulk

    where, answer = f"index {index} at {connection.address}", "an answer that lacks documents"
    with connection.client(f"POST /{index}/_bulk") as client:
        results: Any = streaming_bulk(
            client, list(left.values()), chunk_size=_DOCUMENTS, max_chunk_bytes=_BYTES, raise_on_error=False,
            index=index, filter_path=_FILTER,
        )  # fmt: skip
        # Closed by this thread: the library's span would end in another context. An answer may be a login page.
        with closing(results), suppress(KeyError, TypeError):
            for created, result in results:
                item = result["create"]
                kind = (item.get("error") or {}).get("type")
                if created or item["status"] == _CONFLICT:
                    left.pop(item["_id"])
                elif item["status"] in BUSY:
                    answer = f"documents were answered {item['status']} {kind}"
                elif kind == _CLOSED_INDEX:
                    problem = "another process has finished it meanwhile; run the same command again"
                    raise RetrieverError("run-held", f"{where}: {problem}")
                else:
                    kind, why = error_words(item.get("error") or {})
                    problem = f"document {item['_id']!r} is refused: {kind}: {one_line(why, 200)}; correct the corpus"
                    raise RetrieverError("elastic-refused", f"{where}: {problem}")
    if left:
        raise ServerUnavailable(answer, overloaded=True)


def create_action(doc_id: str, fields: dict[str, Any]) -> Action:
    """Returns the action that creates a document; its body is JSON already, and the library sends bytes as they are."""
    import orjson

    size = len(doc_id.encode())
    if not 0 < size <= _LONGEST_ID:
        what = "is empty" if not size else f"{doc_id[:40]!r}... has {size} bytes"
        problem = f"a doc_id {what}; Elasticsearch takes 1 to {_LONGEST_ID} bytes"
        raise RetrieverError("corpus", f"corpus: {problem}; give that document another")
    source = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=str)
    return {"_op_type": "create", "_id": doc_id, "_source": source}


class Documents:
    """Makes the documents of an index from record batches of a corpus."""

    def __init__(self, settings: Mapping[str, Any], connection: Connection, encode: Encode | None) -> None:
        """Sends nothing.

        `settings` are those of `build.ElasticBuild.loader_settings`; `encode` makes the vectors; None: there are none.
        """
        self._index, self._resumed, self._connection = settings["index"], settings["resumed"], connection
        self._text_field, self._vector_field, self._dim = settings["text_field"], settings["vector_field"], settings["dim"]
        self._vector_sources, self._encode = settings["vector_sources"], encode

    def __call__(self, batch: pa.RecordBatch) -> tuple[list[Action], Counter[str]]:
        """Returns the documents of a batch, with the columns of `corpus.read_corpus`, that the index lacks, and counts."""
        rows = batch.num_rows
        if self._resumed:
            batch = self._missing(batch)
        if not batch.num_rows:
            return [], Counter(present=rows)
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
        return actions, counts

    def _missing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
        vectors = {}
        for hit in hits_of(self._connection.search(index, body, "hits.hits.fields")):
            fields = hit["fields"]
            vector = np.array(fields.get(field) or [], dtype=np.float32)
            if vector.shape == (self._dim,):
                vectors[fields[PASSAGE][0]] = vector
        return vectors


class PassageEncoder:
    """Encodes passages, one thread at a time; loads the model with the first call."""

    def __init__(self, settings: AnyEncoderSettings, device: str = "cpu") -> None:
        self._settings, self._device = settings, device
        self._encoder: TextEncoder | None = None
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        with self._lock:
            if self._encoder is None:
                self._encoder = open_encoder(self._settings, self._device)
            return self._encoder.encode([SearchText(text, "passage") for text in texts])


def load_corpus(
    settings: Mapping[str, Any], batches: Iterable[pa.RecordBatch], encode: Encode | None = None
) -> Iterator[Counter[str]]:
    """Loads batches as a `BatchLoader` in this process: encodes the next one while requests with one are in flight.

    `encode` replaces the encoder of the config, which runs on the CPU.
    """
    if encode is None and settings["encoder"]:
        encode = PassageEncoder(settings["encoder"])
    with closing(Connection(settings["where"], settings["connection"], settings["in_flight"])) as connection:
        for documents, counts in made_ahead(Documents(settings, connection, encode), batches):
            load_documents(connection, settings["index"], documents, settings["in_flight"])
            yield counts


def text_hash(text: str) -> str:
    """Returns the hash under which a text's vector is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
