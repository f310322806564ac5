"""The client of a server with an encoder or a reranker: requests in flight, batches that are halved where they are refused.

A server that gives no valid answer for the patience ends the run, as a wrong key or address does; a request that fails by
itself fails the queries whose texts it has (`retrievers/served/server.py`).
"""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from cluster.errors import nearest
from retrievers.batches import in_threads
from retrievers.served.server import Server, ServerAway, TextRefused
from retrievers.settings import ServerSettings

PROBE = "a probe"  # the text of a first request
_OPENING_PATIENCE = 3.0  # seconds; before a run a server that does not answer is refused at once

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")
Use = Literal["embedding", "reranker"]


class ServedFacts(NamedTuple):
    """The facts that a server tells of itself and of a model, before any text is sent to it; None: not known."""

    api: str  # "tei" (text-embeddings-inference), "vllm", or "openai" for any other
    identity: Mapping[str, Any]  # of the weights and of what it makes of a text, as JSON values
    max_batch: int | None = None  # texts of a request
    max_length: int | None = None  # tokens of a text


class ModelServer(Server):
    """A server and one of its models. Threads may share it."""

    waits_patience = True

    def __init__(self, what: str, settings: ServerSettings, use: Use, *, patient: bool = False) -> None:
        """Reads the key from the environment, and asks the server for the model. `what` is the model's use, for messages.

        Where `patient`, the run's plan has reached the server, so that a worker waits for it when it opens; otherwise a server
        that is away is refused within seconds.
        """
        base = settings.base_url
        assert base is not None, "a config without one is refused"
        super().__init__(f"{what} {settings.model} at {base}", f"model server {base}", base, settings)
        self.model, self.root = settings.model, base.removesuffix("/v1")
        self._opening_patience = self.patience if patient else min(_OPENING_PATIENCE, self.patience)
        self._listed: tuple[str, ...] | None = None  # the models that the server lists; None: it has no list
        self._probe: Callable[[], object] | None = None  # sends the first request, which was answered well, once more
        self._refused: dict[Hashable, str] = {}  # a block is halved until its bad rows are found: ask once for each
        self.facts = self._read_facts(use)
        self.batch = min(settings.batch, self.facts.max_batch or settings.batch)

    def _read_facts(self, use: Use) -> ServedFacts:
        """Returns the facts that `GET /info` (text-embeddings-inference) or `GET /v1/models` tells of the model.

        Where it refuses these or fails on them, or does not list the model, its answer to the first request decides.
        """
        info = self._told(f"{self.root}/info")  # only text-embeddings-inference has it
        if isinstance(info, dict) and isinstance(info.get("model_type"), dict) and "model_id" in info:
            self._listed = (str(info["model_id"]),)
            return self._of_tei(use, info)
        listed = self._told(f"{self.base}/models", _listed)
        self._listed = None if listed is None else tuple(listed)
        card = (listed or {}).get(self.model, {})
        if card.get("owned_by") != "vllm":
            return ServedFacts("openai", {})
        root = str(card.get("root") or "")
        weights = None if root.startswith(("/", ".", "~")) else root  # a folder there says where, not which
        return ServedFacts("vllm", _known(weights=weights), max_length=_count(card.get("max_model_len")))

    def _told(self, url: str, read: Callable[[Any], Any] | None = None) -> Any:
        """Returns the server's answer at an address; None where it refuses it, or fails until the patience ends."""
        try:
            return self.ask(url, read=read, patience=self._opening_patience, fatal=False)
        except TextRefused:
            return None
        except ServerAway as away:
            if not away.answers:
                raise
            return None

    def _of_tei(self, use: Use, info: Mapping[str, Any]) -> ServedFacts:
        if self.model != info["model_id"]:
            similar = nearest(self.model, self._listed or ())
            raise self.error("model", f"the server has no such model{similar}; name that one")
        (kind, details), *_ = info["model_type"].items()
        if kind != use:
            raise self.error("model", f"the server serves it as {kind}, not as {use}; name another server")
        if use == "embedding" and info.get("auto_truncate") is False:
            problem = "the server refuses texts that are too long for the model; start it with --auto-truncate"
            raise self.error("engine-setting", problem)
        pooling = details.get("pooling") if isinstance(details, dict) else None
        identity = _known(revision=info.get("model_sha"), pooling=pooling, dtype=info.get("model_dtype"))
        return ServedFacts("tei", identity, _count(info.get("max_client_batch_size")), _count(info.get("max_input_length")))

    def probe(self, url: str, body: Any, read: Callable[[Any], Result], gives: str, does: str) -> Result:
        """Returns the result of `read` for the answer to a first request, which shows the model's purpose.

        `gives` and `does` say what the model must give, and what the server must do with it, for messages: vectors, embeds.
        """
        try:
            result = self.ask(url, body, read, patience=self._opening_patience, fatal=False)
            self._probe = lambda: self.ask(url, body, read, fatal=False)
            return result
        except TextRefused as refused:
            if refused.of_all is not None and (self._listed is None or refused.of_all.code == "server-access"):
                raise refused.of_all from None
            problem = f"it gives no {gives}: {refused.reply}; name a model that the server {does} with"
            if self._listed is not None and self.model not in self._listed:
                problem = f"the server has no such model{nearest(self.model, self._listed)} ({refused.reply}); name one of them"
            raise self.error("model", problem) from None

    def answers_others(self) -> bool:
        """Returns True if the server still answers the first request."""
        try:
            return self._probe is not None and self._probe() is not None
        except TextRefused:
            return False

    def answers(
        self, items: Sequence[Sequence[Item]], send: Callable[[Sequence[Item], threading.Event], list[Result]]
    ) -> list[Result]:
        """Returns the result of each item, in batches of the items of one group; `max_in_flight` requests are in flight.

        Items are distinct. A batch that the server refuses is halved, since it may be too large as a whole. An item that is
        refused by itself is not sent again: its TextRefused names it. `send` gives up when the event is set.
        """
        batches = [group[start : start + self.batch] for group in items for start in range(0, len(group), self.batch)]
        for item in (item for batch in batches for item in batch if item in self._refused):
            raise TextRefused(self.what, self._refused[item], item=item)
        parts = in_threads(lambda batch, stop: self._halved(batch, send, stop), batches, self._settings.max_in_flight)
        return [result for part in parts for result in part]

    def _halved(
        self, items: Sequence[Item], send: Callable[[Sequence[Item], threading.Event], list[Result]], stop: threading.Event
    ) -> list[Result]:
        try:
            return send(items, stop)
        except TextRefused as refused:
            if len(items) == 1:
                if not stop.is_set():
                    self._refused[items[0]] = refused.reply
                refused.item = items[0]
                raise
            middle = len(items) // 2
            return self._halved(items[:middle], send, stop) + self._halved(items[middle:], send, stop)


def in_order(listed: Any, count: int, what: str) -> list[dict[str, Any]]:
    """Returns the items of an answer in the order of its texts, by their `index`; raises ValueError unless one for each."""
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError(f"it holds no {what}")
    places = [one.get("index", place) for place, one in enumerate(listed)]
    if not all(isinstance(place, int) for place in places) or sorted(places) != list(range(count)):
        raise ValueError(f"it holds {len(listed)} {what} for {count} texts, or their numbers are wrong")
    return [one for _, one in sorted(zip(places, listed, strict=True), key=lambda item: item[0])]


def _known(**facts: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _listed(answer: Any) -> dict[str, dict[str, Any]]:
    """Returns the models of `GET /v1/models` by name. Raises ValueError if it is no such list."""
    listed = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(listed, list) or not all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in listed):
        raise ValueError("it is no list of models")
    return {one["id"]: one for one in listed}
