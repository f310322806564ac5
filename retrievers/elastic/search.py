"""Many searches in few `_msearch` requests, several in flight; rejected searches are sent again.

Elasticsearch answers a search that it has no capacity for with an item of status 429 inside an answer of status 200, which no
client retries. Such items are sent again in rounds: each in smaller requests, fewer at a time, after a backoff; rounds without
failures raise both again, slowly. An unreachable server is retried with requests of the same size.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from cluster.outages import pause
from retrievers.elastic.connection import Connection
from retrievers.elastic.failures import BUSY, RequestRefused, ServerUnavailable, error_words
from retrievers.elastic.index import gone
from retrievers.retriever import Alive, no_heartbeat

_TRIES = 5  # of an item that is answered 500, or 429 even alone: the cause is usually the node, sometimes this very search
_ROUNDS = 4  # requests per slot in a round while the server is overloaded, so that the next round adapts soon
_TOO_LARGE = "circuit_breaking_exception"  # 429 like a full queue, but for the memory that this one search needs
_PARTS = (
    "status", "error", "timed_out", "_shards.failed", "_shards.failures", "hits.hits.sort", "hits.hits._id", "hits.hits._score",
)  # fmt: skip


class SearchRefused(Exception):
    """Elasticsearch refuses one search; the others of its request are not affected."""


class SearchHits(NamedTuple):
    """Hits of one search, in the server's order."""

    doc_ids: list[str]
    scores: list[float]


