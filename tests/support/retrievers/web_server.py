"""A search engine of the web at the wire, in the forms of SearXNG, Tavily and Brave, with the faults that real ones have.

It has pages; a search finds those that share a word with it, the most words first. What it says of a page depends on what it
was asked, as with real ones.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Body = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What the server says instead of a good answer; seconds: that it takes before."""

    status: int = 200
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


FAULTS = {
    "429": Told(429, b'{"detail": "too many requests"}', {"Retry-After": "0.05"}),
    "500": Told(500, b'{"error": {"detail": "it fell over"}}'),
    "503": Told(503, b"away"),
    "hang": Told(200, b"{}", seconds=1.0),
    "html": Told(200, b"<html>please log in</html>", {"Content-Type": "text/html"}),
    "half": Told(200, b'{"results": [{"url": "http'),
    "huge": Told(200, b'{"results": [{"url": "http://a.example", "score": 1%s}]}' % (b"0" * 400)),
    "other": Told(200, b'{"answer": 42}'),
    "400": Told(400, b'{"detail": {"error": "the query is not allowed"}}'),
}
PAGES: dict[str, tuple[str, str]] = {
    "https://sea.example/lighthouses": ("Lighthouses", "A lamp of a lighthouse throws light far out to sea"),
    "https://bread.example/yeast": ("Yeast", "Bread can rise since yeast makes gas"),
    "https://moon.example/tides?page=2": ("Tides", "The moon draws the sea: spring tide and neap tide"),
    "https://stars.example/": ("Galaxies", "Faint galaxies are seen by large telescopes"),
    "https://beer.example/brew": ("Beer", "Yeast of beer ferments at the bottom or the top"),
}


class WebServer:
    """The server, and what it was asked.

    form: searxng, tavily or brave. key: that it wants. seconds: that every answer takes.
    """

    def __init__(
        self, form: str, *, key: str | None = None, pages: Mapping[str, tuple[str, str]] | None = None, seconds: float = 0.0
    ) -> None:
        self.form, self.key, self.seconds = form, key, seconds
        self.pages = dict(PAGES if pages is None else pages)
        self.texts: list[str] = []
        self.requests: list[tuple[str, Body, dict[str, str]]] = []
        self.times: list[float] = []
        self.in_flight = self.most_in_flight = 0
        self.answered: Counter[str] = Counter()
        self.always: Told | None = None
        self.silent: list[list[str]] = []  # `unresponsive_engines` of SearXNG
        self.asked = threading.Event()
        self._faults: dict[str, tuple[Told, float]] = {}
        self._shown: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """Its base_url."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def block(self, **more: Any) -> Body:
        """Settings of a retriever of it; a key is in the variable WEB_KEY."""
        found: Body = {"kind": "web", "provider": self.form, "base_url": self.address}
        return found | ({} if self.form == "searxng" else {"api_key_env": "WEB_KEY"}) | more

    def fail(self, text: str, fault: str | Told, times: float = float("inf")) -> None:
        """The first `times` searches of a text end so."""
        self._faults[text] = (FAULTS[fault] if isinstance(fault, str) else fault, times)

    def found(self, text: str, most: int = 10) -> list[tuple[str, str, str]]:
        """Address, title and what it says of the pages that a text finds, best first."""
        words = set(text.lower().split())
        ranked = [(len(words & set(f"{title} {said}".lower().split())), url) for url, (title, said) in self.pages.items()]
        best = [url for shared, url in sorted(ranked, key=lambda one: (-one[0], one[1])) if shared]
        return [(url, self.pages[url][0], f"{self.pages[url][1]}, asked {text}") for url in best[:most]]

    def __enter__(self) -> WebServer:
        fake = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                self._reply(fake.told(parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()}, "GET", self._headers()))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._reply(fake.told(self.path, body, "POST", self._headers()))

            def _headers(self) -> dict[str, str]:
                return dict(self.headers.items())

            def _reply(self, told: Told) -> None:
                with fake.counted():
                    time.sleep(told.seconds or fake.seconds)
                self.send_response(told.status)
                for name, value in {"Content-Length": str(len(told.content)), **told.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(told.content)

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that gave up

        self._server = Quiet(("127.0.0.1", 0), Requests)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def counted(self) -> Any:
        """A context in which a request is in flight."""
        return _InFlight(self)

    def told(self, path: str, body: Body, method: str, headers: dict[str, str]) -> Told:
        """What it says to a request."""
        text = str(body.get("query" if self.form == "tavily" else "q", ""))
        with self._lock:
            self.texts.append(text)
            self.requests.append((f"{method} {path}", body, headers))
            self.times.append(time.monotonic())
            self._shown[text] += 1
            shown = self._shown[text]
        self.asked.set()
        if self.always is not None:
            return self.always
        if not self._knows(headers):
            return Told(401, b'{"detail": "invalid key"}')
        if text in self._faults and shown <= self._faults[text][1]:
            return self._faults[text][0]
        if (method, path) != self._path():
            return Told(404, b'{"detail": "not found"}')
        with self._lock:
            self.answered[text] += 1
        return Told(200, json.dumps(self._answer(text, body)).encode())

    def _path(self) -> tuple[str, str]:
        return {
            "searxng": ("GET", "/search"), "tavily": ("POST", "/search"), "brave": ("GET", "/res/v1/web/search"),
        }[self.form]  # fmt: skip

    def _knows(self, headers: Mapping[str, str]) -> bool:
        if self.key is None:
            return True
        if self.form == "brave":
            return headers.get("X-Subscription-Token") == self.key
        return headers.get("Authorization") == f"Bearer {self.key}"

    def _answer(self, text: str, body: Body) -> Body:
        if self.form == "searxng":
            if body.get("format") != "json":
                return {}
            listed = [
                {"url": url, "title": title, "content": said, "engine": "x", "score": 4 / rank, "category": "general"}
                for rank, (url, title, said) in enumerate(self.found(text), start=1)
            ]
            return {
                "query": text,
                "number_of_results": 0,
                "results": listed,
                "answers": [],
                "unresponsive_engines": self.silent,
            }
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


class _InFlight:
    def __init__(self, server: WebServer) -> None:
        self._server = server

    def __enter__(self) -> None:
        with self._server._lock:
            self._server.in_flight += 1
            self._server.most_in_flight = max(self._server.most_in_flight, self._server.in_flight)

    def __exit__(self, *_: object) -> None:
        with self._server._lock:
            self._server.in_flight -= 1
