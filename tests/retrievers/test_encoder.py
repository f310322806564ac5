"""The encoder against FlagEmbedding's, and its own rules.

FlagEmbedding takes 6 s to import: the tests that need it import it, so that collecting tests does not.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from retrievers.encoder import Encoder, encoder_differences, encoder_dim, encoder_identity, model_max_length
from retrievers.models import resolve_model
from retrievers.retriever import SearchText
from retrievers.settings import EncoderSettings

TEXTS = [
    "Why does sour dough rise slowly?",
    "",
    "the moon and the tides " * 200,  # longer than the model takes
    "東京タワーは夜に光る。",
    "Wind over the sea makes waves.",
]


@pytest.fixture(scope="module")
def encoder(encoder_block: dict[str, Any]) -> Encoder:
    return Encoder(EncoderSettings(**(encoder_block | {"query_prefix": "query: ", "passage_prefix": ""})))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_equals_flagmodel(encoder_block: dict[str, Any], pooling: str) -> None:
    import FlagEmbedding

    prefix = "Represent this sentence for searching relevant passages: "
    settings = EncoderSettings(**(encoder_block | {"pooling": pooling, "query_prefix": prefix, "max_length": 64}))
    own = Encoder(settings)
    oracle = FlagEmbedding.FlagModel(
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
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert encoder_dim(settings) == own.dim == expected.shape[1]


@pytest.mark.slow
def test_half_precision_equals_flagmodel(encoder_block: dict[str, Any]) -> None:
    """bfloat16, which a CPU has, too; in one batch, since half precision shows how texts are put together."""
    import FlagEmbedding
    import torch

    own = Encoder(EncoderSettings(**(encoder_block | {"dtype": "bfloat16"})))
    own._passes._tokens = 10**6  # type: ignore[attr-defined]
    oracle = FlagEmbedding.FlagModel(
        str(resolve_model(encoder_block["model"])), pooling_method="mean", use_bf16=True, use_fp16=False, devices="cpu"
    )
    oracle.encode("the first call on a CPU makes it float32")
    oracle.model.bfloat16()
    with torch.inference_mode():
        batch = oracle.tokenizer(TEXTS, truncation=True, max_length=256, padding=True, return_tensors="pt")
        expected = oracle.pooling(oracle.model(**batch).last_hidden_state, batch["attention_mask"])
    found = own.encode([SearchText(text) for text in TEXTS])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, torch.nn.functional.normalize(expected.float()).numpy(), atol=1e-3)
    full = Encoder(EncoderSettings(**encoder_block)).encode([SearchText(text) for text in TEXTS])
    assert 1e-4 < np.abs(found - full).max() < 0.05


@pytest.mark.slow
def test_a_model_that_wants_small_letters(encoder_block: dict[str, Any], tmp_path: Path) -> None:
    """`do_lower_case` of sentence_bert_config.json, for a tokenizer that keeps capitals."""
    folder = tmp_path / "cased"
    shutil.copytree(resolve_model(encoder_block["model"]), folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    kept = json.loads((folder / "tokenizer_config.json").read_text()) | {"do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    for lower in (True, False):
        said = {"max_seq_length": 256, "do_lower_case": lower}
        (folder / "sentence_bert_config.json").write_text(json.dumps(said))
        found = Encoder(EncoderSettings(**{"model": str(folder), "pooling": "mean"})).encode(
            [SearchText("The MOON and the Tides"), SearchText("the moon and the tides")]
        )
        assert (np.abs(found[0] - found[1]).max() < 1e-6) == lower


@pytest.mark.slow
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
    with pytest.raises(RetrieverError, match="unknown kind of text 'passages'; did you mean 'passage'"):
        encoder.encode([SearchText("sea", "passages")])


@pytest.mark.slow
def test_length_cuts(encoder_block: dict[str, Any]) -> None:
    short = Encoder(EncoderSettings(**(encoder_block | {"max_length": 8})))
    long = "the moon pulls the sea twice a day and harbours fill"
    cut = short.encode([SearchText(long), SearchText(long + " with boats"), SearchText("the moon pulls the sea twice")])
    np.testing.assert_allclose(cut[0], cut[1], atol=1e-6)
    np.testing.assert_allclose(cut[0], cut[2], atol=1e-6)  # 8 tokens: six of them words


def test_own_length(tmp_path: Path, encoder_block: dict[str, Any]) -> None:
    folder = resolve_model(encoder_block["model"])
    assert model_max_length(folder) == 256  # sentence_bert_config.json
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        shutil.copy(folder / name, bare / name)
    assert model_max_length(bare) == 512  # the tokenizer's
    (bare / "tokenizer_config.json").unlink()
    config = {"model_type": "xlm-roberta", "max_position_embeddings": 8194, "pad_token_id": 1}
    (bare / "config.json").write_text(json.dumps(config))
    assert model_max_length(bare) == 8192


def test_identity_tells_what_decides_the_vectors(encoder_block: dict[str, Any]) -> None:
    plain = encoder_identity(EncoderSettings(**encoder_block))
    assert set(plain) == {"model", "pooling", "query_prefix", "passage_prefix", "max_length"}
    assert plain == encoder_identity(EncoderSettings(**(encoder_block | {"max_length": 256, "dtype": "float32"})))
    for change in ({"max_length": 128}, {"pooling": "cls"}, {"query_prefix": "q: "}, {"passage_prefix": "p: "}):
        changed = encoder_identity(EncoderSettings(**(encoder_block | change)))
        (key,) = change
        assert encoder_differences(plain, changed) == f"{key} {plain[key]!r} against {change[key]!r}"
    trusted = encoder_identity(EncoderSettings(**(encoder_block | {"trust_remote_code": True})))
    assert encoder_differences(trusted, plain) == "trust_remote_code True against None"


def test_precision_is_in_the_identity_as_resolved_and_does_not_part_an_index_from_its_queries(
    encoder_block: dict[str, Any],
) -> None:
    settings = EncoderSettings(**encoder_block)
    on_a_gpu = encoder_identity(settings, "cuda:0")
    assert on_a_gpu == encoder_identity(settings) | {"dtype": "float16"}
    assert encoder_identity(EncoderSettings(**(encoder_block | {"dtype": "float32"})), "cuda:0") == encoder_identity(settings)
    assert encoder_differences(on_a_gpu, encoder_identity(settings)) == ""


@pytest.mark.slow
def test_models_refused(encoder_block: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="max_length 1024 is more than the 512 tokens"):
        Encoder(EncoderSettings(**(encoder_block | {"max_length": 1024})))
    broken = tmp_path / "broken"
    shutil.copytree(resolve_model(encoder_block["model"]), broken)
    (broken / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(RetrieverError, match="cannot be loaded") as refusal:
        Encoder(EncoderSettings(**{"model": str(broken), "pooling": "mean"}))
    assert "\n" not in str(refusal.value)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"is_encoder_decoder": True}))
    for act in (Encoder, encoder_identity):
        with pytest.raises(RetrieverError, match="is no encoder, its architecture is an encoder-decoder; name another"):
            act(EncoderSettings(**{"model": str(broken)}))
    own = {"model_type": "unheard-of", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.Own"}}
    (broken / "config.json").write_text(json.dumps(config | own))
    with pytest.raises(RetrieverError, match="needs code that lies beside its weights; set trust_remote_code: true"):
        Encoder(EncoderSettings(**{"model": str(broken)}))


@pytest.mark.slow
def test_no_such_device(encoder_block: dict[str, Any]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RetrieverError, match="no device cuda:0 here"):
        Encoder(EncoderSettings(**encoder_block), "cuda:0")
