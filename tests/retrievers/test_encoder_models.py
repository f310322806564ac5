"""Encoders as they were made: vectors are those of sentence-transformers over the same folder, for each architecture."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from retrievers.encoder import (
    Encoder,
    encoder_differences,
    encoder_dim,
    encoder_identity,
    encoder_notes,
    model_max_length,
    open_encoder,
)
from retrievers.encoders.recipe import CAUSAL_TYPES, is_causal
from retrievers.models import resolve_model
from retrievers.retriever import SearchText
from retrievers.settings import EncoderSettings
from tests.support.params import rest_slow
from tests.support.retrievers.tiny_encoders import DIM, NETWORKS, make_encoder

TEXTS = [
    "Why does sour dough rise slowly?",
    "",
    "the moon and the tides " * 40,  # longer than the model takes
    "moon",
    "Wind over the sea makes waves, and harbours fill.",
]
PROMPTS = {"query": "Instruct: find what answers it\nQuery: ", "document": "passage: ", "other": "no use: "}
CAUSAL = {"mistral", "llama", "qwen2", "qwen3", "gemma", "gemma2"}

Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(kind: str, *args: Any, **more: Any) -> str:
        return str(make_encoder(tmp_path / "model", kind, [*TEXTS, *PROMPTS.values()], *args, **more))

    return made


def vectors(model: str, kind: str = "query", **settings: Any) -> np.ndarray:
    return Encoder(EncoderSettings(model=model, **settings)).encode([SearchText(text, kind) for text in TEXTS])


def reference(model: str) -> tuple[np.ndarray, np.ndarray]:
    """sentence-transformers' vectors of queries and of documents, by the model's own files alone."""
    from sentence_transformers import SentenceTransformer

    opened = SentenceTransformer(model, device="cpu")
    made = (opened.encode_query(TEXTS, batch_size=3), opened.encode_document(TEXTS, batch_size=3))
    queries, documents = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in made)
    return queries, documents


def refused(act: Callable[[EncoderSettings], object], model: str, **settings: Any) -> str:
    with pytest.raises(RetrieverError) as error:
        act(EncoderSettings(model=model, **settings))
    assert "\n" not in str(error.value)
    return str(error.value)


EACH_WAY = ("bert", "mistral")
"""Networks that differ in how they count positions, and pool."""


@pytest.mark.parametrize("kind", rest_slow(NETWORKS, EACH_WAY))
def test_vectors_are_those_of_sentence_transformers(make: Make, kind: str) -> None:
    """By the files alone: nothing is said but the model. A text that is too long, an empty one, several lengths."""
    pooling = "lasttoken" if kind in CAUSAL else "mean"
    model = make(kind, pooling, prompts=PROMPTS, end=kind in CAUSAL, bare=kind in CAUSAL)
    queries, documents = reference(model)
    assert np.abs(queries - documents).max() > 1e-3
    np.testing.assert_allclose(vectors(model), queries, atol=1e-5)
    np.testing.assert_allclose(vectors(model, "passage"), documents, atol=1e-5)
    assert np.abs(np.triu(queries @ queries.T, 1)).max() < 0.9999  # texts are told apart
    assert encoder_notes(EncoderSettings(model=model)) == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "pooling", "more"),
    [
        ("bert", "cls", {}),
        ("mistral", "lasttoken", {"left": True}),
        ("qwen3", "lasttoken", {"left": True, "end": True}),
        ("llama", "mean", {}),
        ("bert", "cls", {"dense": [16]}),
        ("gemma3_text", "mean", {"dense": [64, 24]}),
    ],
    ids=["cls", "left", "left with an end", "a causal mean of its own", "Dense with Tanh", "two Dense"],
)
def test_poolings_and_layers(make: Make, kind: str, pooling: str, more: dict[str, Any]) -> None:
    model = make(kind, pooling, prompts={}, **more)
    queries, _ = reference(model)
    found = vectors(model)
    np.testing.assert_allclose(found, queries, atol=1e-5)
    settings = EncoderSettings(model=model)
    assert encoder_dim(settings) == found.shape[1] == open_encoder(settings).dim == (more.get("dense") or [DIM])[-1]


@pytest.mark.slow
def test_an_end_token_that_the_tokenizer_only_promises(make: Make) -> None:
    """`add_eos_token`, which transformers 5 reads from tokenizer.json alone; as a tokenizer that writes it."""
    model = Path(make("mistral", "lasttoken", end=True))
    written = vectors(str(model))
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    (model / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    without = vectors(str(model))
    said = json.loads((model / "tokenizer_config.json").read_text()) | {"add_eos_token": True}
    (model / "tokenizer_config.json").write_text(json.dumps(said))
    assert np.abs(without - written).max() > 1e-3
    np.testing.assert_allclose(vectors(str(model)), written, atol=1e-5)


def test_texts_do_not_depend_on_company_where_positions_are_counted(make: Make) -> None:
    model = make("bert", "lasttoken", left=True)
    opened = Encoder(EncoderSettings(model=model))
    together = opened.encode([SearchText(text) for text in TEXTS])
    alone = [opened.encode([SearchText(text)])[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({}, "it is a causal model (mistral), whose first token knows nothing of the others, and its pooling would be cls"),
        ({"pooling": "cls"}, "which gives all texts one vector; set pooling: last if it was trained so"),
        ({"pooling": "mean"}, "its pooling would be mean, which its files (1_Pooling) do not say"),
    ],
)
def test_a_causal_model_is_pooled_by_its_last_token(make: Make, said: dict[str, Any], sentence: str) -> None:
    model = make("mistral", None)
    for act in (encoder_identity, Encoder):
        assert sentence in refused(act, model, **said)
    assert encoder_identity(EncoderSettings(model=model, pooling="last"))["pooling"] == "last"


def test_a_causal_model_that_nobody_lists_is_found_when_it_is_opened(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrievers.encoders.recipe.CAUSAL_TYPES", frozenset())
    model = make("mistral", None)
    assert encoder_identity(EncoderSettings(model=model))["pooling"] == "cls"
    assert "it is a causal model (mistral)" in refused(Encoder, model)


def test_the_causal_types_are_those_of_transformers() -> None:
    from transformers.models.auto import modeling_auto as auto

    assert not CAUSAL_TYPES - set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert not CAUSAL_TYPES & set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    assert is_causal({"model_type": "bert", "is_decoder": True})
    assert not is_causal({"model_type": "qwen2", "is_causal": False})


def test_code_in_place_of_a_network_is_not_left_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As gte-Qwen2 has it, whose own class looks in both directions; that of nomic-embed is made as for training."""
    from transformers import AutoModel

    model, made = Path(make("qwen2", "lasttoken")), AutoModel.from_pretrained
    monkeypatch.setattr(AutoModel, "from_pretrained", lambda *names, **more: made(*names, **more).train())
    assert not Encoder(EncoderSettings(model=str(model)))._network.training  # else it drops out what it is trained to miss
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "own.Own"}}))
    assert "code of its own in place of the causal qwen2 of transformers; set trust_remote_code" in refused(Encoder, str(model))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"type": "sentence_transformers.models.LSTM", "path": "2_LSTM"}, "has sentence_transformers.models.LSTM (2_LSTM)"),
        ({"type": "custom_st.Transformer", "path": ""}, "has custom_st.Transformer (the network), which is not supported"),
    ],
)
def test_modules_that_are_not_done(make: Make, change: dict[str, str], sentence: str) -> None:
    model = Path(make("bert"))
    modules = json.loads((model / "modules.json").read_text())
    place = 2 if change["path"] else 0
    modules[place] |= change
    (model / "modules.json").write_text(json.dumps(modules))
    for act in (encoder_identity, Encoder):
        assert sentence in refused(act, str(model))


