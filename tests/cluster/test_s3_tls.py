"""S3 over TLS: a handshake that breaks off is tried again, a certificate that nobody vouches for is refused."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.errors import ClusterError
from cluster.storage import s3_client
from cluster.storage.s3 import S3Storage
from tests.support.cluster.certificates import own_certificate
from tests.support.cluster.s3_server import S3Server


@dataclass
class Terminator:
    """A load balancer that ends TLS before the server; it closes the next `broken` connections within the handshake."""

    port: int
    broken: int = 0
    met: int = 0


@pytest.fixture
def tls(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminator]:
    certificate, context = own_certificate(tmp_path, "localhost", "DNS:localhost")
    listening = socket.create_server(("127.0.0.1", 0))
    terminator = Terminator(listening.getsockname()[1])
    upstream = urlsplit(s3.endpoint)

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve(plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            if terminator.broken:
                terminator.broken -= 1
                terminator.met += 1
                plain.recv(1 << 16)  # the client's hello; then FIN, as of a balancer that is restarted
                return
            with (
                context.wrap_socket(plain, server_side=True) as secured,
                socket.create_connection((upstream.hostname, upstream.port)) as server,
            ):
                threading.Thread(target=pump, args=(server, secured), daemon=True).start()
                pump(secured, server)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    monkeypatch.setattr("cluster.outages.pause", lambda *_: 0.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"https://localhost:{terminator.port}")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield terminator
    listening.close()


@pytest.mark.slow
def test_a_handshake_that_breaks_off_is_tried_again(s3: S3Server, tls: Terminator) -> None:
    store = S3Storage(s3.fresh())
    store.put("before", b"1")
    s3_client._client.cache_clear()  # new connections
    tls.broken = 3
    store.put("key", b"2")
    assert store.get("key") == b"2"
    assert tls.met == 3


def test_a_handshake_that_never_was_whole_says_so_soon(s3: S3Server, tls: Terminator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "SHORT_RETRY_SECONDS", 0.3)
    tls.broken = 10**6
    with pytest.raises(ClusterError, match=r"no secure connection to localhost.*UNEXPECTED_EOF") as refused:
        S3Storage(s3.fresh()).get("key")
    assert "AWS_CA_BUNDLE" not in str(refused.value)
    assert "; correct AWS_ENDPOINT_URL_S3 (https or http)" in str(refused.value)


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    s3: S3Server, tls: Terminator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Storage(s3.fresh())
    store.put("before", b"1")
    monkeypatch.delenv("AWS_CA_BUNDLE")
    with pytest.raises(ClusterError, match=r"CERTIFICATE_VERIFY_FAILED.*; set AWS_CA_BUNDLE"):
        store.get("before")
