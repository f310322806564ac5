"""A union of two indexes in whole jobs: ids are qualified in every table, and texts are read where the document is."""

import io
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.index.index import index
from jobs.job.retrievers import open_documents
from jobs.log.judgements import Judgements
from jobs.measure.evaluate import evaluate
from jobs.runs.documents import RunDocuments
from jobs.runs.folder import open_run
from jobs.submit.sent_config import sent_config
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import FakeModels

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "yeast", "zzz"]
LAW = {
    "d1": "A keeper trimmed the wick of the lighthouse lamp every four hours.",
    "d2": "Whoever sells bread by weight must bake it so that it can rise.",
    "d3": "The moon pulls the sea twice a day and the harbours fill.",
    "d4": "Wild yeast is in no hurry.",
}
MED = {  # the ids of LAW, and other documents, but for one text that is in both
    "d1": "Bread and yeast may cause a rise of the blood sugar.",
    "d2": "The lamp of the surgeon is cleaned after each patient.",
    "d3": "Tides of fever come with the moon, says the almanac.",
    "twin": "The moon pulls  the sea twice a day and the harbours fill.",
}
TEXTS = {f"law:{doc_id}": text for doc_id, text in LAW.items()} | {f"med:{doc_id}": text for doc_id, text in MED.items()}


def overlap(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker of these tests: words in common, and the longer text first."""
    return [sum(word in text.lower() for word in query.split()) + len(text) / 1000 for text in texts]


@pytest.fixture(scope="module")
def reranker() -> Iterator[FakeModels]:
    with FakeModels("tei", score=overlap) as server:
        yield server


LOCAL = {"kind": "local", "analyzer": "english"}
CONFIG = {
    "name": "small",
    "log": {"path": "log.parquet", "query_column": "query"},
    "corpus": {"law": {"path": "law.parquet"}, "med": {"path": "med.parquet", "text_column": "words"}},
    "rewrite": {"strategies": []},
    "retrieve": {
        "retrievers": {"all": {"kind": "union", "of": {name: LOCAL | {"index": f"i/{name}"} for name in ("law", "med")}}}
    },
    "rerank": {"kind": "none"},
    "limits": {"error_rate": 1},
    "cluster": {"address": "none", "shard_size": 2},
    "output": "runs",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, two corpora, their config, and the indexes that the verb has built."""
    folder = tmp_path_factory.mktemp("union")
    pq.write_table(pa.table({"query": QUERIES}), folder / "log.parquet")
    for name, column, texts in (("law", "text", LAW), ("med", "words", MED)):
        cited = {"source": [f"{name}.pdf"] * len(texts)}
        pq.write_table(pa.table({"doc_id": list(texts), column: list(texts.values())} | cited), folder / f"{name}.parquet")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["index", "config.yaml"]) == 0
    return folder


@pytest.fixture
def path(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The config in a copy of that folder, which is the current one."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "config.yaml")


def run(path: str, reranker: FakeModels, *settings: str) -> Path:
    rerank = {"kind": "server", "model": reranker.model, "base_url": reranker.address}
    return run_in_process(prepared_job(path, f"rerank={json.dumps(rerank)}", *settings))


def test_documents_are_qualified_and_read_in_their_own_index(path: str, reranker: FakeModels) -> None:
    folder = run(path, reranker, "fuse.keep_candidates=true")
    for table in ("runs", "candidates", "results", "scores"):
        found = {row["doc_id"] for row in rows(folder, table)}
        assert {"law:d1", "med:d1"} <= found <= TEXTS.keys(), table
    words = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    for row in rows(folder, "scores"):
        (wanted,) = overlap(words[row["query_id"]], [TEXTS[row["doc_id"]]])
        assert row["score"] == pytest.approx(wanted)
    documents = RunDocuments(open_run(str(folder)))
    assert documents(list(TEXTS)) == TEXTS
    assert documents.places(["med:d1", "law:d1"]) == {"med:d1": "med.pdf", "law:d1": "law.pdf"}


def test_judgements_name_qualified_documents(path: str) -> None:
    folder = open_run(str(run_in_process(prepared_job(path))))
    found = evaluate(folder, Judgements("", {QUERIES[0]: {"law:d2": 1, "d2": 1, "med:d9": 1}}, "query"), ["R@5"])
    assert found.frame.unknown is not None
    assert (found.frame.unknown.unknown, found.frame.unknown.looked_up) == (2, 3)


def test_it_is_tried_and_planned(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", path, "moon and tides", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert {(one["doc_id"], one["text"], one["place"]) for one in shown["results"]} >= {
        ("med:d3", MED["d3"], "med.pdf"), ("law:d3", LAW["d3"], "law.pdf")
    }  # fmt: skip
    assert main(["plan", path]) == 0


def test_a_replaced_index_of_it_is_refused(path: str) -> None:
    folder = run_in_process(prepared_job(path))
    table = pq.read_table("med.parquet")
    pq.write_table(table.slice(1), "med.parquet")
    assert main(["index", path, "--replace"]) == 0
    with pytest.raises(Exception, match=r"the index of all .* holds other documents now"):
        RunDocuments(open_run(str(folder)))


def test_texts_of_documents_without_a_qualifier_are_refused(path: str) -> None:
    more: dict[str, Any] = {"plain": LOCAL | {"index": "i/law"}}
    settings = [f"retrieve.retrievers.{name}={json.dumps(one)}" for name, one in more.items()]
    prepared_job(path, *settings)
    with pytest.raises(ConfigError, match=r"all\.of\.law, all\.of\.med, plain search indexes of different corpora"):
        prepared_job(path, *settings, "fuse.duplicates=drop")


def test_paths_of_its_corpora_are_absolute_where_they_are_sent(path: str) -> None:
    sent = sent_config(load_config(path)).values
    assert sent["corpus"]["law"] == {"path": str(Path("law.parquet").absolute())}
    assert sent["retrieve"]["retrievers"]["all"]["of"]["med"]["index"] == str(Path("i/med").absolute())


Values = dict[str, Any]


def test_index_builds_what_it_is_made_of(values: Values, corpus: Path, tmp_path: Path, served_dense: Values) -> None:
    words = {"kind": "local", "index": str(tmp_path / "built")}
    parts = {"a": words, "b": words | {"encoder": served_dense["encoder"]}}
    values["retrieve"] = {"retrievers": {"both": {"kind": "hybrid", "of": parts}}}
    config = Config.model_validate(values)
    (built,) = index(config, [str(corpus)], LiveDisplay(io.StringIO()))
    assert (built["index"], built["documents"]) == (words["index"], 8)
    texts = open_documents("both", config.retrieve.retrievers["both"]).texts(["d04"])
    assert texts == ["Bread. Rye bread keeps for a week in a linen bag."]
