"""A server of HTTP whose answers a class makes, with the faults that real ones have."""

import json
import math
import socket
import ssl
import struct
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
    """An answer of the server.

    seconds: that it takes before. drip: seconds before each byte of the body. broken: "reset" or "closed", how the connection
    ends in its middle. sent: bytes of the body before that; None: not even the status.
    """

    status: int = 200
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    drip: float = 0.0
    broken: str = ""
    sent: int | None = None


def said_json(value: Any, status: int = 200) -> Said:
    return Said(status, json.dumps(value).encode())


class Wire:
    """Serves `answer` on a thread; counts requests in flight.

    tls: of a server behind `https`, which closes the next `broken_handshakes` connections within the handshake.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._port, self._tls = 0, tls
        self.always: Said | None = None
        self.in_flight = self.most_in_flight = self.broken_handshakes = 0
        self._faults: dict[str, tuple[Said, float]] = {}
        self._shown: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://localhost:{self._port}" if self._tls else f"http://127.0.0.1:{self._port}"

    def answer(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Said:
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

            def _reply(self) -> None:
                data = self._data()
                with wire._lock:
                    wire.in_flight += 1
                    wire.most_in_flight = max(wire.most_in_flight, wire.in_flight)
                try:
                    said = wire.answer(self.command, self.path, data, dict(self.headers.items()))
                    time.sleep(said.seconds)
                finally:
                    with wire._lock:
                        wire.in_flight -= 1
                if not said.broken or said.sent is not None:
                    self._send(said)
                if said.broken:
                    self._break(said)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _reply

            def _data(self) -> bytes:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                data = b""
                while size := int(self.rfile.readline(), 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return data

            def _send(self, said: Said) -> None:
                self.send_response_only(said.status)
                length = {} if "content-length" in map(str.lower, said.headers) else {"Content-Length": str(len(said.content))}
                for name, value in {**said.headers, **length}.items():
                    self.send_header(name, value)
                self.end_headers()
                content = b"" if self.command == "HEAD" else said.content[: said.sent]
                for part in [bytes([byte]) for byte in content] if said.drip else [content]:
                    time.sleep(said.drip)
                    self.wfile.write(part)

            def _break(self, said: Said) -> None:
                if said.broken == "reset":  # with a linger of 0 s the kernel throws away what is unsent
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def finish_request(self, request: Any, client_address: Any) -> None:
                if wire._tls is None:
                    super().finish_request(request, client_address)
                elif wire.broken_handshakes:
                    wire.broken_handshakes -= 1
                    request.recv(1 << 16)  # the client's hello; then FIN, as of a balancer that is restarted
                else:
                    with wire._tls.wrap_socket(request, server_side=True) as secured:
                        super().finish_request(secured, client_address)

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
