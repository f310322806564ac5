"""A server of HTTP whose answers a class makes, with the faults that real ones have."""

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Body = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """An answer of the server; seconds: that it takes before; drip: seconds before each byte of the body."""

    status: int = 200
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    drip: float = 0.0


def said_json(value: Any, status: int = 200) -> Said:
    return Said(status, json.dumps(value).encode())


class Wire:
    """Serves `answer` on a thread; counts requests in flight."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self.always: Said | None = None
        self.in_flight = self.most_in_flight = 0
        self._faults: dict[str, tuple[Said, float]] = {}
        self._shown: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: Body, headers: Mapping[str, str]) -> Said:
        raise NotImplementedError

    def fail(self, text: str, said: Said, times: float = math.inf) -> None:
        """The first `times` requests with a text end so."""
        self._faults[text] = (said, times)

    def fault(self, texts: Sequence[str]) -> Said | None:
        """Returns what a request with these texts ends with; None: nothing is wrong."""
        for text in texts:
            said, times = self._faults.get(text, (Said(), 0))
            with self._lock:
                self._shown[text] += 1
                if self._shown[text] <= times:
                    return said
        return None

    def __enter__(self) -> Self:
        wire = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers

            def do_GET(self) -> None:
                self._reply({})

            def do_POST(self) -> None:
                self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _reply(self, body: Body) -> None:
                with wire._lock:
                    wire.in_flight += 1
                    wire.most_in_flight = max(wire.most_in_flight, wire.in_flight)
                try:
                    said = wire.answer(self.command, self.path, body, dict(self.headers.items()))
                    time.sleep(said.seconds)
                finally:
                    with wire._lock:
                        wire.in_flight -= 1
                self.send_response(said.status)
                for name, value in {"Content-Length": str(len(said.content)), **said.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                for part in [bytes([byte]) for byte in said.content] if said.drip else [said.content]:
                    time.sleep(said.drip)
                    self.wfile.write(part)

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that gave up

        self._server = Quiet(("127.0.0.1", self._port), Requests)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
