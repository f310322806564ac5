"""The client of a server with an encoder or a reranker: requests in flight, batches that are halved where they are refused.

A server that gives no good answer for the patience ends the run, as a wrong key or address does; a request that fails by
itself fails the queries whose texts it has (`retrievers/served/server.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from cluster.errors import nearest
from retrievers.batches import in_threads
from retrievers.served.server import Server, TextRefused
from retrievers.settings import ServerSettings

PROBE = "a probe"  # the text of a first request
_OPENING_PATIENCE = 3.0  # seconds; before a run a server that does not answer is refused at once

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


class ModelServer(Server):
    """A server and one of its models. Threads may share it."""

    waits_patience = True

    def __init__(self, what: str, settings: ServerSettings, *, patient: bool = False) -> None:
        """Reads the key from the environment; sends nothing. `what` is the model's use, for messages.

        Where `patient`, the run's plan has reached the server, so that a worker waits for it when it opens; otherwise a server
        that is away is refused within seconds.
        """
        base = settings.base_url
        assert base is not None, "a config without one is refused"
        super().__init__(f"{what} {settings.model} at {base}", f"model server {base}", base, settings)
        self.model, self.root = settings.model, base.removesuffix("/v1")
        self.opening_patience = self.patience if patient else min(_OPENING_PATIENCE, self.patience)
        """Seconds of retries of the first requests."""
        self.listed: tuple[str, ...] | None = None
        """The models that the server lists; None: it has no list."""
        self._probe: Callable[[], object] | None = None  # sends the first request, which was answered well, once more
        self._refused: dict[Hashable, str] = {}  # a block is halved until its bad rows are found: ask once for each

    def probe(self, url: str, body: Any, read: Callable[[Any], Result], gives: str, does: str) -> Result:
        """Returns what `read` makes of the answer to a first request, which shows what the model is for.

        `gives` and `does` say what the model must give, and what the server must do with it, for messages: vectors, embeds.
        """
        try:
            result = self.ask(url, body, read, patience=self.opening_patience, fatal=False)
            self._probe = lambda: self.ask(url, body, read, fatal=False)
            return result
        except TextRefused as refused:
            if refused.of_all is not None and (self.listed is None or refused.of_all.code == "server-access"):
                raise refused.of_all from None
            if self.listed is not None and self.model not in self.listed:
                missing = f"the server has no such model{nearest(self.model, self.listed)} ({refused.words})"
                raise self.error("model", f"{missing}; name one of them") from None
            raise self.error(
                "model", f"it gives no {gives}: {refused.words}; name a model that the server {does} with"
            ) from None

    def answers_others(self) -> bool:
        """Returns whether the server still answers the first request."""
        try:
            return self._probe is not None and self._probe() is not None
        except TextRefused:
            return False

    def answers(
        self,
        batches: Sequence[Sequence[Item]],
        send: Callable[[Sequence[Item], threading.Event], list[Result]],
    ) -> list[list[Result]]:
        """Returns the results of each batch; at most ``max_in_flight`` requests are in flight.

        Batches are of distinct items. One that the server refuses is halved, since it may be too large as a whole. An item that
        is refused by itself is not sent again. `send` returns a result for each item; it gives up when the event is set.

        Raises:
            TextRefused, RetrieverError: Of a batch that fails, with its item; the others are given up.
        """
        for item in (item for batch in batches for item in batch if item in self._refused):
            raise TextRefused(self.what, self._refused[item], item=item)
        return in_threads(lambda batch, stop: self._halved(batch, send, stop), batches, self._settings.max_in_flight)

    def _halved(
        self, items: Sequence[Item], send: Callable[[Sequence[Item], threading.Event], list[Result]], stop: threading.Event
    ) -> list[Result]:
        try:
            return send(items, stop)
        except TextRefused as refused:
            if len(items) == 1:
                if not stop.is_set():
                    self._refused[items[0]] = refused.words
                refused.item = items[0]
                raise
            middle = len(items) // 2
            return self._halved(items[:middle], send, stop) + self._halved(items[middle:], send, stop)


def in_order(listed: Any, count: int, what: str) -> list[dict[str, Any]]:
    """Returns the items of an answer in the order of its request's texts, which their `index` tells.

    Raises:
        ValueError: They are not one for each text.
    """
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError(f"it holds no {what}")
    places = [one.get("index", place) for place, one in enumerate(listed)]
    if not all(isinstance(place, int) for place in places) or sorted(places) != list(range(count)):
        raise ValueError(f"it holds {len(listed)} {what} for {count} texts, or their numbers are wrong")
    return [one for _, one in sorted(zip(places, listed, strict=True), key=lambda item: item[0])]