class MultiSearch:
    """Searches one index; one thread calls it."""

    def __init__(self, connection: Connection, index: str, in_flight: int, batch: int, ordered: bool) -> None:
        """Starts with the largest requests: `batch` searches each, `in_flight` of them at a time, over the concrete index.

        Where `ordered`, hits carry `[score, doc_id]` (`query.envelope`).
        """
        self._connection, self._index = connection, index
        self._max_in_flight, self._max_batch, self._ordered = in_flight, batch, ordered
        self._in_flight, self._batch = in_flight, batch
        unused = ("hits.hits._id", "hits.hits._score") if ordered else ("hits.hits.sort",)
        self._filter = ",".join(f"responses.{part}" for part in _PARTS if part not in unused)

    def run(self, searches: Sequence[bytes], alive: Alive = no_heartbeat) -> list[SearchHits]:
        """Returns the hits of each search (two lines of JSON); calls `alive` after every request and every backoff.

        Raises:
            SearchRefused: The server refuses a search.
            RetrieverError: No search succeeded for the connection's patience; the index is gone.
        """
        found: list[SearchHits | None] = [None] * len(searches)
        left = list(range(len(searches)))
        tries = dict.fromkeys(left, 0)
        failed, last_success = 0, time.monotonic()  # failed: rounds in a row
        while left:
            unlimited = (self._batch, self._in_flight) == (self._max_batch, self._max_in_flight)
            now = left if unlimited else left[: _ROUNDS * self._batch * self._in_flight]
            failures = self._round(searches, now, found, tries, alive)
            before, left = len(left), [place for place in left if found[place] is None]
            if len(left) < before:
                last_success = time.monotonic()
                failed = failed if len(failures) > before - len(left) else 0
            if not failures:
                self._batch = min(self._max_batch, self._batch + max(1, self._max_batch // 8))
                self._in_flight = min(self._max_in_flight, self._in_flight + 1)
                continue
            if time.monotonic() - last_success > self._connection.patience:
                raise self._connection.unavailable(next(iter(failures.values())))
            if any(failure.overloaded for failure in failures.values()):
                self._batch, self._in_flight = max(1, self._batch // 2), max(1, self._in_flight // 2)
            failed += 1
            time.sleep(pause(failed))
            alive()
        return [hits for hits in found if hits is not None]

    def _round(
        self, searches: Sequence[bytes], left: list[int], found: list[SearchHits | None], tries: dict[int, int], alive: Alive
    ) -> dict[int, ServerUnavailable]:
        """Sends searches once, enters their hits in `found` and returns the failures.

        A request that fails as a whole ends the round: with an unreachable server all others would fail, too.
        """
        parts = [left[start : start + self._batch] for start in range(0, len(left), self._batch)]
        stop = threading.Event()
        failures: dict[int, ServerUnavailable] = {}

        def send(part: list[int]) -> None:
            if stop.is_set():
                return
            try:
                items = self._send([searches[place] for place in part])
            except ServerUnavailable as failure:
                if failure.overloaded and len(part) == 1 and any(found):  # the search itself: others were answered
                    self._count_try(tries, part[0], str(failure))
                stop.set()
                failures.update(dict.fromkeys(part, failure))
                return
            except BaseException:
                stop.set()
                raise
            for place, item in zip(part, items, strict=True):
                try:
                    found[place] = self._hits(item, tries, place)
                except ServerUnavailable as failure:
                    failures[place] = failure

        if len(parts) == 1 or self._in_flight == 1:
            for part in parts:
                send(part)
                alive()
        else:
            with ThreadPoolExecutor(min(self._in_flight, len(parts)), "search") as pool:
                for _ in pool.map(send, parts):
                    alive()
        return failures

    def _count_try(self, tries: dict[int, int], place: int, message: str) -> None:
        """Counts a failure that this very search may have caused.

        Raises:
            SearchRefused: It was the last try.
        """
        tries[place] += 1
        if tries[place] >= _TRIES:
            raise SearchRefused(f"{message}, {_TRIES} times")

    def _send(self, lines: list[bytes]) -> list[Any]:
        path, params = f"/{self._index}/_msearch", {"filter_path": self._filter}
        try:
            answer = self._connection.send("POST", path, b"".join(lines), lines=True, params=params)
        except RequestRefused as refused:
            if refused.status == 413 and len(lines) > 1:
                half = len(lines) // 2
                return self._send(lines[:half]) + self._send(lines[half:])
            raise (gone(self._connection, self._index, refused.kind) or SearchRefused(refused.said)) from None
        items = (answer.body or {}).get("responses")
        if not isinstance(items, list) or len(items) != len(lines):
            raise ServerUnavailable("an answer that lacks searches")
        return items

    def _hits(self, item: dict[str, Any], tries: dict[int, int], place: int) -> SearchHits:
        """Returns the hits of one item.

        Raises:
            ServerUnavailable: No capacity, or some shards failed, so that hits are missing.
            SearchRefused: The server refuses it, or has failed too often.
        """
        if "error" in item:
            kind, reason = error_words(item["error"]) if isinstance(item["error"], dict) else ("", str(item["error"]))
            status = int(item.get("status", 500))
            said = f"a search was answered {status} {kind}".strip()
            if status in BUSY:
                if kind == _TOO_LARGE and self._batch == 1:
                    self._count_try(tries, place, said)
                raise ServerUnavailable(said, overloaded=True)
            if status < 500:
                refused = SearchRefused(f"{kind}: {' '.join(reason.split())[:200]}")
                raise gone(self._connection, self._index, kind) or refused
            self._count_try(tries, place, f"{said}: {' '.join(reason.split())[:200]}")
            raise ServerUnavailable(said)
        shards = item.get("_shards") or {}
        if shards.get("failed"):
            failures = shards.get("failures") or [{}]
            kind = (failures[0].get("reason") or {}).get("type", "")
            raise ServerUnavailable(f"a search failed on {shards['failed']} shards {kind}".strip())
        if item.get("timed_out"):
            raise ServerUnavailable("a search ran into its time limit on some shards", overloaded=True)
        hits = (item.get("hits") or {}).get("hits") or []
        if self._ordered:
            return SearchHits([hit["sort"][1] for hit in hits], [hit["sort"][0] for hit in hits])
        return SearchHits([hit["_id"] for hit in hits], [hit["_score"] for hit in hits])
