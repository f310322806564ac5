"""Rerankers that are language models: scores are FlagEmbedding's, and what does not load is refused with its reason."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from retrievers.reranker import open_reranker, reranker_identity
from retrievers.rerankers.llm import GemmaReranker
from retrievers.settings import RerankSettings
from tests.support.retrievers.tiny_reranker import make_gemma

PASSAGES = [
    "Bread. Sour dough rises slowly because wild yeast is in no hurry.",
    "Tides. The moon pulls the sea twice a day, and harbours fill.",
    "",
    "Telescopes. A mirror gathers the light of faint galaxies. " * 12,
]
QUERIES = ["why does sour dough rise slowly", "what makes the tides", "moon", "faint galaxies " * 20]
PAIRS = [(query, passage) for query in QUERIES for passage in PASSAGES]
QUESTION = "Does passage B answer query A? Yes or No"
pytestmark = pytest.mark.slow  # of the pinned FlagEmbedding and transformers, which rarely change


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_gemma(tmp_path_factory.mktemp("gemma"), [*PASSAGES, *QUERIES]))


def opened(model: str, **settings: Any) -> GemmaReranker:
    reranker = open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": model, "max_length": 64, **settings}))
    assert isinstance(reranker, GemmaReranker)
    return reranker


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, {}),
        ({"dtype": "bfloat16"}, {"use_bf16": True}),
        ({"prompt": QUESTION}, {"prompt": QUESTION}),
    ],
    ids=["plain", "bfloat16", "asked"],
)
def test_equals_flagllmreranker(model: str, settings: dict[str, Any], arguments: dict[str, Any]) -> None:
    import FlagEmbedding

    oracle = FlagEmbedding.FlagLLMReranker(model, devices="cpu", max_length=64, **arguments)
    expected = np.array(oracle.compute_score(PAIRS))
    own = opened(model, **settings).score(*zip(*PAIRS, strict=True))
    assert expected.std() > 0.01
    np.testing.assert_allclose(own, expected, atol=0.1 if "dtype" in settings else 1e-4)  # padded otherwise


def test_identity(model: str) -> None:
    block = {"kind": "cross_encoder", "model": model, "max_length": 64}
    plain = reranker_identity(RerankSettings(**block))
    assert set(plain) == {"kind", "model", "max_length", "dtype"}
    assert plain == json.loads(json.dumps(plain))
    assert reranker_identity(RerankSettings(**block), "cuda:0") == plain | {"dtype": "float16"}
    for change in ({"prompt": QUESTION}, {"dtype": "bfloat16"}):
        assert reranker_identity(RerankSettings(**(block | change))) == plain | change
