"""The reranker at a server by the contract of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from dmqr.testing import RerankerContract
from retrievers.rerankers.settings import RerankerSettings
from retrievers.settings import RerankSettings
from tests.support.retrievers.fake_models import FakeModels


def shared(query: str, texts: Sequence[str]) -> list[float]:
    words = set(query.lower().split())
    return [len(words & set(text.lower().rstrip(".").split())) / max(1, len(words)) for text in texts]


class TestServer(RerankerContract):
    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        with FakeModels("vllm", "reranker", score=shared) as server:
            self.address = server.address
            yield

    def settings(self) -> RerankerSettings:
        return RerankSettings(kind="server", model="reranker", base_url=self.address)
