"""Many searches in few `_msearch` requests, several in flight; rejected searches are sent again.

Elasticsearch answers a search that it has no capacity for with an item of status 429 inside an answer of status 200, which no
client retries. Such items are sent again, after a pause, in smaller requests. An unreachable server is retried with requests of
the same size.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from cluster.cause import one_line
from retrievers.batches import in_threads
from retrievers.elastic.connection import BUSY, Connection, RequestRefused, ServerUnavailable, error_words, hits_of
from retrievers.elastic.index import gone
from retrievers.retriever import Alive, no_heartbeat

_TRIES = 5  # of an item that is answered 500, or 429 even alone: the cause is usually the node, sometimes this very search
_TOO_LARGE = "circuit_breaking_exception"  # 429 like a full queue, but for the memory that this one search needs
_PARTS = ("status", "error", "timed_out", "_shards.failed", "_shards.failures")


class SearchRefused(Exception):
    """Elasticsearch refuses one search; the others of its request are not affected."""


SearchHits = list[tuple[str, float]]  # doc_id and score of each hit, in the server's order


class MultiSearch:
    """Searches one concrete index, with `batch` searches per request and `in_flight` requests at a time; one thread calls it.

    Where `ordered`, hits carry `[score, doc_id]`.
    """

    def __init__(self, connection: Connection, index: str, in_flight: int, batch: int, ordered: bool) -> None:
        self._connection, self._index, self._in_flight, self._batch = connection, index, in_flight, batch
        self._ordered = ordered
        parts = [*_PARTS, *(["hits.hits.sort"] if ordered else ["hits.hits._id", "hits.hits._score"])]
        self._filter = ",".join(f"responses.{part}" for part in parts)

    def run(self, searches: Sequence[bytes], alive: Alive = no_heartbeat) -> list[SearchHits]:
        """Returns the hits of each search (two lines of JSON); raises SearchRefused, or RetrieverError where patience ends."""
        answers: dict[int, SearchHits] = {}
        parts = [range(start, min(start + self._batch, len(searches))) for start in range(0, len(searches), self._batch)]
        in_threads(lambda part, stop: self._search(searches, part, answers, stop), parts, self._in_flight, alive)
        return [answers[place] for place in range(len(searches))]

    def _search(self, searches: Sequence[bytes], part: range, answers: dict[int, SearchHits], stop: threading.Event) -> None:
        """Enters the hits of a part of the searches; sends fewer at a time while the server lacks room for them."""
        size, tries = len(part), Counter[int]()

        def send() -> None:
            nonlocal size
            places, failures = [place for place in part if place not in answers][:size], dict[int, ServerUnavailable]()
            try:
                items = self._send([searches[place] for place in places])
            except ServerUnavailable as failure:
                alone = failure.overloaded and len(places) == 1 and answers  # the search itself: others were answered
                failure.of_item = bool(alone)
                items, failures = [], {places[0]: failure}
            for number, item in zip(places, items, strict=False):
                try:
                    answers[number] = self._hits(item)
                except ServerUnavailable as failure:
                    failures[number] = failure
            for number, failed in failures.items():
                tries[number] += failed.of_item and not (failed.overloaded and len(places) > 1)
                if tries[number] >= _TRIES:
                    raise SearchRefused(f"{failed}, {_TRIES} times")
            if any(failed.overloaded for failed in failures.values()):
                size = max(1, len(places) // 2)
            if failures:
                raise next(iter(failures.values()))

        while not stop.is_set() and any(place not in answers for place in part):
            self._connection.retry(send, self._connection.patience, stop)
            size = min(len(part), 2 * size)

    def _send(self, lines: list[bytes]) -> list[Any]:
        """Returns the items of an answer; searches that are too large together are sent in two requests."""
        path, params = f"/{self._index}/_msearch", {"filter_path": self._filter}
        try:
            answer = self._connection.send("POST", path, b"".join(lines), params=params)
        except RequestRefused as refused:
            if refused.status == 413 and len(lines) > 1:
                half = len(lines) // 2
                return self._send(lines[:half]) + self._send(lines[half:])
            raise (gone(self._connection, self._index, refused.kind) or SearchRefused(refused.problem)) from None
        items = (answer or {}).get("responses")
        if not isinstance(items, list) or len(items) != len(lines):
            raise ServerUnavailable("an answer that lacks searches")
        return items

    def _hits(self, item: dict[str, Any]) -> SearchHits:
        if "error" in item:
            kind, reason = error_words(item["error"]) if isinstance(item["error"], dict) else ("", str(item["error"]))
            status, reason = int(item.get("status", 500)), one_line(reason, 200)
            answer = f"a search was answered {status} {kind}".strip()
            if status in BUSY:
                raise ServerUnavailable(answer, overloaded=True, of_item=kind == _TOO_LARGE)
            if status < 500:
                raise gone(self._connection, self._index, kind) or SearchRefused(f"{kind}: {reason}")
            raise ServerUnavailable(f"{answer}: {reason}", of_item=True)
        shards = item.get("_shards") or {}
        if shards.get("failed"):
            failures = shards.get("failures") or [{}]
            kind = (failures[0].get("reason") or {}).get("type", "")
            raise ServerUnavailable(f"a search failed on {shards['failed']} shards {kind}".strip())
        if item.get("timed_out"):
            raise ServerUnavailable("a search ran into its time limit on some shards", overloaded=True)
        hits = hits_of(item)
        if self._ordered:
            return [(doc_id, score) for score, doc_id in (hit["sort"] for hit in hits)]
        return [(hit["_id"], hit["_score"]) for hit in hits]
