"""Answers of whole runs and ablations: measured by gold answers (EM and F1) and by judges, and the file of them."""

import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dmqr
from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.measure.answers import answer_frame, answer_frames, gold_answers
from jobs.measure.comparison import comparisons
from jobs.measure.evaluate import answer_notes
from jobs.pages.ablation import ablation_report, closing_page, compared
from jobs.runs.folder import RunFolder, open_run
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.jobs.terminals import printed
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

REFUSED = QUERIES[1]
GOLD = [
    (QUERIES[0], "Yeast makes gas."), (QUERIES[0], "the gas of yeast"), (QUERIES[1], "a lens"), ("spring tide", "moon and sun"),
    ("yeast", "yes"), ("zzz", "nothing"), ("not in the log", "x"),
]  # fmt: skip
Scores = dict[tuple[str, str], tuple[float, float]]  # (arm, query) -> F1 and EM
KEYS = ("correctness", "style")
OWN_CRITERIA = """
prompt: |-
  Rate. {documents} Question: {query} Answer: {answer}
document: "[{number}] {text}"
output: grades
keys: [correctness, style]
grades: {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5}
"""


def refused(body: dict[str, Any]) -> Reply | None:
    """Refuses to answer one query."""
    return refusal(400, "no") if prompt_of(body).endswith(f"Question: {REFUSED}") else None


def said(body: dict[str, Any]) -> str:
    """Judges by chance of the answer; answers by the question, and by the number of documents."""
    prompt = prompt_of(body)
    if prompt.startswith("Rate."):
        answer = prompt.rpartition("Answer: ")[2]
        return json.dumps({name: zlib.crc32((name + answer).encode()) % 6 for name in KEYS})
    if prompt.startswith("Query: "):
        return json.dumps({"match": 1, "trust": 2, "overall": 2})
    if "Reference answers:" in prompt:
        return "correct" if zlib.crc32(prompt.encode()) % 2 else "incorrect"
    documents, _, question = prompt.rpartition("Question: ")
    many = documents.count("[2]") > 0
    return {
        QUERIES[0]: "The gas, of yeast [1]." if many else "gas [1]",
        "spring tide": "Sun and the moon [1]" if many else "the moon",
        "yeast": "Yes" if many else "yes, it is",
    }.get(question, "I do not know")


def scores(arm: str, documents: int) -> Scores:
    """F1 and EM of these answers, by hand: one with several golds counts by its best, a yes to a yes alone."""
    one = {QUERIES[0]: (0.5, 0.0), "spring tide": (0.5, 0.0), "yeast": (0.0, 0.0)}
    several = {QUERIES[0]: (1.0, 1.0), "spring tide": (1.0, 0.0), "yeast": (1.0, 1.0)}
    unanswered = {REFUSED: (0.0, 0.0), "zzz": (0.0, 0.0)}
    return {(arm, query): of for query, of in ((one if documents == 1 else several) | unanswered).items()}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b", "answerer-8b"], answer=refused, text=said) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    Path("gold.tsv").write_text("".join(f"{query}\t{answer}\n" for query, answer in GOLD))
    Path("criteria.yaml").write_text(OWN_CRITERIA)
    engine = {"kind": "openai", "base_url": server.address}
    values["answer"] = {"documents": 2, "engine": engine | {"model": "answerer-8b"}, "prompt": "short_answer"}
    values["judge"] = {"engine": engine | {"model": "judge-70b"}, "accuracy": {}, "criteria": {"prompt": "./criteria.yaml"}}
    values["evaluate"] = {"answers": "gold.tsv", "key": "query", "slices": ["words"]}
    return small_job()


def measured(run: RunFolder) -> Scores:
    gold = gold_answers(run.config.evaluate)
    assert gold is not None
    frame = answer_frame(run, gold)
    assert frame.measures == ("F1", "EM")
    return {
        (arm, key): (round(float(frame.values[n, 0, place]), 9), float(frame.values[n, 1, place]))
        for n, arm in enumerate(frame.arms)
        for place, key in enumerate(frame.keys)
    }


