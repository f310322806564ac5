"""The file of answers of whole runs, against the run's own tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dmqr
from cluster.errors import ConfigError, DmqrError
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.runs.folder import RunFolder
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import QUERIES, WITHOUT_HITS, finished, job_in_process, prepared_work, rows
from tests.support.retrievers.blocks import index_fields
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

REFUSED = QUERIES[1]
SAID = "Bread rises by gas [1][2]. Yeast makes it, e.g. in dough. [2] So they say [9]!"


def refused(body: dict[str, Any]) -> Reply | None:
    return refusal(400, "no") if body["messages"][-1]["content"].endswith(REFUSED) else None


def said(body: dict[str, Any]) -> str:
    judged = "Document:" in body["messages"][-1]["content"] and "Question:" not in body["messages"][-1]["content"]
    return json.dumps({"match": 1, "trust": 2, "overall": 2}) if judged else SAID


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["answerer-8b"], answer=refused, text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gold.tsv").write_text("yeast\tgas\nyeast\tso they say\nspring tide\tmoon\n")
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address}
    values["answer"] = {"documents": 2, "engine": engine, "labels": {"by": "rank"}}
    values["evaluate"] = {"answers": "gold.tsv", "key": "query"}
    return job_in_process(tmp_path, values, bm25, config_file)


def command(run: RunFolder, *words: str) -> int:
    return main(["evaluate", run.storage.root, *words])


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_a_line_has_all_that_is_known_of_an_answer(
    job: str, passages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    engine = json.loads(json.dumps(load_config(job).answer.engine.model_dump(mode="json")))  # type: ignore[union-attr]
    judge = {"engine": engine, "relevance": {"documents": 2}}
    run = finished(prepared_work(job, [f"judge={json.dumps(judge)}"], None))
    assert command(run, "--rows", "answers.jsonl", "--json") == 0
    values = json.loads(capsys.readouterr().out)["files"][0]
    assert values["rows"] == 5
    assert values["notes"] == ["1 queries without an answer have no line", "3 without a gold answer"]
    found = lines("answers.jsonl")
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    answers = sorted(rows(run, "answers"), key=lambda one: one["query_id"])
    gold = {"yeast": ["gas", "so they say"], "spring tide": ["moon"]}
    judged = rows(run, "judgements")
    assert {one["grade"] for one in judged} == {2}
    for one, answer in zip(found, answers, strict=True):
        query = texts[answer["query_id"]]
        assert (one["query_id"], one["arm"], one["query"], one["answer"]) == (answer["query_id"], "run", query, SAID)
        assert (one["model"], one["cut"], one["cited"]) == ("answerer-8b", False, answer["cited"])
        documents = [(document["doc_id"], document["label"]) for document in answer["documents"]]
        assert one["contexts"] == [
            {"doc_id": doc, "label": label, "place": None, "text": passages[doc]} for doc, label in documents
        ]
        assert one["gold_answers"] == gold.get(query, [])
        assert (one["f1"] is None) == (one["em"] is None) == (query not in gold)
        rewrites = [each for each in rows(run, "rewrites") if each["query_id"] == answer["query_id"]]
        assert one["rewrites"] == [{"strategy": each["strategy"], "text": each["text"]} for each in rewrites]
        own = {(each["doc_id"], each["grade"]) for each in judged if each["query_id"] == answer["query_id"]}
        assert {(each["doc_id"], each["grade"]) for each in one["judgements"]} == own
    assert WITHOUT_HITS in {one["query"] for one in found}


def test_a_context_says_its_source_and_page(job: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pq.read_table(corpus)
    pages = pa.array(range(1, table.num_rows + 1), pa.int32())
    paged = table.append_column("source", pa.array(["bread.pdf"] * table.num_rows)).append_column("page", pages)
    pq.write_table(paged, tmp_path / "paged.parquet")
    build_local_index(tmp_path / "paged", tmp_path / "paged.parquet", index_fields("english"))
    run = finished(prepared_work(job, ["retrieve.retrievers.bm25.index=paged"], None))
    assert command(run, "--rows", "answers.jsonl", "--json") == 0
    page_of = dict(zip(table["doc_id"].to_pylist(), pages.to_pylist(), strict=True))
    contexts = [context for line in lines("answers.jsonl") for context in line["contexts"]]
    assert contexts
    assert all(one["place"] == f"bread.pdf, page {page_of[one['doc_id']]}" for one in contexts)
    cited = [doc_id for line in lines("answers.jsonl") for doc_id in line["cited"]]
    assert cited
    assert set(cited) <= {one["doc_id"] for one in contexts}  # so the page of a citation is that of its context


@pytest.mark.slow
def test_what_cannot_be_written_is_refused_in_one_line(job: str, bm25: dict[str, Any], tmp_path: Path) -> None:
    own = shutil.copytree(bm25["index"], tmp_path / "own-index")
    run = finished(prepared_work(job, [f"retrieve.retrievers.bm25.index={own}"], None))
    for path, said in (("a.jsonl", "which has no arms"), (None, "leave it out")):
        with pytest.raises(ConfigError, match=said):
            dmqr.evaluate(run.storage.root, rows=path, arm="one")
    silent = finished(prepared_work(job, ["answer=null"], None))
    with pytest.raises(ConfigError, match="no LLM answers, so there are no answers to write"):
        dmqr.evaluate(silent.storage.root, rows="a.jsonl")
    shutil.rmtree(own)
    with pytest.raises(DmqrError) as refused_it:
        dmqr.evaluate(run.storage.root, rows="gone.jsonl")
    assert "\n" not in str(refused_it.value)
    assert str(own) in str(refused_it.value)
    assert not (tmp_path / "gone.jsonl").exists()
