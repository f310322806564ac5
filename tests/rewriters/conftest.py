"""A server of Chat Completions, and engines for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import OpenaiSettings
from tests.support.rewriters.fake_server import FakeServer

Opened = Callable[..., OpenaiEngine]


@pytest.fixture(autouse=True)
def _three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.http.ATTEMPTS", 3)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens engines for a server, and closes them after the test."""
    engines: list[OpenaiEngine] = []

    def open_one(server: FakeServer, **changes: Any) -> OpenaiEngine:
        known = {"model": "tiny", "base_url": server.address, "timeout_seconds": 60, "patience_minutes": 5}
        engines.append(OpenaiEngine(OpenaiSettings(kind="openai", **known | changes)))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()
