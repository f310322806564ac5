"""`configs/plugins/sparse.py`, a plug-in: learned sparse vectors on a real Elasticsearch, with weights made here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cluster.errors import RetrieverError
from dmqr.testing import RetrieverContract, hits_of, settings_of
from jobs.__main__ import main
from jobs.runs.folder import open_run
from retrievers.retriever import Retriever, SearchText, open_retriever
from tests.support.jobs.in_process_runs import rows
from tests.support.jobs.whole_runs import ROOT
from tests.support.plugins import PAGE
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.passages import PASSAGES
from tests.support.retrievers.tiny_reranker import make_tokenizer

KIND = f"{ROOT}/configs/plugins/sparse.py:SparseSettings"
TEXTS = [SearchText("light of a lamp at sea"), SearchText("bread and yeast"), SearchText("the moon fills the harbour")]
JOINED = {doc_id: f"{title}. {text}" if title else text or "" for doc_id, (title, text) in PASSAGES.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model, tiny and with random weights; its embeddings are tied, so a token itself weighs most."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    folder = tmp_path_factory.mktemp("splade")
    tokenizer = make_tokenizer([*JOINED.values()])
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=512, initializer_range=0.3, pad_token_id=1, **sizes
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.model_max_length = 256
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def alias(elasticsearch: str, new_name: Callable[[], str]) -> str:
    return new_name()


def config(folder: Path, alias: str, model: Path, **more: Any) -> str:
    sparse = {"kind": KIND, "index": alias, "model": str(model), "replicas": 0} | more
    values = {
        "name": "sparse",
        "log": {"path": "log.parquet", "query_column": "query"},
        "rewrite": {"strategies": []},
        "retrieve": {"retrievers": {"sparse": sparse}},
        "rerank": {"kind": "none"},
        "output": "runs",
        "cluster": {"address": "none"},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(values))
    return str(folder / "job.yaml")


@pytest.fixture(scope="module")
def built(alias: str, model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The alias of the index that `dmqr index` has built."""
    assert main(["index", config(tmp_path_factory.mktemp("job"), alias, model), "--corpus", str(corpus)]) == 0
    return alias


@pytest.fixture(scope="module")
def retriever(built: str, model: Path) -> Retriever:
    return open_retriever("under_test", settings_of(KIND, index=built, model=str(model)))


class TestSparse(RetrieverContract):
    texts = TEXTS

    @pytest.fixture(autouse=True)
    def given(self, built: str, model: Path, retriever: Retriever) -> None:
        self._settings, self._retriever = settings_of(KIND, index=built, model=str(model)), retriever

    def settings(self) -> Any:
        return self._settings

    def opened(self) -> Retriever:
        return self._retriever


def weights(model: Path, text: str) -> dict[int, float]:
    """Token -> weight of one text, without batches."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModelForMaskedLM.from_pretrained(model).eval()
    with torch.no_grad():
        logits = network(**tokenizer(text, return_tensors="pt", truncation=True, max_length=256)).logits[0]
    best = np.log1p(np.maximum(logits.numpy(), 0)).max(axis=0)
    best[tokenizer.all_special_ids] = 0
    order = np.argsort(-best, kind="stable")[:256]
    return {int(token): float(best[token]) for token in order if best[token] > 0}


@pytest.mark.slow
def test_scores_are_products_of_weights(retriever: Retriever, model: Path) -> None:
    of_documents = {doc_id: weights(model, text) for doc_id, text in JOINED.items() if text}
    for text, hits in zip(TEXTS, hits_of(retriever.search(TEXTS, 100)), strict=True):
        asked = weights(model, text.text)
        wanted = {
            doc_id: sum(weight * held.get(token, 0.0) for token, weight in asked.items())
            for doc_id, held in of_documents.items()
        }
        assert {doc_id for doc_id, _ in hits} <= wanted.keys()
        assert {doc_id for doc_id, score in wanted.items() if score > 0} <= {doc_id for doc_id, _ in hits}
        for doc_id, score in hits:
            assert score == pytest.approx(wanted[doc_id], rel=0.01)  # it keeps nine bits of a weight
        assert wanted[hits[0][0]] == pytest.approx(max(wanted.values()), rel=0.01)


@pytest.mark.slow
def test_the_same_corpus_is_built_once_and_another_replaces_it(
    built: str, model: Path, corpus: Path, tmp_path: Path, write_corpus: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, built, model)
    assert main(["index", path, "--corpus", str(corpus)]) == 0
    assert f"sparse: {len(PASSAGES)} documents, exists already" in capsys.readouterr().out
    assert main(["index", config(tmp_path, f"{built}-two", model), "--corpus", str(corpus)]) == 0
    few = write_corpus({"doc_id": ["x"], "title": ["a"], "text": ["lamp"]})
    assert main(["index", config(tmp_path, f"{built}-two", model), "--corpus", str(few)]) == 0
    assert f"in place of the index of another corpus ({len(PASSAGES)} documents)" in capsys.readouterr().out
    (held,) = ask("GET", f"/{built}-two").values()
    assert held["settings"]["index"]["blocks"]["write"] == "true"


def test_an_index_of_other_settings_is_refused(built: str, model: Path) -> None:
    with pytest.raises(RetrieverError, match="was built with another model, max_length or most; set those, or build it again"):
        open_retriever("under_test", settings_of(KIND, index=built, model=str(model), most=7))
    with pytest.raises(RetrieverError, match="there is none; build it with"):
        open_retriever("under_test", settings_of(KIND, index=f"{built}-none", model=str(model)))


@pytest.mark.slow
def test_the_lines_of_the_page(
    alias: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if "sparse.yaml" in line]
    assert [line.split()[1] for line in lines] == ["index", "run"]
    monkeypatch.chdir(ROOT)
    changed = {
        "retrieve.retrievers.sparse.model": model, "retrieve.retrievers.sparse.index": f"{alias}-page",
        "retrieve.retrievers.bm25.index": f"{alias}-page-text", "output": tmp_path / "runs", "cluster.address": "none",
    }  # fmt: skip
    more = [word for key, value in changed.items() for word in ("--set", f"{key}={value}")]
    for line in lines:
        assert main([*shlex.split(line)[1:], *more]) == 0, capsys.readouterr().err
        said = capsys.readouterr().out
    run = open_run(said.strip().splitlines()[-1])
    assert {row["retriever"] for row in rows(run, "runs")} == {"bm25", "sparse"}
    assert run.record["identity"]["indexes"]["sparse"]["code"]["class"] == "SparseSettings"
