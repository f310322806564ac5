"""Documents into an Elasticsearch index: bulk requests in flight while the next are made, repeated item by item.

Documents are created, never overwritten: one that is there already (a request whose answer was lost, a build that goes on)
is answered 409 and counts as loaded, so nothing is indexed twice and no deleted copy stays in the statistics of BM25.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from retrievers.elastic_client import BUSY, Connection, Pauses, Refused, Trouble
from retrievers.retriever import RetrieverError

_DOCUMENTS, _BYTES = 500, 5 << 20  # of a bulk request, at most; a larger document goes alone
_LONGEST_ID = 512  # bytes that Elasticsearch takes
_THERE = 409
_FILTER = "errors,items.create.status,items.create.error.type,items.create.error.reason"

Line = tuple[str, bytes]


class Loading:
    """Bulk requests of one index. `add` waits where enough of them are in flight; `drain` until all are answered."""

    def __init__(self, connection: Connection, index: str, in_flight: int) -> None:
        self._connection, self._index = connection, index
        self._pool = ThreadPoolExecutor(in_flight, "bulk")
        self._room = threading.Semaphore(in_flight + 1)
        self._sent: list[Future[None]] = []
        self._part: list[Line] = []
        self._size = 0
        self._closed = threading.Event()
        self.repeated = 0
        """Documents that were sent again."""

    def add(self, documents: Iterable[Line]) -> None:
        """Send documents, each given as its id and its line of JSON.

        Raises:
            RetrieverError: one of them, or one before, is refused; no good answer for as long as there is patience.
        """
        for doc_id, line in documents:
            if self._part and (len(self._part) >= _DOCUMENTS or self._size + len(line) > _BYTES):
                self._submit()
            self._part.append((doc_id, line))
            self._size += len(line)

    def drain(self) -> None:
        """Send what is left and wait for every answer; raises as `add`."""
        self._submit()
        for future in self._sent:
            future.result()
        self._sent = []

    def close(self) -> None:
        """Give up what is not sent yet, or is to be sent again."""
        self._closed.set()
        self._pool.shutdown(cancel_futures=True)

    def _submit(self) -> None:
        part, self._part, self._size = self._part, [], 0
        for future in [one for one in self._sent if one.done()]:
            self._sent.remove(future)
            future.result()
        if part:
            self._room.acquire()
            self._sent.append(self._pool.submit(self._load, part))

    def _load(self, part: list[Line]) -> None:
        try:
            pauses, well = Pauses(), time.monotonic()
            left, size = part, len(part)
            while left and not self._closed.is_set():
                now, rest = left[:size], left[size:]
                busy, said = self._send(now)
                if len(busy) < len(now):
                    well = time.monotonic()
                left = busy + rest
                if not busy:
                    continue
                if time.monotonic() - well > self._connection.patience:
                    raise self._connection.away(said)
                self.repeated += len(busy)
                size = max(1, size // 2)
                pauses.wait(self._closed)
        finally:
            self._room.release()

    def _send(self, part: list[Line]) -> tuple[list[Line], object]:
        """One bulk request; gives the documents that it had no room for, and what was said."""
        body = b"".join(line for _, line in part)
        try:
            answer = self._connection.once("POST", f"/{self._index}/_bulk", body, lines=True, params={"filter_path": _FILTER})
        except Trouble as trouble:
            return part, trouble
        except Refused as refused:
            if refused.status == 413 and len(part) > 1:
                half = len(part) // 2
                first, said = self._send(part[:half])
                second, other = self._send(part[half:])
                return first + second, said or other
            raise RetrieverError(f"{self._where}: {refused.said}; correct the corpus or the config") from None
        if not answer.body.get("errors"):
            return [], None
        items = answer.body.get("items") or []
        if len(items) != len(part):
            return part, "an answer that lacks documents"
        busy, said = [], ""
        for document, item in zip(part, items, strict=True):
            status, error = item["create"]["status"], item["create"].get("error") or {}
            if status in BUSY:
                busy.append(document)
                said = f"documents were answered {status} {error.get('type', '')}".strip()
            elif status >= 300 and status != _THERE:
                reason = " ".join(str(error.get("reason", "")).split())[:200]
                raise RetrieverError(
                    f"{self._where}: document {document[0]!r} is refused: {error.get('type')}: {reason}; correct the corpus"
                )
        return busy, said

    @property
    def _where(self) -> str:
        return f"index {self._index} at {self._connection.shown}"


def as_line(doc_id: str, document: dict[str, Any]) -> Line:
    """A document as a bulk request has it.

    Raises:
        RetrieverError: a doc_id that Elasticsearch does not take.
    """
    import orjson

    size = len(doc_id.encode())
    if not 0 < size <= _LONGEST_ID:
        what = "is empty" if not size else f"{doc_id[:40]!r}... has {size} bytes"
        raise RetrieverError(
            f"corpus: a doc_id {what}; Elasticsearch takes 1 to {_LONGEST_ID} bytes; give that document another"
        )
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    action = orjson.dumps({"create": {"_id": doc_id}}, option=option)
    return doc_id, action + orjson.dumps(document, option=option | orjson.OPT_NON_STR_KEYS, default=str)
