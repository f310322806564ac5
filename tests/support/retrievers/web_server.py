"""A search engine of the web at the wire, in the forms of SearXNG, Tavily and Brave.

It has pages; a search finds those that share a word with it, the most words first. What it says of a page depends on what it
was asked, as with real ones.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.wire import Body, Said, Wire, said_json

FAULTS = {
    "429": Said(429, b'{"detail": "too many requests"}', {"Retry-After": "0.05"}),
    "500": Said(500, b'{"error": {"detail": "it fell over"}}'),
    "503": Said(503, b"away"),
    "hang": Said(200, b"{}", seconds=1.0),
    "html": Said(200, b"<html>please log in</html>", {"Content-Type": "text/html"}),
    "half": Said(200, b'{"results": [{"url": "http'),
    "huge": Said(200, b'{"results": [{"url": "http://a.example", "score": 1%s}]}' % (b"0" * 400)),
    "other": Said(200, b'{"answer": 42}'),
    "400": Said(400, b'{"detail": {"error": "the query is not allowed"}}'),
}
PAGES: dict[str, tuple[str, str]] = {
    "https://sea.example/lighthouses": ("Lighthouses", "A lamp of a lighthouse throws light far out to sea"),
    "https://bread.example/yeast": ("Yeast", "Bread can rise since yeast makes gas"),
    "https://moon.example/tides?page=2": ("Tides", "The moon draws the sea: spring tide and neap tide"),
    "https://stars.example/": ("Galaxies", "Faint galaxies are seen by large telescopes"),
    "https://beer.example/brew": ("Beer", "Yeast of beer ferments at the bottom or the top"),
}


class WebServer(Wire):
    """The server, and what it was asked.

    form: searxng, tavily or brave. key: that it wants. seconds: that every answer takes.
    """

    def __init__(
        self, form: str, *, key: str | None = None, pages: Mapping[str, tuple[str, str]] | None = None, seconds: float = 0.0
    ) -> None:
        super().__init__()
        self.form, self.key, self.seconds = form, key, seconds
        self.pages = dict(PAGES if pages is None else pages)
        self.texts: list[str] = []
        self.requests: list[tuple[str, Body, dict[str, str]]] = []
        self.times: list[float] = []
        self.silent: list[list[str]] = []  # `unresponsive_engines` of SearXNG
        self.asked = threading.Event()

    @property
    def address(self) -> str:
        """Its base_url."""
        return self.url

    def block(self, **more: Any) -> Body:
        """Settings of a retriever of it; a key is in the variable WEB_KEY."""
        found: Body = {"kind": "web", "provider": self.form, "base_url": self.address}
        return found | ({} if self.form == "searxng" else {"api_key_env": "WEB_KEY"}) | more

    def fail(self, text: str, said: str | Said, times: float = float("inf")) -> None:
        """The first `times` searches of a text end so."""
        super().fail(text, FAULTS[said] if isinstance(said, str) else said, times)

    def found(self, text: str, most: int = 10) -> list[tuple[str, str, str]]:
        """Address, title and what it says of the pages that a text finds, best first."""
        words = set(text.lower().split())
        ranked = [(len(words & set(f"{title} {said}".lower().split())), url) for url, (title, said) in self.pages.items()]
        best = [url for shared, url in sorted(ranked, key=lambda one: (-one[0], one[1])) if shared]
        return [(url, self.pages[url][0], f"{self.pages[url][1]}, asked {text}") for url in best[:most]]

    def answer(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Said:
        parts = urlsplit(path)
        body = json.loads(data) if data else {name: values[0] for name, values in parse_qs(parts.query).items()}
        text = str(body.get("query" if self.form == "tavily" else "q", ""))
        with self._lock:
            self.texts.append(text)
            self.requests.append((f"{method} {parts.path}", body, dict(headers)))
            self.times.append(time.monotonic())
        self.asked.set()
        said = self.always or self._said(f"{method} {parts.path}", text, body, headers)
        return said if said.seconds else replace(said, seconds=self.seconds)

    def _said(self, asked: str, text: str, body: Body, headers: Mapping[str, str]) -> Said:
        sent = headers.get("X-Subscription-Token" if self.form == "brave" else "Authorization", "")
        if self.key is not None and sent.removeprefix("Bearer ") != self.key:
            return Said(401, b'{"detail": "invalid key"}')
        if (fault := self.fault([text])) is not None:
            return fault
        paths = {"searxng": "GET /search", "tavily": "POST /search", "brave": "GET /res/v1/web/search"}
        if asked != paths[self.form]:
            return Said(404, b'{"detail": "not found"}')
        return said_json(self._answer(text, body))

    def _answer(self, text: str, body: Body) -> Body:
        if self.form == "searxng":
            if body.get("format") != "json":
                return {}
            listed = [
                {"url": url, "title": title, "content": said, "engine": "x", "score": 4 / rank, "category": "general"}
                for rank, (url, title, said) in enumerate(self.found(text), start=1)
            ]
            empty: Body = {"query": text, "number_of_results": 0, "answers": [], "unresponsive_engines": self.silent}
            return empty | {"results": listed}
        if self.form == "tavily":
            listed = [
                {"url": url, "title": title, "content": said, "score": round(0.99 - rank / 100, 4), "raw_content": None}
                for rank, (url, title, said) in enumerate(self.found(text, body["max_results"]), start=1)
            ]
            return {"query": text, "answer": None, "images": [], "results": listed, "response_time": "0.1", "request_id": "1"}
        listed = [
            {"type": "search_result", "url": url, "title": title, "description": said.replace("'", "&#x27;")}
            for url, title, said in self.found(text, int(body["count"]))
        ]
        web: Sequence[tuple[str, Any]] = [("web", {"type": "search", "results": listed})] if listed else []
        return {"type": "search", "query": {"original": text}, **dict(web)}
