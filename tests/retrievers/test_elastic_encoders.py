"""An index in Elasticsearch has the vectors of a local build, of encoders that are read from the model's own files, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrievers.elastic.build import build_elastic_index
from retrievers.elastic.fields import elastic_indexes
from retrievers.encoder import encoder_identity
from retrievers.local.build import VECTORS, build_local_index
from retrievers.local.fields import local_indexes
from retrievers.local.index import LocalDocuments
from retrievers.retriever import SearchText, open_retriever, retriever_identity
from retrievers.settings import EncoderSettings
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.passages import PASSAGES
from tests.support.retrievers.tiny_encoders import make_encoder

pytestmark = pytest.mark.slow
PROMPTS = {"query": "Instruct: find what answers it\nQuery: ", "document": "passage: "}
SEARCHES = [SearchText("why does bread rise"), SearchText("moon and tides"), SearchText("sea", "passage")]


@pytest.mark.parametrize(
    ("kind", "pooling", "more"), [("qwen3", "lasttoken", {"end": True, "left": True}), ("bert", "mean", {"dense": [16]})]
)
def test_vectors_are_those_of_a_local_build(
    elasticsearch: str, new_name: Callable[[], str], corpus: Path, tmp_path: Path, kind: str, pooling: str, more: dict[str, Any]
) -> None:
    texts = [*(text for _, text in PASSAGES.values()), *PROMPTS.values()]
    model = str(make_encoder(tmp_path / "model", kind, texts, pooling, prompts=PROMPTS, **more))
    here = {"kind": "local", "index": str(tmp_path / "index"), "encoder": {"model": model}}
    alias = new_name()
    there = {"kind": "elastic", "index": alias, "encoder": {"model": model}, "vector": {"type": "flat"}}
    ((path, fields),) = local_indexes({"dense": typed(here)}).items()
    build_local_index(path, corpus, fields)
    (loaded,) = elastic_indexes({"dense": typed(there)}).values()
    build_elastic_index(loaded, corpus)

    made = encoder_identity(EncoderSettings(model=model))
    assert (made["pooling"], made["query_prefix"], made["passage_prefix"]) == (
        {"lasttoken": "last", "mean": "mean"}[pooling], PROMPTS["query"], PROMPTS["document"]
    )  # fmt: skip
    assert made == retriever_identity("dense", typed(here))["encoder"] == retriever_identity("dense", typed(there))["encoder"]
    documents = LocalDocuments(Path(path))
    local = dict(zip(documents.doc_ids.to_pylist(), np.load(documents.data / VECTORS), strict=True))
    asked = {"size": 100, "_source": False, "fields": ["vector", "doc_id"]}
    hits = ask("POST", f"/{alias}/_search", asked)["hits"]["hits"]
    elastic = {hit["fields"]["doc_id"][0]: np.array(hit["fields"]["vector"], np.float32) for hit in hits}
    assert elastic.keys() == local.keys() == PASSAGES.keys()
    for doc_id, vector in local.items():
        np.testing.assert_allclose(elastic[doc_id], vector, atol=1e-6, err_msg=doc_id)
    distinct = np.unique(np.round([*local.values()], 4), axis=0)
    assert len(distinct) > 6  # not one vector for all texts

    found = [open_retriever("dense", typed(block)).search(SEARCHES, 5) for block in (here, there)]
    np.testing.assert_allclose(found[0].scores, found[1].scores, atol=5e-6)
