"""Retrievers of `kind: web`: each text is a request to a search engine; hits bring their texts with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from cluster.errors import RetrieverError
from retrievers.corpora.in_memory import DocumentsInMemory
from retrievers.retriever import (
    Alive,
    DocumentStore,
    JoinedText,
    RankedList,
    RankedLists,
    Retriever,
    SearchText,
    check_planned,
    joined_lists,
    no_heartbeat,
)
from retrievers.served.server import Server, ServerAway, TextRefused
from retrievers.web.hits import WebHit, WebPage, cut, hits_of
from retrievers.web.providers import CHARACTERS, PROVIDERS
from retrievers.web.settings import WebSettings


class FailedSearch(NamedTuple):
    """A search without an answer."""

    reason: str  # unavailable, rate_limited, refused, timeout, server_error, bad_answer
    message: str


class PartialAnswer(tuple[WebHit, ...]):
    """The hits of a search that some of the server's search engines did not answer: `silent`, in words."""

    silent: str


WebAnswer = tuple[WebHit, ...] | FailedSearch
Sending = Callable[[str], object]


class Web:
    """A search engine of the web; implements `retrievers.retriever.Retriever`. Cost: a request for each different text."""

    def __init__(self, key: str, settings: WebSettings) -> None:
        """Reads the key from the environment; sends nothing. `key` is its place in the config, for messages."""
        self.settings, self._provider = settings, PROVIDERS[settings.provider]
        where = f"{key}: {settings.provider}"
        self.base = str(settings.base_url)
        self._server = Server(
            f"{where} at {self.base}", f"web search at {self.base}", self.base, settings, self._provider.key_header,
            self._provider.wait,
        )  # fmt: skip

    @property
    def host(self) -> str:
        """Returns the host of its server."""
        return urlsplit(self.base).hostname or ""

    def identity(self) -> dict[str, Any]:
        """Returns the provider and what is asked of it."""
        return self.settings.identity

    def sent(self, text: SearchText | JoinedText) -> str:
        """Returns the text of a search as it is sent: in one line, and cut where the provider takes no more."""
        parts = (text,) if isinstance(text, SearchText) else text.texts
        return cut(" ".join(part.text for part in parts), CHARACTERS, self._provider.words)

    def is_cut(self, text: SearchText | JoinedText) -> bool:
        """Returns whether a text is longer than what is sent of it."""
        parts = (text,) if isinstance(text, SearchText) else text.texts
        return self.sent(text) != " ".join(" ".join(part.text for part in parts).split())

    def find(self, texts: Sequence[str], sending: Sending = lambda _: None) -> Iterator[tuple[str, WebAnswer]]:
        """Yields each text with what was found, as it comes; `max_in_flight` requests are in flight at most.

        Args:
            texts: Different ones, as `sent` returns them; a blank one finds nothing, and is not sent.
            sending: Called with the text before each send.

        Raises:
            RetrieverError: No search succeeds: the key or the address. What was answered before is yielded.
        """
        asked = [text for text in texts if text]
        yield from ((text, ()) for text in texts if not text)
        stop = threading.Event()
        error: RetrieverError | None = None
        with ThreadPoolExecutor(max(1, min(self.settings.max_in_flight, len(asked))), "web") as threads:
            futures: dict[Future[WebAnswer], str] = {threads.submit(self._ask, text, sending, stop): text for text in asked}
            try:
                for future in as_completed(futures):
                    if future.cancelled():
                        continue
                    try:
                        answer = future.result()
                    except RetrieverError as fatal:
                        error = error or fatal
                        stop.set()
                        for other in futures:
                            other.cancel()
                        continue
                    if not (isinstance(answer, FailedSearch) and answer.reason == "stopped"):
                        yield futures[future], answer
            finally:
                stop.set()
                for future in futures:
                    future.cancel()
        if error is not None:
            raise error

    def search(self, texts: Sequence[SearchText | JoinedText], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Returns the `depth` best pages of each text."""
        sent = [self.sent(text) for text in texts]
        found: dict[str, tuple[WebHit, ...]] = {}
        for text, answer in self.find(list(dict.fromkeys(sent))):
            if isinstance(answer, FailedSearch):
                raise TextRefused(self._server.what, answer.message, reason=answer.reason)
            found[text] = answer
            alive()
        return joined_lists([ranked_list(found[text][: max(0, depth)]) for text in sent])

    def _ask(self, text: str, sending: Sending, stop: threading.Event) -> WebAnswer:
        path, body = self._provider.request(self.settings, text)

        def before() -> None:
            if stop.is_set():
                raise TextRefused(self._server.what, "stopped, since another request failed", reason="stopped")
            sending(text)

        try:
            pages, silent = self._server.ask(f"{self.base}{path}", body, self._read, stop=stop, sending=before)
        except TextRefused as refused:
            return FailedSearch(refused.reason, refused.words)
        except ServerAway as away:
            return FailedSearch(away.reason, away.line)
        except RetrieverError as error:
            stop.set()  # before this thread takes the next text
            raise self._of_all(error) from None
        hits = hits_of(pages, self.settings.results)
        if silent:
            hits = PartialAnswer(hits)
            hits.silent = silent
        return hits

    def _read(self, answer: Any) -> tuple[list[WebPage], str]:
        return self._provider.pages(answer), self._provider.silent(answer)

    def _of_all(self, error: RetrieverError) -> RetrieverError:
        """Returns the error of a refusal that every search would get, with what to do about a search engine."""
        words = error.line.rpartition("; ")[0]
        if error.code == "server-access" and self._provider.forbidden and self._server.keyless:
            return RetrieverError(error.code, f"{words}; if that is no matter of a key, {self._provider.forbidden}")
        if error.code == "server-away":
            return RetrieverError(error.code, f"{words}; correct base_url, which ends before the path of the search")
        return error


def ranked_list(hits: Sequence[WebHit]) -> RankedList:
    """Returns hits without their texts."""
    return RankedList(
        pa.array([hit.doc_id for hit in hits], pa.string()), np.array([hit.score for hit in hits], dtype=np.float64)
    )


def open_retriever(
    name: str, settings: WebSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """Opens the search engine; see `retrievers.retriever.open_retriever`."""
    check_planned(f"retrieve.retrievers.{name}", expect_identity, settings.identity)
    return Web(f"retrieve.retrievers.{name}", settings)


def open_documents(name: str, settings: WebSettings, *, patient: bool = False) -> DocumentStore:
    """Returns a store without documents; see `retrievers.retriever.open_documents`."""
    return DocumentsInMemory(f"retrieve.retrievers.{name}", {}, "the web has no index: read the run's table web/")


def retriever_identity(name: str, settings: WebSettings) -> dict[str, Any]:
    """Returns the identity, after a look whether the key is there; see `retrievers.retriever.retriever_identity`."""
    return Web(f"retrieve.retrievers.{name}", settings).identity()
