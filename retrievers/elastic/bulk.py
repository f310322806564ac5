"""Bulk loading of documents into one Elasticsearch index through `elasticsearch.helpers.streaming_bulk`.

The library cuts documents into requests, sends them and reads the answers item by item. Its own retries are not used
(`max_retries` stays 0): they wait in `time.sleep`, which closing cannot interrupt, count attempts and not minutes, have no
jitter, and leave out lost connections, timeouts and answers cut short. `Connection.retry` covers all of these.

Documents are created, never overwritten. A document that is in the index already, because an answer was lost or an earlier
build loaded it, is answered 409 and counts as loaded: nothing is indexed twice, and no deleted copy distorts the statistics
of BM25.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from typing import Any

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.elastic.connection import BUSY, Connection, RequestRefused, ServerUnavailable, error_words

_DOCUMENTS, _BYTES = 512, 5 << 20  # per bulk request, at most; a larger document has a request to itself
_LONGEST_ID = 512  # bytes that Elasticsearch accepts
_CONFLICT = 409
_CLOSED_INDEX = "cluster_block_exception"  # a finished build blocks writing; a full disk is answered 429
_FILTER = "errors,items.create._id,items.create.status,items.create.error.type,items.create.error.reason"

Action = dict[str, Any]
"""A document as `streaming_bulk` takes it; by `create_action`."""


class BulkLoader:
    """Loads documents into one index, in up to `in_flight` concurrent bulk requests."""

    def __init__(self, connection: Connection, index: str, in_flight: int) -> None:
        """Starts with no request; the connection bounds those of all its threads together. `index` is the concrete one."""
        self._connection, self._index, self._in_flight = connection, index, in_flight
        self._where = f"index {index} at {connection.address}"
        self._pool = ThreadPoolExecutor(in_flight, "bulk")
        self._pending: set[Future[None]] = set()
        self._closed = threading.Event()

    def add(self, documents: Sequence[Action]) -> None:
        """Queues documents for loading; raises RetrieverError if one, also of an earlier call, is refused, or patience ends."""
        for start in range(0, len(documents), _DOCUMENTS):
            while len(self._pending) > self._in_flight:
                self._collect(FIRST_COMPLETED)
            self._pending.add(self._pool.submit(self._load, documents[start : start + _DOCUMENTS]))

    def drain(self) -> None:
        """Waits until all documents are loaded; raises as `add`."""
        self._collect(FIRST_EXCEPTION)

    def close(self) -> None:
        """Drops documents that are queued or wait to be sent again; waits for requests in flight."""
        self._closed.set()
        self._pool.shutdown(cancel_futures=True)

    def _collect(self, until: str) -> None:
        done, self._pending = wait(self._pending, return_when=until)
        for future in done:
            future.result()

    def _load(self, documents: Sequence[Action]) -> None:
        """Sends documents until each of them is in the index."""
        left = {action["_id"]: action for action in documents}
        try:
            self._connection.retry(lambda: self._send(left), self._connection.patience, self._closed)
        except RequestRefused as refused:
            if refused.status != 413 or len(left) == 1:
                words = f"{refused.said}; correct the corpus or the config"
                raise RetrieverError("elastic-refused", f"{self._where}: {words}") from None
            rest = list(left.values())  # a proxy before the server may limit requests to less than `_BYTES`
            self._load(rest[: len(rest) // 2])
            self._load(rest[len(rest) // 2 :])

    def _send(self, left: dict[str, Action]) -> None:
        """Sends documents once and removes those that are in the index from `left`."""
        from elasticsearch.helpers import streaming_bulk

        said = "an answer that lacks documents"
        with self._connection.client(f"POST /{self._index}/_bulk") as client:
            results: Any = streaming_bulk(
                client, list(left.values()), chunk_size=_DOCUMENTS, max_chunk_bytes=_BYTES, raise_on_error=False,
                index=self._index, filter_path=_FILTER,
            )  # fmt: skip
            # Closed by this thread: the library's span would end in another context. An answer may be a login page.
            with closing(results), suppress(KeyError, TypeError):
                for created, result in results:
                    item = result["create"]
                    kind = (item.get("error") or {}).get("type")
                    if created or item["status"] == _CONFLICT:
                        left.pop(item["_id"])
                    elif item["status"] in BUSY:
                        said = f"documents were answered {item['status']} {kind}"
                    elif kind == _CLOSED_INDEX:
                        words = "another process has finished it meanwhile; run the same command again"
                        raise RetrieverError("run-held", f"{self._where}: {words}")
                    else:
                        kind, why = error_words(item.get("error") or {})
                        words = f"document {item['_id']!r} is refused: {kind}: {one_line(why, 200)}; correct the corpus"
                        raise RetrieverError("elastic-refused", f"{self._where}: {words}")
        if left:
            raise ServerUnavailable(said, overloaded=True)


def create_action(doc_id: str, fields: dict[str, Any]) -> Action:
    """Returns the action that creates a document; its body is JSON already, and the library sends bytes as they are."""
    import orjson

    size = len(doc_id.encode())
    if not 0 < size <= _LONGEST_ID:
        what = "is empty" if not size else f"{doc_id[:40]!r}... has {size} bytes"
        words = f"a doc_id {what}; Elasticsearch takes 1 to {_LONGEST_ID} bytes"
        raise RetrieverError("corpus", f"corpus: {words}; give that document another")
    source = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=str)
    return {"_op_type": "create", "_id": doc_id, "_source": source}
