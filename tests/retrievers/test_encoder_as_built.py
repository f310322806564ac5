"""Indexes of before a null in the config meant what the model's files say: they are searched as they were built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from retrievers.encoder import Encoder, encoder_identity, encoder_notes
from retrievers.local.build import build_local_index
from retrievers.local.index import INDEX, read_index
from retrievers.retriever import SearchText, open_retriever, retriever_identity
from retrievers.settings import EncoderSettings
from tests.support.retrievers.blocks import index_fields, typed
from tests.support.retrievers.passages import PASSAGES
from tests.support.retrievers.tiny_encoders import make_encoder

QUERIES = [SearchText("why does bread rise"), SearchText("moon and tides"), SearchText("sea", "passage")]


@pytest.fixture
def model(tmp_path: Path) -> str:
    texts = [text for _, text in PASSAGES.values()]
    return str(make_encoder(tmp_path / "model", "bert", texts, "mean", dense=[16], prompts={"query": "find: "}))


def plain_model(model: str) -> None:
    """Its files as an earlier version read them: the network alone."""
    for name in ("modules.json", "config_sentence_transformers.json", "1_Pooling/config.json"):
        (Path(model) / name).rename(Path(model) / f"{name}.away")


def whole_model(model: str) -> None:
    for away in Path(model).rglob("*.away"):
        away.rename(away.with_suffix(""))


def old_index(tmp_path: Path, corpus: Path, model: str, **said: Any) -> dict[str, Any]:
    """An index as an earlier version built it, and the block that searches it."""
    block = {"kind": "local", "index": str(tmp_path / "index"), "encoder": {"model": model, **said}}
    plain_model(model)
    build_local_index(tmp_path / "index", corpus, index_fields(None, block["encoder"]))
    whole_model(model)
    entry = json.loads((tmp_path / "index" / INDEX).read_text())
    # The weights count with the JSON files beside them, which were there then, too
    entry["fields"]["dense"]["model"] = encoder_identity(EncoderSettings(model=model))["model"]
    (tmp_path / "index" / INDEX).write_text(json.dumps(entry))
    return block


@pytest.mark.slow
@pytest.mark.parametrize("said", [{}, {"pooling": "mean"}, {"pooling": "cls", "query_prefix": "q: "}], ids=str)
def test_an_index_of_before_is_opened_as_it_was_built(tmp_path: Path, corpus: Path, model: str, said: dict[str, Any]) -> None:
    block = old_index(tmp_path, corpus, model, **said)
    stored = read_index(tmp_path / "index")["fields"]["dense"]
    assert stored["pooling"] == said.get("pooling", "cls")
    assert "layers" not in stored
    identity = retriever_identity("dense", typed(block))
    assert identity["encoder"] == stored
    found = open_retriever("dense", typed(block), expect_identity=identity)
    vectors = found.embed(QUERIES)
    found.search(QUERIES, 3)
    plain_model(model)
    np.testing.assert_allclose(vectors, Encoder(EncoderSettings(model=model, **said)).encode(QUERIES), atol=1e-6)
    whole_model(model)
    (note,) = encoder_notes(EncoderSettings(model=model, **said), stored)[:1]
    assert "was built otherwise than the model says" in note
    assert "without the model's layers 2_Dense" in note


@pytest.mark.slow
def test_built_again_it_is_as_the_model_was_made(tmp_path: Path, corpus: Path, model: str) -> None:
    block = old_index(tmp_path, corpus, model)
    assert build_local_index(tmp_path / "index", corpus, index_fields(None, block["encoder"])).built
    stored = read_index(tmp_path / "index")["fields"]["dense"]
    assert (stored["pooling"], stored["query_prefix"], len(stored["layers"])) == ("mean", "find: ", 1)
    assert open_retriever("dense", typed(block)).embed(QUERIES).shape == (3, 16)
    assert encoder_notes(EncoderSettings(model=model), stored) == ()


def test_another_encoder_than_the_index_has_is_still_refused(tmp_path: Path, corpus: Path, model: str) -> None:
    block = old_index(tmp_path, corpus, model)
    block["encoder"] = {"model": model, "pooling": "last"}
    with pytest.raises(RetrieverError, match=r"pooling 'cls' against 'last'"):
        retriever_identity("dense", typed(block))


def test_an_index_of_one_vector_is_refused(tmp_path: Path, corpus: Path) -> None:
    causal = str(make_encoder(tmp_path / "causal", "mistral", ["sea"], "lasttoken"))
    made = encoder_identity(EncoderSettings(model=causal))
    with pytest.raises(RetrieverError, match="it is a causal model"):
        encoder_identity(EncoderSettings(model=causal), built=made | {"pooling": "cls"})
