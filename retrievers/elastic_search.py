"""Many searches in few requests: `_msearch`, several requests in flight, and again what the server had no room for.

A search that Elasticsearch has no room for comes back as an item of status 429 inside an answer of status 200, which no
client retries. Items are sent again in rounds: the next one in smaller requests, fewer at a time, after a pause of random
length; calm rounds bring both back up, slowly. A server that is away is waited for, and is asked for no less afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from retrievers.elastic_client import BUSY, Connection, Pauses, Refused, Trouble, error_words
from retrievers.elastic_index import gone
from retrievers.retriever import Alive, unwatched

_TRIES = 5  # of an item that is answered with 500, or is too much even alone: most often the node, sometimes this very search
_ROUNDS = 4  # requests of each place in a round, where the server is short of room: what it has room for is soon found out
_TOO_MUCH = "circuit_breaking_exception"  # 429, as a full queue is, but of what this one search would need
_PARTS = (
    "status",
    "error",
    "timed_out",
    "_shards.failed",
    "_shards.failures",
    "hits.hits.sort",
    "hits.hits._id",
    "hits.hits._score",
)


class SearchRefused(Exception):
    """Elasticsearch will not do this search; the others of its request are not concerned."""


class Hits(NamedTuple):
    """Of one search, in the server's order."""

    doc_ids: list[str]
    scores: list[float]


class Searches:
    """Searches one index; for the thread that calls it."""

    def __init__(self, connection: Connection, index: str, in_flight: int, batch: int, ordered: bool) -> None:
        """
        Args:
            index: the concrete index, no alias.
            in_flight: requests at a time, at most.
            batch: searches per request, at most.
            ordered: hits carry ``[score, doc_id]`` (`elastic_query.envelope`).
        """
        self._connection, self._index = connection, index
        self._most, self._largest, self._ordered = in_flight, batch, ordered
        self._width, self._batch = in_flight, batch
        asked = ("hits.hits._id", "hits.hits._score") if ordered else ("hits.hits.sort",)
        self._filter = ",".join(f"responses.{part}" for part in _PARTS if part not in asked)
        self.repeated = 0
        """Searches that were sent again."""

    def run(self, searches: Sequence[bytes], alive: Alive = unwatched) -> list[Hits]:
        """The hits of each search, given as its two lines of JSON.

        Args:
            alive: called now and then, also while the server is waited for.

        Raises:
            SearchRefused: the server will not do one of them.
            RetrieverError: no good answer for as long as the connection has patience; the index is gone.
        """
        found: list[Hits | None] = [None] * len(searches)
        left = list(range(len(searches)))
        tries = dict.fromkeys(left, 0)
        pauses, well = Pauses(), time.monotonic()
        while left:
            calm = (self._batch, self._width) == (self._largest, self._most)
            now = left if calm else left[: _ROUNDS * self._batch * self._width]
            troubles = self._round(searches, now, found, tries, alive)
            before, left = len(left), [place for place in left if found[place] is None]
            if len(left) < before:
                pauses, well = (pauses if len(troubles) > before - len(left) else Pauses()), time.monotonic()
            if not troubles:
                self._batch = min(self._largest, self._batch + max(1, self._largest // 8))
                self._width = min(self._most, self._width + 1)
                continue
            if time.monotonic() - well > self._connection.patience:
                raise self._connection.away(next(iter(troubles.values())))
            self.repeated += len(troubles)
            if any(trouble.full for trouble in troubles.values()):
                self._batch, self._width = max(1, self._batch // 2), max(1, self._width // 2)
            pauses.wait()
            alive()
        return [hits for hits in found if hits is not None]

    def _round(
        self,
        searches: Sequence[bytes],
        left: list[int],
        found: list[Hits | None],
        tries: dict[int, int],
        alive: Alive,
    ) -> dict[int, Trouble]:
        """Send these once; fills `found`, gives which had trouble. After a request that failed as a whole nothing more is
        sent in this round: a server that is away would be asked in vain for every one."""
        parts = [left[start : start + self._batch] for start in range(0, len(left), self._batch)]
        stop = threading.Event()
        troubles: dict[int, Trouble] = {}

        def send(part: list[int]) -> None:
            if stop.is_set():
                return
            try:
                items = self._send([searches[place] for place in part])
            except Trouble as trouble:
                if trouble.full and len(part) == 1 and any(found):  # not the server: others were answered
                    self._tried(tries, part[0], str(trouble))
                stop.set()
                troubles.update(dict.fromkeys(part, trouble))
                return
            except BaseException:
                stop.set()
                raise
            for place, item in zip(part, items, strict=True):
                try:
                    found[place] = self._hits(item, tries, place)
                except Trouble as trouble:
                    troubles[place] = trouble

        if len(parts) == 1 or self._width == 1:
            for part in parts:
                send(part)
                alive()
        else:
            with ThreadPoolExecutor(min(self._width, len(parts)), "search") as pool:
                for _ in pool.map(send, parts):
                    alive()
        return troubles

    def _tried(self, tries: dict[int, int], place: int, words: str) -> None:
        """Count a try that this very search may have been too much for.

        Raises SearchRefused: there were enough.
        """
        tries[place] += 1
        if tries[place] >= _TRIES:
            raise SearchRefused(f"{words}, {_TRIES} times")

    def _send(self, lines: list[bytes]) -> list[Any]:
        path, params = f"/{self._index}/_msearch", {"filter_path": self._filter}
        try:
            answer = self._connection.once("POST", path, b"".join(lines), lines=True, params=params)
        except Refused as refused:
            if refused.status == 413 and len(lines) > 1:
                half = len(lines) // 2
                return self._send(lines[:half]) + self._send(lines[half:])
            raise (gone(self._connection, self._index, refused.kind) or SearchRefused(refused.said)) from None
        items = (answer.body or {}).get("responses")
        if not isinstance(items, list) or len(items) != len(lines):
            raise Trouble("an answer that lacks searches")
        return items

    def _hits(self, item: dict[str, Any], tries: dict[int, int], place: int) -> Hits:
        """The hits of one item.

        Raises:
            Trouble: no room for it, or some shards failed: then hits are missing that nobody would miss.
            SearchRefused: it is not to be had.
        """
        if "error" in item:
            kind, reason = error_words(item["error"]) if isinstance(item["error"], dict) else ("", str(item["error"]))
            status = int(item.get("status", 500))
            said = f"a search was answered {status} {kind}".strip()
            if status in BUSY:
                if kind == _TOO_MUCH and self._batch == 1:
                    self._tried(tries, place, said)
                raise Trouble(said, full=True)
            if status < 500:
                refused = SearchRefused(f"{kind}: {' '.join(reason.split())[:200]}")
                raise gone(self._connection, self._index, kind) or refused
            self._tried(tries, place, f"{said}: {' '.join(reason.split())[:200]}")
            raise Trouble(said)
        shards = item.get("_shards") or {}
        if shards.get("failed"):
            failures = shards.get("failures") or [{}]
            kind = (failures[0].get("reason") or {}).get("type", "")
            raise Trouble(f"a search failed on {shards['failed']} shards {kind}".strip())
        if item.get("timed_out"):
            raise Trouble("a search ran into its time limit on some shards", full=True)
        hits = (item.get("hits") or {}).get("hits") or []
        if self._ordered:
            return Hits([hit["sort"][1] for hit in hits], [hit["sort"][0] for hit in hits])
        return Hits([hit["_id"] for hit in hits], [hit["_score"] for hit in hits])
