"""Rerankers that are language models: scores are FlagEmbedding's, and what does not load is refused with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from retrievers.reranker import open_reranker, reranker_identity
from retrievers.rerankers.llm import LlmReranker
from retrievers.settings import RerankSettings
from tests.support.retrievers.tiny_llm import make_gemma, make_layerwise, make_lightweight

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
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[..., Path]], str]:
    """The folder of a model of that kind, made once."""
    made: dict[Any, str] = {}

    def get(make: Callable[..., Path]) -> str:
        if make not in made:
            made[make] = str(make(tmp_path_factory.mktemp(make.__name__), [*PASSAGES, *QUERIES]))
        return made[make]

    return get


def opened(model: str, **settings: Any) -> LlmReranker:
    reranker = open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": model, "max_length": 64, **settings}))
    assert isinstance(reranker, LlmReranker)
    return reranker


def refusal(act: Callable[[RerankSettings], object], model: str, **settings: Any) -> str:
    with pytest.raises(RetrieverError) as refused:
        act(RerankSettings(**({"kind": "cross_encoder", "model": model, "max_length": 64} | settings)))
    return str(refused.value)


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, {}),
        ({"dtype": "bfloat16"}, {"use_bf16": True}),
        ({"prompt": QUESTION}, {"prompt": QUESTION}),
    ],
    ids=["plain", "bfloat16", "asked"],
)
def test_equals_flagllmreranker(model: Any, settings: dict[str, Any], arguments: dict[str, Any]) -> None:
    import FlagEmbedding

    folder = model(make_gemma)
    oracle = FlagEmbedding.FlagLLMReranker(folder, devices="cpu", max_length=64, **arguments)
    expected = np.array(oracle.compute_score(PAIRS))
    own = opened(folder, **settings).score(*zip(*PAIRS, strict=True))
    assert expected.std() > 0.01
    np.testing.assert_allclose(own, expected, atol=1e-4)


def test_the_contract(model: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    own = opened(model(make_gemma))
    queries, passages = zip(*PAIRS, strict=True)
    whole = own.score(queries, passages)
    assert whole.dtype == np.float64
    assert own.score([], []).shape == (0,)
    backwards = own.score(queries[::-1], passages[::-1])[::-1]
    np.testing.assert_allclose(backwards, whole, atol=2e-4)
    monkeypatch.setattr("retrievers.rerankers.cross_encoder.CHUNK", 3)
    capfd.readouterr()
    np.testing.assert_allclose(own.score(queries * 2, passages * 2), np.tile(whole, 2), atol=2e-4)
    assert capfd.readouterr().err == ""  # no bars
    with pytest.raises(ValueError, match=r"\w"):
        own.score(QUERIES, PASSAGES[:1])


def test_a_device_that_computes_nothing(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlagEmbedding takes fewer and fewer pairs, down to none, and forgets why."""
    own = opened(model(make_gemma))

    def broken(**_: Any) -> None:
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(own._opened.model, "forward", broken)
    with pytest.raises(RetrieverError, match=r"not even one pair at a time on cpu \(IndexError"):
        own.score(QUERIES, PASSAGES)


@pytest.mark.parametrize(
    ("make", "class_name", "own_error"),
    [(make_layerwise, "LayerWiseFlagLLMReranker", ValueError), (make_lightweight, "LightWeightFlagLLMReranker", TypeError)],
    ids=["layerwise", "lightweight"],
)
def test_what_does_not_work_with_this_transformers(
    model: Any, make: Callable[..., Path], class_name: str, own_error: type[Exception]
) -> None:
    """FlagEmbedding 1.4.2's own code for these two is of transformers 4. Where that has changed, compare scores here."""
    folder = model(make)
    architecture = make.__name__.removeprefix("make_")
    for act in (open_reranker, reranker_identity):
        said = refusal(act, folder)
        assert f"rerank: model {folder} is {architecture}, and FlagEmbedding has" in said
        assert "for transformers 4 alone, found 5." in said
    import FlagEmbedding

    with pytest.raises(own_error):
        getattr(FlagEmbedding, class_name)(folder, devices="cpu").compute_score(PAIRS)


def test_precision_that_flagembedding_does_not_have(model: Any) -> None:
    assert "no float16 with an LLM on cpu; take auto" in refusal(open_reranker, model(make_gemma), dtype="float16")


def test_identity(model: Any) -> None:
    block = {"kind": "cross_encoder", "model": model(make_gemma), "max_length": 64}
    plain = reranker_identity(RerankSettings(**block))
    assert set(plain) == {"kind", "model", "max_length", "dtype"}
    assert plain == json.loads(json.dumps(plain)) == opened(block["model"]).identity()
    assert reranker_identity(RerankSettings(**block), "cuda:0") == plain | {"dtype": "float16"}
    for change in ({"prompt": QUESTION}, {"dtype": "bfloat16"}):
        assert reranker_identity(RerankSettings(**(block | change))) == plain | change
