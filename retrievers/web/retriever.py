"""Retrievers of `kind: web`: each text is a request to a search engine; hits bring their texts with them.

Field names are those of SearXNG's `/search?format=json`, of Tavily's `POST /search` and of Brave's Web Search API.
"""

import html
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import numpy as np
import pyarrow as pa

from cluster.errors import RetrieverError
from cluster.http import retry_after
from retrievers.corpora.in_memory import DocumentsInMemory
from retrievers.retriever import Alive, RankedList, RankedLists, Search, SearchText, check_planned, joined_lists, no_heartbeat
from retrievers.served.server import Server, ServerAway, TextRefused, bearer
from retrievers.web.hits import WebHit, WebPage, cut, hits_of
from retrievers.web.settings import WebSettings

CHARACTERS = 400  # of a text: Tavily's and Brave's limit
_BRAVE_WORDS = 50
_MARKS = re.compile(r"</?strong>")

Request = tuple[str, dict[str, Any] | None]  # path with its query, and the JSON that is posted; None: it is gotten


class Provider(NamedTuple):
    """A provider's API."""

    request: Callable[[WebSettings, str], Request]  # of a text
    pages: Callable[[Any], list[WebPage]]  # of an answer, best first; raises ValueError, with the problem, if it is invalid
    most_words: int | None = None  # of a text at most; None: no limit
    key_header: Callable[[str], dict[str, str]] = bearer
    wait: Callable[[Mapping[str, str]], float | None] = retry_after  # seconds that the headers of a refusal ask to wait
    forbidden: str = ""  # what a 403 means where no key is asked for; "": that one is
    silent: Callable[[Any], str] = lambda _: ""  # the search engines that did not answer the server, in words


def _searxng(settings: WebSettings, text: str) -> Request:
    asked = {"q": text, "format": "json"}
    return f"/search?{_query(asked | settings.args)}", None


def _searxng_pages(answer: Any) -> list[WebPage]:
    listed = _listed(answer, "results")
    if not listed and (silent := _searxng_silent(answer)):  # nothing was found, as nobody looked
        raise ValueError(f"none of its engines answered: {silent}")
    return [WebPage(_text(one, "url"), _text(one, "title"), _text(one, "content"), _number(one.get("score"))) for one in listed]


def _searxng_silent(answer: Any) -> str:
    listed = answer.get("unresponsive_engines")
    engines = [one if isinstance(one, list) else [one] for one in listed] if isinstance(listed, list) else []
    return ", ".join(" ".join(map(str, one)) for one in engines)


def _tavily(settings: WebSettings, text: str) -> Request:
    asked = {"query": text, "max_results": settings.results}
    return "/search", {name: value for name, value in (asked | settings.args).items() if value is not None}


def _tavily_pages(answer: Any) -> list[WebPage]:
    pages = []
    for entry in _listed(answer, "results"):
        text = _text(entry, "raw_content") or _text(entry, "content")
        pages.append(WebPage(_text(entry, "url"), _text(entry, "title"), text, _number(entry.get("score"))))
    return pages


def _brave(settings: WebSettings, text: str) -> Request:
    asked = {"q": text, "count": settings.results, "text_decorations": "false"}
    return f"/res/v1/web/search?{_query(asked | settings.args)}", None


def _brave_pages(answer: Any) -> list[WebPage]:
    if isinstance(answer, dict) and "web" not in answer and answer.get("type") == "search":  # it found nothing
        return []
    pages = []
    for entry in _listed(answer.get("web") if isinstance(answer, dict) else None, "results"):
        snippets = entry.get("extra_snippets")
        parts = [_text(entry, "description"), *(snippets if isinstance(snippets, list) else [])]
        text = " ".join(str(part) for part in parts if part)
        pages.append(WebPage(_text(entry, "url"), _plain(_text(entry, "title")), _plain(text)))
    return pages


def _brave_wait(headers: Mapping[str, str]) -> float | None:
    """Returns the longest time until an exhausted limit resets, such as one per second and one per month."""
    asked = retry_after(headers)
    left, until = (headers.get(f"X-RateLimit-{name}", "").split(",") for name in ("Remaining", "Reset"))
    try:
        waits = [float(seconds) for count, seconds in zip(left, until, strict=True) if float(count) <= 0]
    except ValueError:
        return asked
    return max([asked or 0.0, *waits])


def _query(asked: Mapping[str, Any]) -> str:
    written = {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value
        for name, value in asked.items()
        if value is not None
    }
    return urlencode(written, errors="replace")


def _listed(answer: Any, name: str) -> list[dict[str, Any]]:
    listed = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError(f"it has no list of {name}")
    return listed


def _text(page: Mapping[str, Any], name: str) -> str:
    value = page.get(name)
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _plain(text: str) -> str:
    return html.unescape(_MARKS.sub("", text))


