"""The encoder against FlagEmbedding's, and its own rules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrievers.encoder import Encoder, encoder_identity, encoder_settings, own_max_length
from retrievers.models import resolve_model
from retrievers.retriever import RetrieverError, SearchText

TEXTS = [
    "Why does sour dough rise slowly?",
    "",
    "the moon and the tides " * 200,  # longer than the model takes
    "東京タワーは夜に光る。",
    "Wind over the sea makes waves.",
]


@pytest.fixture(scope="module")
def encoder(encoder_block: dict[str, Any]) -> Encoder:
    return Encoder(encoder_settings(encoder_block | {"query_prefix": "query: ", "passage_prefix": ""}))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_equals_flagmodel(encoder_block: dict[str, Any], pooling: str) -> None:
    flag = pytest.importorskip("FlagEmbedding", reason="FlagEmbedding, the oracle, is not installed")
    prefix = "Represent this sentence for searching relevant passages: "
    settings = encoder_settings(encoder_block | {"pooling": pooling, "query_prefix": prefix, "max_length": 64})
    own = Encoder(settings)
    oracle = flag.FlagModel(
        str(resolve_model(encoder_block["model"])),
        pooling_method=pooling,
        query_instruction_for_retrieval=prefix,
        use_fp16=False,
        devices="cpu",
        query_max_length=64,
        passage_max_length=64,
    )
    for kind, expected in (("query", oracle.encode_queries(TEXTS)), ("passage", oracle.encode_corpus(TEXTS))):
        found = own.encode([SearchText(text, kind) for text in TEXTS])
        cosines = (found * expected).sum(axis=1)
        assert cosines.min() > 0.9999, (kind, cosines)


def test_vectors_do_not_depend_on_company_or_order(encoder: Encoder) -> None:
    texts = [SearchText(text) for text in TEXTS]
    together = encoder.encode(texts)
    assert together.shape == (len(texts), encoder.dim)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(texts[::-1])[::-1], together, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(texts[:1])[0], together[0], atol=1e-6)


def test_a_prefix_stands_before_its_kind_only(encoder: Encoder) -> None:
    found = encoder.encode([SearchText("sea", "query"), SearchText("query: sea", "passage"), SearchText("sea", "passage")])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert abs(float(found[0] @ found[2])) < 0.999


def test_equal_texts_are_encoded_once(encoder: Encoder) -> None:
    found = encoder.encode([SearchText("sea"), SearchText("moon"), SearchText("sea")])
    np.testing.assert_array_equal(found[0], found[2])
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_an_unknown_kind_of_text(encoder: Encoder) -> None:
    with pytest.raises(RetrieverError, match="unknown kind of text 'passages', did you mean 'passage'"):
        encoder.encode([SearchText("sea", "passages")])


def test_length_cuts(encoder_block: dict[str, Any]) -> None:
    short = Encoder(encoder_settings(encoder_block | {"max_length": 8}))
    long = "the moon pulls the sea twice a day and harbours fill"
    cut = short.encode([SearchText(long), SearchText(long + " with boats"), SearchText("the moon pulls the sea twice")])
    np.testing.assert_allclose(cut[0], cut[1], atol=1e-6)
    np.testing.assert_allclose(cut[0], cut[2], atol=1e-6)  # 8 tokens: six of them words


def test_own_length(tmp_path: Path, encoder_block: dict[str, Any]) -> None:
    folder = resolve_model(encoder_block["model"])
    assert own_max_length(folder) == 256  # sentence_bert_config.json
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        shutil.copy(folder / name, bare / name)
    assert own_max_length(bare) == 512  # the tokenizer's
    (bare / "tokenizer_config.json").unlink()
    config = {"model_type": "xlm-roberta", "max_position_embeddings": 8194, "pad_token_id": 1}
    (bare / "config.json").write_text(json.dumps(config))
    assert own_max_length(bare) == 8192


def test_identity_tells_what_decides_the_vectors(encoder_block: dict[str, Any]) -> None:
    plain = encoder_identity(encoder_settings(encoder_block))
    assert plain == encoder_identity(encoder_settings(encoder_block | {"max_length": 256, "batch_size": 3}))
    for change in ({"max_length": 128}, {"pooling": "cls"}, {"query_prefix": "q: "}, {"passage_prefix": "p: "}):
        assert encoder_identity(encoder_settings(encoder_block | change)) != plain


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({}, "no model is named"),
        ({"model": "m", "pooling": "max"}, "unknown pooling 'max'"),
        ({"model": "m", "prefix": ""}, "unknown key 'prefix'"),
        ({"model": "m", "max_length": 2}, "max_length 2 is too short"),
    ],
)
def test_settings_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(RetrieverError, match=message):
        encoder_settings(block)


def test_models_refused(encoder_block: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="max_length 1024 is more than the 512 tokens"):
        Encoder(encoder_settings(encoder_block | {"max_length": 1024}))
    broken = tmp_path / "broken"
    shutil.copytree(resolve_model(encoder_block["model"]), broken)
    (broken / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(RetrieverError, match="cannot be loaded on cpu") as refusal:
        Encoder(encoder_settings({"model": str(broken), "pooling": "mean"}))
    assert "\n" not in str(refusal.value)
