"""Servers at the wire, and engines for them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rewriters.engines import open_engine
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import AnthropicSettings, OpenaiSettings
from tests.support.rewriters.fake_server import FakeServer
from tests.support.rewriters.messages_server import MessagesServer

Opened = Callable[..., OpenaiEngine]


@pytest.fixture(autouse=True)
def _three_attempts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has requests that are answered badly fail soon: half a second each by the backoff, 11 s in 30 drawn examples."""
    monkeypatch.setattr("cluster.http.ATTEMPTS", 3)
    monkeypatch.setattr("rewriters.engines.openai.engine.pause", lambda *_, **__: 0.02)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture(params=["openai", "anthropic"])
def any_server(request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    """A server of each protocol."""
    with {"openai": FakeServer, "anthropic": MessagesServer}[request.param](["tiny"]) as running:
        yield running


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens engines for a server of either protocol, and closes them after the test."""
    engines: list[OpenaiEngine] = []

    def open_one(server: FakeServer, **changes: Any) -> OpenaiEngine:
        known = {"model": "tiny", "base_url": server.address, "timeout_seconds": 60, "patience_minutes": 5} | changes
        if isinstance(server, MessagesServer):
            engine = open_engine(AnthropicSettings(kind="anthropic", **{"api_key_env": None} | known))
        else:
            engine = open_engine(OpenaiSettings(kind="openai", **known))
        assert isinstance(engine, OpenaiEngine)
        engines.append(engine)
        return engine

    yield open_one
    for engine in engines:
        engine.close()