PROVIDERS = {
    "searxng": Provider(
        _searxng,
        _searxng_pages,
        silent=_searxng_silent,
        forbidden="it does not answer in JSON; add json to search.formats in its settings.yml",
    ),
    "tavily": Provider(_tavily, _tavily_pages),
    "brave": Provider(
        _brave, _brave_pages, _BRAVE_WORDS, key_header=lambda key: {"X-Subscription-Token": key}, wait=_brave_wait
    ),
}


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
        self.host = urlsplit(self.base).hostname or ""
        self._server = Server(
            f"{where} at {self.base}", f"web search at {self.base}", self.base, settings, self._provider.key_header,
            self._provider.wait,
        )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        return self.settings.identity

    def sent(self, text: Search) -> str:
        """Returns the text of a search as it is sent: in one line, and cut where the provider takes no more."""
        parts = (text,) if isinstance(text, SearchText) else text.texts
        return cut(" ".join(part.text for part in parts), CHARACTERS, self._provider.most_words)

    def is_cut(self, text: Search) -> bool:
        """Returns True if a text is longer than what is sent of it."""
        parts = (text,) if isinstance(text, SearchText) else text.texts
        return self.sent(text) != " ".join(" ".join(part.text for part in parts).split())

    def find(self, texts: Sequence[str], sending: Sending = lambda _: None) -> Iterator[tuple[str, WebAnswer]]:
        """Yields each of different texts with what was found, as it comes; a blank one finds nothing, and is not sent.

        `max_in_flight` requests are in flight at most; `sending` is called before each. Where no search succeeds, as without a
        key, RetrieverError is raised after what was answered before.
        """
        yield from ((text, ()) for text in texts if not text)
        stop = threading.Event()
        error: RetrieverError | None = None
        with ThreadPoolExecutor(max(1, min(self.settings.max_in_flight, len(texts))), "web") as threads:
            futures = {threads.submit(self._ask, text, sending, stop): text for text in texts if text}
            try:
                for future in as_completed(futures):
                    try:
                        answer = future.result()
                    except RetrieverError as fatal:
                        error = error or fatal
                        continue
                    if not (isinstance(answer, FailedSearch) and answer.reason == "stopped"):
                        yield futures[future], answer
            finally:
                stop.set()  # those that wait end before they are sent
        if error is not None:
            raise error

    def search(self, texts: Sequence[Search], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        sent = [self.sent(text) for text in texts]
        answers: dict[str, tuple[WebHit, ...]] = {}
        for text, answer in self.find(list(dict.fromkeys(sent))):
            if isinstance(answer, FailedSearch):
                raise TextRefused(self._server.what, answer.message, reason=answer.reason)
            answers[text] = answer
            alive()
        return joined_lists([ranked_list(answers[text][: max(0, depth)]) for text in sent])

    def _ask(self, text: str, sending: Sending, stop: threading.Event) -> WebAnswer:
        path, body = self._provider.request(self.settings, text)

        def before() -> None:
            if stop.is_set():
                raise TextRefused(self._server.what, "stopped, since another request failed", reason="stopped")
            sending(text)

        try:
            pages, silent = self._server.ask(f"{self.base}{path}", body, self._read, stop=stop, sending=before)
        except TextRefused as refused:
            return FailedSearch(refused.reason, refused.reply)
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
        problem = error.line.rpartition("; ")[0]
        if error.code == "server-access" and self._provider.forbidden and self.settings.api_key_env is None:
            return RetrieverError(error.code, f"{problem}; if no key is needed, {self._provider.forbidden}")
        if error.code == "server-away":
            return RetrieverError(error.code, f"{problem}; correct base_url, which ends before the path of the search")
        return error


def ranked_list(hits: Sequence[WebHit]) -> RankedList:
    """Returns hits without their texts."""
    return RankedList(
        pa.array([hit.doc_id for hit in hits], pa.string()), np.array([hit.score for hit in hits], dtype=np.float64)
    )


def open_retriever(
    name: str, settings: WebSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Web:
    """Opens the search engine; see `retrievers.retriever.open_retriever`."""
    check_planned(f"retrieve.retrievers.{name}", expect_identity, settings.identity)
    return Web(f"retrieve.retrievers.{name}", settings)


def open_documents(name: str, settings: WebSettings, *, patient: bool = False) -> DocumentsInMemory:
    """Returns a store without documents; see `retrievers.retriever.open_documents`."""
    return DocumentsInMemory(f"retrieve.retrievers.{name}", {}, "the web has no index: read the run's table web/")


def retriever_identity(name: str, settings: WebSettings) -> dict[str, Any]:
    """Returns the identity, after a look whether the key is there; see `retrievers.retriever.retriever_identity`."""
    return Web(f"retrieve.retrievers.{name}", settings).identity()
