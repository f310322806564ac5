"""The files of answers for others, of whole runs, against the run's own tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, DmqrError
from jobs.cli.command_line.arguments import parser
from jobs.cli.evaluate import evaluate
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, WITHOUT_HITS, finished, job_in_process, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

REFUSED = QUERIES[1]
SAID = "Bread rises by gas [1][2]. Yeast makes it, e.g. in dough. [2] So they say [9]!"


def refused(body: dict[str, Any]) -> Reply | None:
    return refusal(400, "no") if body["messages"][-1]["content"].endswith(REFUSED) else None


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["answerer-8b"], answer=refused, text=lambda body: SAID) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gold.tsv").write_text("yeast\tgas\nyeast\tso they say\nspring tide\tmoon\n")
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address, "attempts": 1}
    values["answer"] = {"documents": 2, "engine": engine, "labels": {"by": "rank"}}
    values["evaluate"] = {"answers": "gold.tsv", "key": "query"}
    return job_in_process(tmp_path, values, bm25, config_file)


def command(run: RunFolder, *words: str) -> int:
    return evaluate(parser().parse_args(["evaluate", run.storage.root, *words]))


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def check_rag(found: dict[str, Any]) -> None:
    """What a reader of the track's answers relies on."""
    assert list(found) == ["run_id", "topic_id", "topic", "references", "response_length", "answer"]
    assert all(isinstance(found[name], str) and found[name] for name in ("run_id", "topic_id", "topic"))
    assert len(set(found["references"])) == len(found["references"])
    assert found["response_length"] == sum(len(one["text"].split()) for one in found["answer"])
    for one in found["answer"]:
        assert list(one) == ["text", "citations"]
        assert one["text"].strip()
        assert len(one["citations"]) <= 3
        assert len(set(one["citations"])) == len(one["citations"])
        assert all(0 <= place < len(found["references"]) for place in one["citations"])