@pytest.mark.slow
def test_what_answers_are_worth_is_the_same_wherever_it_is_shown(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", job]) == 0
    *table, folder = capsys.readouterr().out.splitlines()
    run, wanted = open_run(folder), scores("run", 2)
    assert measured(run) == wanted
    f1, exact = (sum(one[place] for one in wanted.values()) / len(wanted) for place in range(2))
    quality, *_ = answer_frames(run, gold_answers(run.config.evaluate))
    assert "gold answers: 5 distinct queries; left out: 1 not in the log" in answer_notes(quality)
    assert "counted as zero: 1 without an answer" in answer_notes(quality)
    assert f"F1 of answers  {f1:.4f}" in re.sub(" {3,}", "  ", "\n".join(table))
    assert main(["evaluate", folder, "--json", "--per-query", "wide.parquet"]) == 0
    found, stored = json.loads(capsys.readouterr().out), json.loads(Path(folder, "evaluation.json").read_text())
    assert found["answers"]["without_answer"] == 1
    measures = {"answers": found["answers"]["measures"]}
    measures |= {kind: one["measures"] for kind, one in found["judged_answers"].items()}
    assert measures.keys() == {"answers", "accuracy", "criteria"}
    assert measures["answers"]["F1"]["answers"] == pytest.approx(f1)
    assert measures["answers"]["EM"]["answers"] == pytest.approx(exact)
    assert stored["answers"]["measures"] == measures["answers"]
    assert {kind: one["measures"] for kind, one in stored["judged_answers"].items()} == {
        kind: measures[kind] for kind in ("accuracy", "criteria")
    }
    wide = pq.read_table("wide.parquet").to_pylist()
    assert len(wide) == len(QUERIES)
    assert {("run", one["query"]): (round(one["F1"], 9), one["EM"]) for one in wide if one["F1"] is not None} == wanted
    graded = [one["accuracy"] for one in wide if one["accuracy"] is not None]
    assert sum(graded) / len(graded) == pytest.approx(measures["accuracy"]["accuracy"]["answers"])
    assert main(["runs", job]) == 0
    listed = capsys.readouterr().out
    assert {"F1", "EM", "accuracy", "criteria"} <= set(listed.split())
    assert "judged by judge-70b, an LLM" in " ".join(listed.split())
    page = Path(folder, "report.html").read_text()
    for words in ("answers, against gold answers", f"{f1:.4f}", "answers, judged by criteria", "judged by judge-70b"):
        assert words in page


def test_a_baseline_that_does_not_answer_is_replaced_and_said(job: str, server: FakeServer) -> None:
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address}
    asks = {"answer.engine": engine, "answer.prompt": "short_answer"}
    arms = {"one": {"answer.documents": 1, **asks}, "two": {"answer.documents": 2, **asks}}
    run = finished(prepared_work(job, ["answer=null", "judge=null"], {"arms": arms}))
    assert measured(run) == scores("one", 1) | scores("two", 2)
    [found] = comparisons(run, None, run.config.evaluate, gold_answers(run.config.evaluate))
    assert found is not None
    assert found.frame.arms == ("one", "two")
    assert found.baseline == "one"
    assert found.by_arm["two", "F1"].difference > 0
    assert found.notes[:2] == (
        "no LLM answers for full, original, general: not measured here", "compared with one, since original has no answers"
    )  # fmt: skip


def test_answers_of_which_none_can_be_graded_are_a_warning(
    job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "text", lambda body: "hm" if "Reference answers:" in prompt_of(body) else said(body))
    pq.write_table(pa.table({"query": [QUERIES[0]]}), "one.parquet")  # it has hits
    run = finished(prepared_work(job, ["log.path=one.parquet"], {"arms": {"one": {"answer.documents": 1}}}))
    accuracy, criteria = comparisons(run, None, run.config.evaluate, None)
    assert accuracy.frame.warning == (
        "nothing is measured: no query is committed whose answers could be judged (accuracy); errors/ says why"
    )
    assert criteria.frame.warning is None
    found = compared(run, None, run.config.evaluate, None)
    assert accuracy.frame.warning in printed(closing_page(found)).replace("\n", " ")
    assert 'id="accuracy"' in ablation_report(found)


def test_gold_answers_of_a_run_that_does_not_answer_are_refused(job: str) -> None:
    run = finished(prepared_work(job, ["answer=null", "judge=null"], None))
    assert not answer_frames(run, gold_answers(run.config.evaluate))
    with pytest.raises(ConfigError, match=r"no LLM answers in .*leave it out"):
        dmqr.evaluate(run.storage.root, answers="gold.tsv")
    with pytest.raises(ConfigError, match="name a file with qrels"):
        dmqr.evaluate(run.storage.root)


def test_a_line_of_the_file_has_all_that_is_known_of_an_answer(
    job: str, passages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(prepared_work(job, ["judge.relevance={documents: 2}", "answer.labels={by: rank}"], None))
    assert main(["evaluate", run.storage.root, "--rows", "answers.jsonl", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["notes"] == ["1 queries without an answer have no line", "1 without a gold answer"]
    lines = [json.loads(line) for line in Path("answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert file["rows"] == len(lines) == 5
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    graded = [one for one in rows(run, "judgements") if one["doc_id"]]
    assert {one["grade"] for one in graded} == {2}
    for one, answer in zip(lines, sorted(rows(run, "answers"), key=lambda one: one["query_id"]), strict=True):
        query_id, query = answer["query_id"], texts[answer["query_id"]]
        assert (one["query_id"], one["arm"], one["query"]) == (query_id, "run", query)
        shown = (answer["text"], "answerer-8b", False, answer["cited"])
        assert (one["answer"], one["model"], one["cut"], one["cited"]) == shown
        documents = [(document["doc_id"], document["label"]) for document in answer["documents"]]
        assert all(label for _, label in documents)
        assert one["contexts"] == [
            {"doc_id": doc, "label": label, "place": None, "text": passages[doc]} for doc, label in documents
        ]
        assert one["gold_answers"] == [answer for asked, answer in GOLD if asked == query]
        f1, exact = scores("run", 2).get(("run", query), (None, None))
        assert (one["f1"], one["em"]) == (f1, exact)
        rewrites = [each for each in rows(run, "rewrites") if each["query_id"] == query_id]
        assert one["rewrites"] == [{"strategy": each["strategy"], "text": each["text"]} for each in rewrites]
        own = {(each["doc_id"], each["grade"]) for each in graded if each["query_id"] == query_id}
        assert {(each["doc_id"], each["grade"]) for each in one["judgements"] if each["doc_id"]} == own
