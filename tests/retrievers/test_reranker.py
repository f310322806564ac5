"""Rerankers: one contract, FlagEmbedding as the oracle, and what is refused."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from dmqr.testing import RerankerContract
from retrievers.encoder import Encoder
from retrievers.reranker import OfPlugin, Reranker, open_reranker, reranker_identity
from retrievers.rerankers.cross_encoder import CrossEncoder, LlmReranker
from retrievers.rerankers.settings import RerankerSettings
from retrievers.retriever import SearchText
from retrievers.settings import EncoderSettings, RerankSettings
from tests.support.params import rest_slow
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.tiny_reranker import make_gemma, make_reranker

PASSAGES = [
    "Bread. Sour dough rises slowly because wild yeast is in no hurry.",
    "Tides. The moon pulls the sea twice a day, and harbours fill.",
    "Telescopes. A mirror gathers the light of faint galaxies.",
    "",
]

QUERIES = ["why does sour dough rise slowly", "what makes the tides", ""]

LLM_PAIRS = [(query, text) for query in [*QUERIES, "faint galaxies " * 20] for text in [*PASSAGES, PASSAGES[2] * 12]]

QUESTION = "Does passage B answer query A? Yes or No"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_gemma(tmp_path_factory.mktemp("gemma"), [*PASSAGES, *QUERIES]))


@pytest.fixture(scope="module")
def tiny_xlmr(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_reranker(tmp_path_factory.mktemp("xlmr"), [*PASSAGES, *QUERIES]))


KINDS = ["tiny_xlmr", "minilm", "bi_encoder", "server tei", "server vllm", "server openai"]


@pytest.fixture(scope="module", params=[*KINDS, pytest.param("gemma", marks=pytest.mark.slow)])
def settings(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A new kind of reranker joins here."""
    if request.param.startswith("server"):
        weights = RerankSettings(model=request.getfixturevalue("tiny_xlmr"), max_length=64)
        own = CrossEncoder(weights)
        with FakeModels(
            request.param.removeprefix("server "), score=lambda query, texts: own.score([query] * len(texts), texts), most=3
        ) as fake:
            yield {"kind": "server", "model": "tiny", "base_url": fake.address, "max_length": 64, "batch": 3}
        return
    if request.param == "bi_encoder":
        yield {"kind": "bi_encoder", "encoder": request.getfixturevalue("encoder_block")}
        return
    name = "cross_encoder" if request.param == "minilm" else request.param
    yield {"kind": "cross_encoder", "model": request.getfixturevalue(name), "max_length": 64}


@pytest.fixture(scope="module")
def reranker(settings: dict[str, Any]) -> Reranker:
    opened = open_reranker(RerankSettings(**settings))
    assert isinstance(opened, Reranker)
    return opened


def opened(model: str, **settings: Any) -> Any:
    """The cross-encoder, or the LLM, with these weights."""
    reranker = open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": model, "max_length": 64, **settings}))
    assert isinstance(reranker, CrossEncoder | LlmReranker)
    return reranker


class TestEveryReranker(RerankerContract):
    passages = PASSAGES
    least_difference = 2e-4  # of scores that are rounded to four digits

    @pytest.fixture(autouse=True)
    def given(self, settings: dict[str, Any], reranker: Reranker) -> None:
        self._settings, self._reranker = RerankSettings(**settings), reranker

    def settings(self) -> RerankSettings:
        return self._settings

    def opened(self) -> Reranker:
        return self._reranker


def test_lists_of_different_lengths(reranker: Reranker) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        reranker.score(QUERIES, PASSAGES[:1])


def test_a_query_that_leaves_no_room_is_cut_again(tiny_xlmr: str) -> None:
    """Three quarters of 16 tokens, and four special ones, leave the passage nothing."""
    own = opened(tiny_xlmr, max_length=16)
    assert np.isfinite(own.score(["moon " * 50, "moon " * 12, ""], [PASSAGES[1], PASSAGES[1], PASSAGES[1]])).all()


@pytest.mark.parametrize("model", rest_slow(["tiny_xlmr", "cross_encoder"], ["tiny_xlmr"]))
def test_equals_flagreranker(request: pytest.FixtureRequest, model: str) -> None:
    import FlagEmbedding

    folder = request.getfixturevalue(model)
    random = np.random.default_rng(0)
    words = " ".join([*PASSAGES, *QUERIES]).split()
    queries = [" ".join(random.choice(words, random.integers(1, 40))) for _ in range(24)]
    passages = [" ".join(random.choice(words, random.integers(1, 120))) for _ in range(24)]
    queries[0] = " ".join(words * 4)  # longer than three quarters of the pair: cut before the passage is
    oracle = FlagEmbedding.FlagReranker(folder, use_fp16=False, devices="cpu", max_length=96, batch_size=16)
    oracle.model.float()  # as loaded it has the precision of the file, and half precision on a CPU is slow and coarse
    expected = np.array(oracle.compute_score(list(zip(queries, passages, strict=True))))
    assert expected.std() > 0.01
    np.testing.assert_allclose(opened(folder, max_length=96).score(queries, passages), expected, atol=1e-3)


@pytest.mark.slow
def test_bi_encoder_is_the_cosine_of_the_encoder(encoder_block: dict[str, Any]) -> None:
    block = encoder_block | {"query_prefix": "query: "}
    encoder = Encoder(EncoderSettings(**block))
    own = open_reranker(RerankSettings(kind="bi_encoder", encoder=EncoderSettings(**block)))
    assert own is not None
    left = encoder.encode([SearchText(query, "query") for query in QUERIES])
    right = encoder.encode([SearchText(passage, "passage") for passage in PASSAGES[:3]])
    np.testing.assert_allclose(own.score(QUERIES, PASSAGES[:3]), (left * right).sum(axis=1), atol=1e-4)