def test_answers_for_trec_rag(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(prepared_work(job, [], None))
    assert command(run, "--trec-rag", "rag.jsonl") == 0
    assert "rag.jsonl: 5 answers; 1 queries without an answer have no line" in capsys.readouterr().out
    found = {one["topic"]: one for one in lines("rag.jsonl")}
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    assert found.keys() == set(QUERIES) - {REFUSED}
    for answer in rows(run, "answers"):
        one = found[texts[answer["query_id"]]]
        check_rag(one)
        assert one["topic_id"] == answer["query_id"]
        assert one["run_id"] == run.record["run_id"]
        assert one["references"] == [document["doc_id"] for document in answer["documents"]]
        two = len(one["references"]) == 2
        assert [each["text"] for each in one["answer"]] == [
            "Bread rises by gas.", "Yeast makes it, e.g. in dough.", "So they say!"
        ]  # fmt: skip
        if two:
            assert [each["citations"] for each in one["answer"]] == [[0, 1], [1], []]
        if one["topic"] == WITHOUT_HITS:
            assert [each["citations"] for each in one["answer"]] == [[], [], []]


def test_a_topic_is_a_row_of_a_log_with_ids(job: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"query": [*QUERIES, "yeast"], "id": [f"t{n}" for n in range(7)]}), tmp_path / "log.parquet")
    run = finished(prepared_work(job, ["log.id_column=id"], None))
    command(run, "--trec-rag", "rag.jsonl")
    topics = {one["topic_id"]: one["topic"] for one in lines("rag.jsonl")}
    assert topics == {f"t{n}": query for n, query in enumerate([*QUERIES, "yeast"]) if query != REFUSED}
    command(run, "--trec-rag", "rag.jsonl", "--key", "query_id")
    assert len(lines("rag.jsonl")) == 5


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_answers_for_ragas(job: str, ending: str, passages: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(prepared_work(job, [], None))
    assert command(run, "--ragas", f"ragas.{ending}", "--json") == 0
    values = json.loads(capsys.readouterr().out)["files"][0]
    assert values["rows"] == 5
    assert values["notes"] == [
        "1 queries without an answer have no row", "3 without a gold answer", "1 have the first of several gold answers"
    ]  # fmt: skip
    found = lines("ragas.jsonl") if ending == "jsonl" else pq.read_table("ragas.parquet").to_pylist()
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    first = {"yeast": "gas", "spring tide": "moon"}
    expected = [
        {
            "question": texts[one["query_id"]],
            "contexts": [passages[document["doc_id"]] for document in one["documents"]],
            "answer": SAID,
            "ground_truth": first.get(texts[one["query_id"]]),
        }
        for one in sorted(rows(run, "answers"), key=lambda one: one["query_id"])
    ]
    assert found == expected


@pytest.mark.slow
def test_rows_with_all_that_is_known(job: str, tmp_path: Path) -> None:
    (tmp_path / "own-prices.yaml").write_text("tokens: {answerer-8b: {prompt: 2.0, completion: 8.0}}\n")
    run = finished(prepared_work(job, [], None))
    command(run, "--rows", "rows.parquet", "--prices", "own-prices.yaml")
    found = {one["question"]: one for one in pq.read_table("rows.parquet").to_pylist()}
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    assert found.keys() == set(QUERIES) - {REFUSED}
    costs = rows(run, "costs")
    for query_id, query in texts.items():
        if query == REFUSED:
            continue
        one = found[query]
        own = [cost for cost in costs if cost["query_id"] == query_id]
        answered = [cost for cost in own if cost["stage"] == "answer"]
        assert one["answer_input_tokens"] == sum(cost["prompt_tokens"] for cost in answered) > 0
        assert one["answer_output_tokens"] == sum(cost["completion_tokens"] for cost in answered) > 0
        usd = (2.0 * one["answer_input_tokens"] + 8.0 * one["answer_output_tokens"]) / 1e6
        assert one["answer_usd"] == one["usd"] == pytest.approx(usd)
        assert one["seconds"] == pytest.approx(sum(cost["seconds"] for cost in own))
        assert one["answer_seconds"] == pytest.approx(sum(cost["seconds"] for cost in answered))
        assert one["answer_model"] == "answerer-8b"
        assert one["answer_provider"] == answered[0]["provider"]
        assert one["answer_usage_source"] == answered[0]["usage"]
        rewrites = [each["text"] for each in rows(run, "rewrites") if each["query_id"] == query_id]
        assert sorted(each["text"] for each in one["rewrites"]) == sorted(rewrites)
        assert one["rewrite_count"] == len(rewrites)
        assert one["retrieval_method"] == "bm25 (local), fusion minmax"
        assert one["price_source"].startswith("own-prices.yaml sha256 ")
        assert len(one["contexts"]) == len(one["documents"]) == len(one["labels"])
    assert found["yeast"]["ground_truth"] == ["gas", "so they say"]
    assert found["yeast"]["em"] == 0.0
    assert found["yeast"]["f1"] > 0
    assert found["moon and tides"]["f1"] is None


@pytest.mark.slow
def test_an_arm_has_the_rows_of_its_run_but_for_the_costs(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    ablation = finished(prepared_work(job, [], {"arms": {"one": {"answer.documents": 1}}}))
    command(ablation, "--rows", "arm.jsonl", "--arm", "one", "--trec-rag", "arm-rag.jsonl")
    assert "no costs: arms share their work" in capsys.readouterr().out
    alone = finished(prepared_work(job, ["store=null", "answer.documents=1"], None))
    command(alone, "--rows", "run.jsonl", "--trec-rag", "run-rag.jsonl")
    costs = ("tokens", "seconds", "usd", "reused", "source", "provider", "arm")
    for of_arm, of_run in zip(lines("arm.jsonl"), lines("run.jsonl"), strict=True):
        assert of_arm["arm"] == "one"
        assert all(of_arm[name] is None for name in of_arm if name.endswith(costs[:-1]))
        known = [name for name in of_arm if not name.endswith(costs)]
        assert {name: of_arm[name] for name in known} == {name: of_run[name] for name in known}
    for of_arm, of_run in zip(lines("arm-rag.jsonl"), lines("run-rag.jsonl"), strict=True):
        assert of_arm.pop("run_id") == f"{ablation.record['run_id']}-one"
        of_run.pop("run_id")
        assert of_arm == of_run


@pytest.mark.slow
def test_what_cannot_be_written_is_refused_in_one_line(job: str, bm25: dict[str, Any], tmp_path: Path) -> None:
    own = shutil.copytree(bm25["index"], tmp_path / "own-index")
    run = finished(prepared_work(job, [f"retrieve.retrievers.bm25.index={own}"], None))
    for words, said in (
        (("--ragas", "a.csv"), r"neither Parquet nor JSON lines; give a name that ends in \.parquet or \.jsonl"),
        (("--rows", "a.jsonl", "--arm", "one"), "which has no arms"),
        (("--arm", "one"), "leave it out"),
    ):
        with pytest.raises(ConfigError, match=said):
            command(run, *words)
    silent = finished(prepared_work(job, ["answer=null"], None))
    with pytest.raises(ConfigError, match="no LLM answers, so there are no answers to write"):
        command(silent, "--trec-rag", "a.jsonl")
    shutil.rmtree(own)
    with pytest.raises(DmqrError) as refused_it:
        command(run, "--ragas", "gone.jsonl")
    assert "\n" not in str(refused_it.value)
    assert str(own) in str(refused_it.value)
    assert not (tmp_path / "gone.jsonl").exists()
    assert command(run, "--trec-rag", "rag.jsonl") == 0  # needs no texts
