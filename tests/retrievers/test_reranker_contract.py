"""Rerankers by the contract of all: the project's own at a server, and one behind a service of another form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from dmqr.testing import RerankerContract, reranker_settings_of
from retrievers.rerankers.settings import RerankerSettings
from retrievers.settings import RerankSettings
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.judging_service import JudgingService


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


class TestHosted(RerankerContract):
    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        with JudgingService("openai", "judge-1", score=shared) as server:
            self.address = server.address
            yield

    def settings(self) -> RerankerSettings:
        kind = f"{ROOT}/configs/plugins/hosted.py:Hosted"
        return reranker_settings_of(kind, model="judge-1", base_url=self.address, batch=2, max_in_flight=2)