def test_none_scores_nothing() -> None:
    assert open_reranker(RerankSettings(**{"kind": "none", "model": "whatever"})) is None
    assert reranker_identity(RerankSettings(**{"kind": "none"})) == {"kind": "none"}


def test_refused(encoder_block: dict[str, Any], tiny_xlmr: str, tmp_path: Path) -> None:
    def refusal(**settings: Any) -> str:
        with pytest.raises(RetrieverError) as error:
            open_reranker(RerankSettings(**settings))
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "no such folder" in refusal(kind="cross_encoder", model="/nowhere")
    said = refusal(kind="cross_encoder", model=encoder_block["model"])
    assert "is no cross-encoder: its architecture is BertModel; name another" in said
    assert "max_length 512 does not fit" in refusal(kind="cross_encoder", model=tiny_xlmr)
    small = {"kind": "cross_encoder", "model": tiny_xlmr, "max_length": 64}
    assert "rerank.prompt is a key of language models" in refusal(**small, prompt="?")
    bi = {"kind": "bi_encoder", "encoder": encoder_block}
    assert "rerank.dtype is a key of a cross-encoder, and kind is bi_encoder; remove it" in refusal(**bi, dtype="float32")
    broken = tmp_path / "broken"
    shutil.copytree(tiny_xlmr, broken)
    (broken / "model.safetensors").write_bytes(b"cut off")
    assert "cannot be loaded" in refusal(kind="cross_encoder", model=str(broken), max_length=64)
    config = json.loads((broken / "config.json").read_text())
    for changed, said in [
        ({"id2label": {"0": "yes", "1": "no"}}, "has 2 labels, a reranker has 1"),
        ({"architectures": []}, "is no cross-encoder: its config.json names no architecture"),
        ({"model_type": "unheard-of", "auto_map": {"AutoConfig": "own.Own"}}, "needs code that lies beside its weights"),
    ]:
        (broken / "config.json").write_text(json.dumps(config | changed))
        assert said in refusal(kind="cross_encoder", model=str(broken), max_length=64)


def test_scores_that_a_precision_cannot_hold_are_refused(tiny_xlmr: str) -> None:
    """float16 ends at 65,504: the same weights give finite scores in bfloat16."""
    import torch

    def scores(dtype: str, times: float) -> np.ndarray:
        own = opened(tiny_xlmr, dtype=dtype)
        with torch.no_grad():
            own._opened.model.weights["classifier.out_proj.weight"] *= times
        found: np.ndarray = own.score([QUERIES[0]] * 2, PASSAGES[:2])
        return found

    words = "^rerank: scores of model .* are not finite in {}; {}$"
    with pytest.raises(RetrieverError, match=words.format("float16", "set rerank.dtype to bfloat16 or float32")) as refused:
        scores("float16", 1e6)
    assert refused.value.code == "model"
    assert np.isfinite(scores("bfloat16", 1e6)).all()
    with pytest.raises(RetrieverError, match=words.format("float32", "name another")):
        scores("auto", float("nan"))


def test_no_such_device(tiny_xlmr: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RetrieverError, match="no device cuda:0 on this machine"):
        open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": tiny_xlmr, "max_length": 64}), device="cuda:0")


def test_a_plug_in_gives_a_score_for_each_pair() -> None:
    class Short(RerankerSettings):
        def score(self, queries: Sequence[str], passages: Sequence[str]) -> list[float]:
            return [1.0] * (len(queries) + 1)

    with pytest.raises(ValueError, match=r"Short\.score gives scores of the shape \(3,\) for 2 pairs"):
        OfPlugin(Short(kind="own:Short")).score(QUERIES[:2], PASSAGES[:2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, {}),
        ({"dtype": "bfloat16"}, {"use_bf16": True}),
        ({"prompt": QUESTION}, {"prompt": QUESTION}),
    ],
    ids=["plain", "bfloat16", "asked"],
)
def test_equals_flagllmreranker(gemma: str, settings: dict[str, Any], arguments: dict[str, Any]) -> None:
    import FlagEmbedding

    oracle = FlagEmbedding.FlagLLMReranker(gemma, devices="cpu", max_length=64, **arguments)
    expected = np.array(oracle.compute_score(LLM_PAIRS))
    own = opened(gemma, **settings).score(*zip(*LLM_PAIRS, strict=True))
    assert expected.std() > 0.01
    np.testing.assert_allclose(own, expected, atol=1e-4)


@pytest.mark.slow
def test_a_device_that_computes_nothing(gemma: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlagEmbedding takes fewer and fewer pairs, down to none, and forgets why."""
    own = opened(gemma)

    def broken(**_: Any) -> None:
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(own._opened.model, "forward", broken)
    with pytest.raises(RetrieverError, match=r"not even one pair at a time on cpu \(IndexError"):
        own.score(QUERIES, QUERIES)


@pytest.mark.slow
def test_an_llm_needs_flagembedding_and_a_precision_that_it_has(gemma: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RetrieverError, match="no float16 with an LLM on cpu; take auto"):
        opened(gemma, dtype="float16")
    monkeypatch.setitem(sys.modules, "FlagEmbedding", None)
    with pytest.raises(RetrieverError, match=r'FlagEmbedding, which is not installed; pip install "dmqr\[flag\]"'):
        opened(gemma)


def test_identity(gemma: str) -> None:
    block = {"kind": "cross_encoder", "model": gemma, "max_length": 64}
    plain = reranker_identity(RerankSettings(**block))
    assert set(plain) == {"kind", "model", "max_length", "dtype"}
    for change in ({"prompt": QUESTION}, {"dtype": "bfloat16"}, {"dtype": "float16"}):
        assert reranker_identity(RerankSettings(**(block | change))) == plain | change