def test_layers_count_by_their_content(make: Make) -> None:
    from safetensors.torch import load_file, save_file

    model = Path(make("bert", dense=[16]))
    before = encoder_identity(EncoderSettings(model=str(model)))
    (layer,) = before["layers"]
    assert layer.startswith("Dense sha256:")
    weights = load_file(model / "2_Dense" / "model.safetensors")
    save_file({name: weight + 1 for name, weight in weights.items()}, model / "2_Dense" / "model.safetensors")
    after = encoder_identity(EncoderSettings(model=str(model)))
    assert after["model"] == before["model"]
    assert after["layers"] != before["layers"]


# of real weights


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
    assert plain == encoder_identity(EncoderSettings(model=encoder_block["model"])), "its files say how it pools"
    said = {"max_length": 256, "dtype": "float32", "query_prefix": "", "passage_prefix": ""}
    assert plain == encoder_identity(EncoderSettings(**(encoder_block | said)))
    for change in ({"max_length": 128}, {"pooling": "cls"}, {"query_prefix": "q: "}, {"passage_prefix": "p: "}):
        changed = encoder_identity(EncoderSettings(**(encoder_block | change)))
        (key,) = change
        assert encoder_differences(plain, changed) == f"{key} {plain[key]!r} against {change[key]!r}"
    trusted = encoder_identity(EncoderSettings(**(encoder_block | {"trust_remote_code": True})))
    assert encoder_differences(trusted, plain) == "trust_remote_code True against None"

    on_a_gpu = encoder_identity(EncoderSettings(**(encoder_block | {"dtype": "float16"})))
    assert on_a_gpu == plain | {"dtype": "float16"}
    assert encoder_identity(EncoderSettings(**(encoder_block | {"dtype": "float32"}))) == plain
    assert encoder_differences(on_a_gpu, plain) == ""  # precision does not part an index from its queries


@pytest.mark.slow
def test_models_refused(encoder_block: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="max_length 1024 is more than the 512 tokens"):
        Encoder(EncoderSettings(**(encoder_block | {"max_length": 1024})))
    (tmp_path / "config.json").write_text(json.dumps({"is_encoder_decoder": True}))
    for act in (Encoder, encoder_identity):
        with pytest.raises(RetrieverError, match="is no encoder, its architecture is an encoder-decoder; name another"):
            act(EncoderSettings(model=str(tmp_path)))
