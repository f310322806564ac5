"""A service of apprise's `json://` at the wire: an HTTP server that keeps what it is sent."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """The server. `status`: of each answer; `seconds`: that it takes."""

    SECRET = "s3cr3tpath"

    def __init__(self, status: int = 200, seconds: float = 0.0) -> None:
        self.status, self.seconds = status, seconds
        self.bodies: list[dict[str, Any]] = []
        self._released = threading.Event()

    def __enter__(self) -> Webhook:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                hook._released.wait(hook.seconds)
                try:
                    self.send_response(hook.status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:  # nobody waits any more
                    pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"json://user:{self.SECRET}@127.0.0.1:{self._server.server_address[1]}/{self.SECRET}"

    @property
    def titles(self) -> list[str]:
        """What each says of the job: `failed`, `waits for a server`, ..."""
        return [body["title"].rpartition(": ")[2] for body in self.bodies]

    def wait_for(self, count: int, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while len(self.bodies) < count and time.monotonic() < end:
            time.sleep(0.01)
        assert len(self.bodies) == count, self.titles
