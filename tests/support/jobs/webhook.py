"""A webhook at the wire: an HTTP server that keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """The server. `answers`: statuses in turn, the last one for ever; `seconds`: that each answer takes."""

    SECRET = "/services/T000/B000/s3cr3tpath"

    def __init__(self, *answers: int, seconds: float = 0.0, location: str = "") -> None:
        self.answers, self.seconds, self.location = list(answers) or [200], seconds, location
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[tuple[str, str, str]] = []
        self._released = threading.Event()

    def __enter__(self) -> Webhook:
        told = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                told.paths.append((self.command, self.path, self.headers.get("Content-Type", "")))
                told.bodies.append(json.loads(body) if body else {})
                status = told.answers.pop(0) if len(told.answers) > 1 else told.answers[0]
                told._released.wait(told.seconds)
                try:
                    self.send_response(status)
                    if told.location:
                        self.send_header("Location", told.location)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"ok")
                except OSError:  # nobody waits any more
                    pass

            do_GET = do_POST = _answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.SECRET}"

    @property
    def events(self) -> list[str]:
        return [one["event"] for one in self.bodies]

    def wait_for(self, *events: str, seconds: float = 60) -> Sequence[dict[str, Any]]:
        """Waits until these were told, in this order."""
        end = time.monotonic() + seconds
        while self.events[: len(events)] != list(events) and time.monotonic() < end:
            time.sleep(0.02)
        assert self.events[: len(events)] == list(events)
        return self.bodies
