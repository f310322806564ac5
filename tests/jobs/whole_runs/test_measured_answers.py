"""EM and F1 of whole runs and ablations, against a computation from the stored answers and the gold file apart."""

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import dmqr
from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.measure.answers import answer_frame, answer_frames, gold_answers
from jobs.measure.comparison import comparisons
from jobs.measure.evaluate import answer_notes
from jobs.pages.comparison import MeasuredRun
from jobs.pages.run import report
from jobs.pages.summary import closing_table, closing_values
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.jobs.terminals import printed
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

REFUSED = QUERIES[1]
GOLD = [
    (QUERIES[0], "Yeast makes gas."), (QUERIES[0], "the gas of yeast"), (QUERIES[1], "a lens"), ("spring tide", "moon and sun"),
    ("yeast", "yes"), ("zzz", "nothing"), ("not in the log", "x"),
]  # fmt: skip


def refused(body: dict[str, Any]) -> Reply | None:
    return refusal(400, "no") if body["messages"][-1]["content"].endswith(REFUSED) else None


def said(body: dict[str, Any]) -> str:
    """Answers by the question, and by the number of documents."""
    documents, _, question = body["messages"][-1]["content"].rpartition("Question: ")
    many = documents.count("[2]") > 0
    return {
        QUERIES[0]: "The gas, of yeast [1]." if many else "gas [1]",
        "spring tide": "Sun and the moon [1]" if many else "the moon",
        "yeast": "Yes" if many else "yes, it is",
    }.get(question, "I do not know")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["answerer-8b"], answer=refused, text=said) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    Path("gold.tsv").write_text("".join(f"{query}\t{answer}\n" for query, answer in GOLD))
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address}
    values["answer"] = {"documents": 2, "engine": engine, "prompt": "short_answer"}
    values["evaluate"] = {"answers": "gold.tsv", "key": "query", "slices": ["words"]}
    return small_job()


def words(text: str) -> list[str]:
    text = re.sub(r"\[\d+\]", "", text).lower()
    return [one for one in "".join(c for c in text if c not in string.punctuation).split() if one not in ("a", "an", "the")]


def score(answer: str | None, golds: list[str]) -> tuple[float, float]:
    f1s, exacts = [0.0], [0.0]
    for gold in golds if answer is not None else ():
        found, wanted = words(answer or ""), words(gold)
        common = sum((Counter(found) & Counter(wanted)).values())
        closed = any(side in (["yes"], ["no"], ["noanswer"]) for side in (found, wanted)) and found != wanted
        f1s.append(0.0 if closed or not common else 2 * common / (len(found) + len(wanted)))
        exacts.append(float(found == wanted))
    return round(max(f1s), 9), max(exacts)


def expected(run: RunFolder) -> dict[tuple[str, str], tuple[float, float]]:
    """(arm, query) -> F1 and EM, from answers/ and the gold answers alone."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    answers = {(one["arm"], texts[one["query_id"]]): one["text"] for one in rows(run, "answers")}
    golds: dict[str, list[str]] = {}
    for query, answer in GOLD:
        golds.setdefault(query, []).append(answer)
    return {
        (arm, query): score(answers.get((arm, query)), of)
        for arm in {arm for arm, _ in answers}
        for query, of in golds.items()
        if query in texts.values()
    }


def measured(run: RunFolder) -> dict[tuple[str, str], tuple[float, float]]:
    gold = gold_answers(run.config.evaluate)
    assert gold is not None
    frame = answer_frame(run, gold)
    assert frame.measures == ("F1", "EM")
    return {
        (arm, key): (round(float(frame.values[n, 0, place]), 9), float(frame.values[n, 1, place]))
        for n, arm in enumerate(frame.arms)
        for place, key in enumerate(frame.keys)
    }


def command(*words: str) -> int:
    return main(list(words))


@pytest.mark.slow
def test_a_run_is_measured_by_its_gold_answers(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(prepared_work(job, [], None))
    wanted = expected(run)
    assert len(wanted) == 5
    assert measured(run) == wanted
    assert wanted["run", QUERIES[0]] == (1.0, 1.0)
    assert wanted["run", REFUSED] == (0.0, 0.0)
    (quality,) = answer_frames(run, gold_answers(run.config.evaluate))
    assert quality.means["F1"][0] == pytest.approx(sum(f1 for f1, _ in wanted.values()) / 5)
    assert "gold answers: 5 distinct queries; left out: 1 not in the log" in answer_notes(quality)
    assert "counted as zero: 1 without an answer" in answer_notes(quality)
    table = printed(closing_table(run, None, MeasuredRun(answers=[quality])))
    assert f"F1 of answers  {quality.means['F1'][0]:.4f}" in re.sub(" {3,}", "  ", table)
    values = closing_values(run, None, MeasuredRun(answers=[quality]))["answers"]["measures"]
    assert values["EM"]["answers"] == pytest.approx(sum(exact for _, exact in wanted.values()) / 5)
    page = report(run, None, MeasuredRun(answers=[quality]))
    assert "answers, against gold answers" in page
    assert f"{quality.means['F1'][0]:.4f}" in page
    assert command("evaluate", run.storage.root, "--json", "--per-query", str(tmp_path / "wide.parquet")) == 0
    values = json.loads(capsys.readouterr().out)["answers"]
    assert values["measures"]["F1"]["answers"] == pytest.approx(quality.means["F1"][0])
    assert values["without_answer"] == 1
    wide = pq.read_table(tmp_path / "wide.parquet").to_pylist()
    assert {("run", one["query"]): (round(one["F1"], 9), one["EM"]) for one in wide} == wanted


def test_a_baseline_that_does_not_answer_is_replaced_and_said(job: str, server: FakeServer) -> None:
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address}
    asks = {"answer.engine": engine, "answer.prompt": "short_answer"}
    arms = {"one": {"answer.documents": 1, **asks}, "two": {"answer.documents": 2, **asks}}
    run = finished(prepared_work(job, ["answer=null"], {"arms": arms}))
    assert measured(run) == expected(run)
    [found] = comparisons(run, None, run.config.evaluate, gold_answers(run.config.evaluate))
    assert found is not None
    assert found.frame.arms == ("one", "two")
    assert found.baseline == "one"
    assert found.by_arm["two", "F1"].difference > 0
    assert found.notes[:2] == (
        "no LLM answers for full, original, general: not measured here", "compared with one, since original has no answers"
    )  # fmt: skip


def test_gold_answers_of_a_run_that_does_not_answer_are_refused(job: str) -> None:
    run = finished(prepared_work(job, ["answer=null"], None))
    assert not answer_frames(run, gold_answers(run.config.evaluate))
    with pytest.raises(ConfigError, match=r"no LLM answers in .*leave it out"):
        dmqr.evaluate(run.storage.root, answers="gold.tsv")
    with pytest.raises(ConfigError, match="name a file with qrels"):
        dmqr.evaluate(run.storage.root)
