"""Arms compared by judged answers: accuracy and criteria as columns of an ablation, against a computation apart."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from jobs.__main__ import main
from jobs.log.judgements import read_qrels
from jobs.measure.answers.comparison import compare_judged
from jobs.measure.answers.frame import gold_answers
from jobs.measure.compare.comparison import compare
from jobs.measure.compare.difference import Comparison
from jobs.measure.diff.diff import diff, diff_values
from jobs.measure.judged.relevance import judged_relevance
from jobs.measure.significance import paired_test
from jobs.pages.ablation import ablation_report
from jobs.pages.closing import closing_page, closing_values, compared, write_pages
from jobs.pages.diff import diff_page
from jobs.plan.work import saved
from jobs.runs.folder import RunFolder
from jobs.runs.sums import arm_needs
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

KEYS = ("correctness", "style")
REFUSED, UNREADABLE = QUERIES[1], QUERIES[2]  # without an answer from one document; that is not judged where it is from one
ARMS = {"one": {"answer.documents": 1}, "best": {"rewrite.select": {"kind": "oracle_k", "k": 1}}}
OWN_CRITERIA = """
prompt: |-
  Rate. {documents} Question: {query} Answer: {answer}
document: "[{number}] {text}"
output: grades
keys: [correctness, style]
grades: {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5}
"""


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def refused(body: dict[str, Any]) -> Reply | None:
    """No answer to one question from one document."""
    prompt = prompt_of(body)
    asks = prompt.startswith("Documents:") and prompt.endswith(f"Question: {REFUSED}")
    return refusal(400, "no") if asks and "[2]" not in prompt else None


def chance(text: str, of: int) -> int:
    return zlib.crc32(text.encode()) % of


def said(body: dict[str, Any]) -> str:
    """Answers by the documents; judges by chance of the answer, and of one answer nothing that can be read."""
    prompt = prompt_of(body)
    if prompt.startswith("Rate."):
        answer = prompt.rpartition("Answer: ")[2]
        return json.dumps({name: chance(name + answer, 6) for name in KEYS})
    if "Reference answers:" in prompt:
        answer = prompt.rpartition("Answer of the system:\n")[2]
        if f"Question: {UNREADABLE}\n" in prompt and "from 1" in answer:
            return "hard to say"
        return "correct" if chance(answer, 2) else "incorrect"
    if prompt.startswith("Query: "):
        return json.dumps({"match": 0, "trust": 0, "overall": chance(prompt, 4)})
    question = prompt.rpartition("Question: ")[2]
    return f"On {question} from {prompt.count('[')} {chance(prompt, 1000)} [1]"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b", "answerer-8b"], answer=refused, text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("gold.tsv").write_text("".join(f"{query}\tx\n" for query in QUERIES[:4]))
    Path("criteria.yaml").write_text(OWN_CRITERIA)
    engine = {"kind": "openai", "base_url": server.address, "attempts": 1}
    values["answer"] = {"documents": 2, "engine": engine | {"model": "answerer-8b"}}
    values["judge"] = {"engine": engine | {"model": "judge-70b"}, "relevance": {"documents": 2}, "accuracy": {},
                       "criteria": {"prompt": "./criteria.yaml"}}  # fmt: skip
    values["evaluate"] = {"answers": "gold.tsv", "key": "query", "slices": ["words"]}
    return job_in_process(tmp_path, values, bm25, config_file)


def of_kind(found: list[Comparison], kind: str) -> Comparison:
    return next(one for one in found if one.frame.kind == kind)


def expected(run: RunFolder, kind: str, arms: list[str]) -> tuple[dict[tuple[str, str], list[float]], set[str]]:
    """(arm, query_id) -> grades of a kind, 0 without an answer; and the queries of which an arm's answer has none."""
    names = ["accuracy"] if kind == "accuracy" else [f"criteria/{name}" for name in KEYS]
    answered = {(one["arm"], one["query_id"]) for one in rows(run, "answers")}
    grades = {(one["arm"], one["query_id"], one["kind"]): one["grade"] for one in rows(run, "judgements") if one["arm"]}
    left_out = {query_id for arm, query_id in answered if any((arm, query_id, name) not in grades for name in names)}
    values = {
        (arm, query_id): [grades.get((arm, query_id, name), 0) for name in names]
        for arm in arms
        for query_id in {one["query_id"] for one in rows(run, "queries")} - left_out
    }
    return values, left_out


def printed(shown: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.slow
def test_judged_answers_are_compared_as_lists_are(job: str) -> None:
    run = finished(prepared_work(job, [], {"arms": ARMS}))
    found = compare_judged(run, run.config.evaluate)
    assert [one.frame.kind for one in found] == ["accuracy", "criteria"]
    answering = ["full", "original", "general", "one"]
    for kind, measures in (("accuracy", ("accuracy",)), ("criteria", ("criteria", *KEYS))):
        one = of_kind(found, kind)
        assert one.frame.measures == measures
        assert set(one.frame.arms) == {*answering, "best"}
        values, left_out = expected(run, kind, answering)
        assert set(one.frame.keys) == {query_id for _, query_id in values}
        assert bool(left_out) == (kind == "accuracy")
        means = dict(zip(one.frame.arms, one.frame.values.mean(axis=2).tolist(), strict=True))
        for arm in answering:
            of_arm = [of for (name, _), of in values.items() if name == arm]
            own = [sum(column) / len(of_arm) for column in zip(*of_arm, strict=True)]
            assert means[arm] == pytest.approx(own if kind == "accuracy" else [sum(own) / len(own), *own])
        base, arm = (one.frame.values[one.frame.arms.index(name), 0] for name in (one.baseline, "one"))
        difference = one.by_arm["one", measures[0]]
        test = paired_test((arm - base)[None], one.frame.clusters)
        assert (difference.difference, difference.low) == pytest.approx((float(test.mean[0]), float(test.low[0])), nan_ok=True)
        members = next(of["members"] for of in run.record["ablation"]["arms"] if of["name"] == "best")
        best = one.frame.values[one.frame.arms.index("best"), 0]
        assert best.tolist() == one.frame.values[[one.frame.arms.index(name) for name in members], 0].max(axis=0).tolist()
        assert {part.value for part in one.slices} == {"1-2", "3-5"}
        notes = "\n".join(one.notes)
        assert "judged by judge-70b, an LLM, and LLMs over-rate" in notes
        assert ("left out: 1 queries whose answer of an arm the judge could not grade" in notes) == bool(left_out)
        assert "oracle arms choose by the judgements" in notes
    assert of_kind(found, "criteria").min_effect == 5 * of_kind(found, "accuracy").min_effect
    assert "without an answer, by arm (most: one)" in "\n".join(of_kind(found, "criteria").notes)


@pytest.mark.slow
def test_all_measures_stand_side_by_side(job: str) -> None:
    run = finished(prepared_work(job, [], {"arms": ARMS, "subsets": "leave_one_out"}))
    judgements = judged_relevance(run)
    assert judgements is not None
    assert judgements.judge is not None
    settings = run.config.evaluate.model_copy(update={"measures": list(judgements.judge.measures)})
    found = compared(run, judgements, settings, None, gold_answers(settings))
    assert [one.frame.kind for one in found.measured] == ["lists", "answers", "accuracy", "criteria"]
    page = ablation_report(found, texts=False)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert {"measures", "accuracy-arms", "criteria-arms", "criteria-slices", "answers-arms"} <= set(ids)
    table = page.partition('<section id="measures">')[2].partition("</section>")[0]
    heads = re.findall(r"<th scope=\"col\">([^<]+)", table)
    assert len(re.findall(r"<small>accuracy</small>", table)) == 1
    assert heads == ["arm", "nDCG@2", "P(rel=2)@2", "Success(rel=2)@2", "F1", "EM", "accuracy", "criteria"]
    means = {one.frame.kind: one for one in found.measured}
    one = next(row for row in table.split("<tr") if "<bdi>one</bdi>" in row)
    shown = [float(value) for value in re.findall(r'data-v="([^"]+)"', one)]
    wanted = [means[kind].by_arm["one", name].mean
              for kind, names in (("lists", judgements.judge.measures), ("answers", ("F1", "EM")), ("accuracy", ("accuracy",)),
                                  ("criteria", ("criteria",))) for name in names]  # fmt: skip
    assert shown == pytest.approx(wanted, abs=1e-6)
    write_pages(found, texts=True)
    long = pq.read_table(Path(run.storage.root, "per_query.parquet")).to_pylist()
    of_long = [row["value"] for row in long if (row["measure"], row["arm"]) == ("accuracy", "one")]
    assert sum(of_long) / len(of_long) == pytest.approx(means["accuracy"].by_arm["one", "accuracy"].mean)
    words = printed(closing_page(found))
    assert "answers, judged right or wrong" in words
    assert "answers, judged by criteria" in words
    values = closing_values(found)["judged_answers"]
    assert values["accuracy"]["judged_by"] == "judge-70b"
    part = values["criteria"]["slices"][0]["measures"]["one"]
    assert set(part) == {"criteria", *KEYS}
    assert part["criteria"] == pytest.approx(sum(part[name] for name in KEYS) / len(KEYS))


@pytest.mark.slow
def test_a_run_shows_and_stores_what_its_answers_are_worth(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", job]) == 0
    folder = capsys.readouterr().out.splitlines()[-1]
    stored = json.loads(Path(folder, "evaluation.json").read_text())
    assert main(["evaluate", folder, "--json", "--per-query", "wide.parquet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert stored["judged_answers"].keys() == {"accuracy", "criteria"}
    assert {kind: one["measures"] for kind, one in stored["judged_answers"].items()} == {
        kind: one["measures"] for kind, one in found["judged_answers"].items()
    }
    assert stored["answers"]["measures"] == found["answers"]["measures"]
    wide = pq.read_table("wide.parquet").to_pylist()
    assert len(wide) == len(QUERIES)
    graded = [one["accuracy"] for one in wide if one["accuracy"] is not None]
    assert sum(graded) / len(graded) == pytest.approx(found["judged_answers"]["accuracy"]["measures"]["accuracy"]["answers"])
    assert sum(one["F1"] is not None for one in wide) == 4
    assert main(["runs", job]) == 0
    listed = capsys.readouterr().out
    assert {"F1", "EM", "accuracy", "criteria"} <= set(listed.split())
    assert "judged by judge-70b, an LLM" in " ".join(listed.split())
    page = Path(folder, "report.html").read_text()
    assert "Answers, judged by criteria" in page
    assert "judged by judge-70b" in page


def executed(run: RunFolder) -> int:
    """The requests to the judge that were made, or taken from another query's."""
    return sum(int(sums.get("requests", 0) + sums.get("reused", 0)) for sums in run.spent["judge"].values())


def judgements_of(run: RunFolder, arm: str, kind: str) -> int:
    needs = getattr(arm_needs(run.counts, run_arms(run))[arm], kind)
    return sum(need.amount for need in needs if need.quantity == "judgements")


@pytest.mark.slow
def test_an_arm_costs_the_judgements_that_it_needs(job: str) -> None:
    arms = {"one": {"answer.documents": 1}, "rrf": {"fuse.method": "rrf"}, "short": {"fuse.depth": 2}}
    run = finished(prepared_work(job, ["store=null"], {"arms": arms}))
    for arm, changes in {"full": {}, **arms}.items():
        alone = prepared_work(job, ["store=null", *(f"{key}={value}" for key, value in changes.items())], None)
        assert judgements_of(run, arm, "whole") == executed(finished(alone)), arm
    for arm in arms:
        without = prepared_work(job, ["store=null"], {"arms": {name: one for name, one in arms.items() if name != arm}})
        assert executed(run) - executed(finished(without)) == judgements_of(run, arm, "alone"), arm
    found = {one.arm: one for one in compared(run, None, run.config.evaluate, None).costs}
    assert found["one"].judgements == judgements_of(run, "one", "whole")
    assert found["one"].alone_judgements == judgements_of(run, "one", "alone") > 0
    assert found["one"].prompt_tokens is not None
    assert saved(run).executed["judgements"] == executed(run)
    assert saved(run).naive["judgements"] == sum(judgements_of(run, arm, "whole") for arm in run_arms(run))
    page = ablation_report(compared(run, None, run.config.evaluate, None))
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", page.partition('data-csv="costs"')[2].partition("</thead>")[0])
    assert heads[heads.index("pairs reranked") + 1 :][:2] == ["answers", "judgements"]
    words = " ".join(printed(closing_page(compared(run, None, run.config.evaluate, None))).split())
    assert f"judgements {executed(run):,} in place of {saved(run).naive['judgements']:,}" in words


def run_arms(run: RunFolder) -> list[str]:
    return [one["name"] for one in run.record["ablation"]["arms"]]


@pytest.mark.slow
def test_two_runs_are_compared_by_their_judges_and_what_only_one_has_is_said(job: str) -> None:
    a, b = (finished(prepared_work(job, [f"answer.documents={n}"], None)) for n in (1, 2))
    found = diff(a, b, None, None, 5)
    values = json.loads(json.dumps(diff_values(found)))
    assert values["judged_answers"].keys() == {"accuracy", "criteria"}
    both = set.intersection(*({key for _, key in expected(run, "accuracy", ["run"])[0]} for run in (a, b)))
    means = [sum(expected(run, "accuracy", ["run"])[0]["run", key][0] for key in both) / len(both) for run in (a, b)]
    measure = values["judged_answers"]["accuracy"]["measures"]["accuracy"]
    assert (measure["a"], measure["b"]) == pytest.approx(means)
    assert values["notes"] == []
    assert "answers, judged right or wrong" in printed(diff_page(found))
    alone = finished(prepared_work(job, ["answer=null", "judge.accuracy=null", "judge.criteria=null"], None))
    notes = diff_values(diff(alone, b, None, None, 5))["notes"]
    assert notes == [
        "answers: only B has any (answer), so they are not compared",
        "judgements: only B has any of accuracy (judge.accuracy), so they are not compared",
        "judgements: only B has any of criteria (judge.criteria), so they are not compared",
    ]
    assert "only B has any" in printed(diff_page(diff(alone, b, None, None, 5)))


def test_answers_of_which_none_can_be_graded_are_a_warning(
    job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(body: dict[str, Any]) -> str:
        return "hm" if "Reference answers:" in prompt_of(body) else said(body)

    monkeypatch.setattr(server, "_text", silent)
    run = finished(prepared_work(job, [f"log.path={one_query()}"], {"arms": {"one": {"answer.documents": 1}}}))
    accuracy, criteria = compare_judged(run, run.config.evaluate)
    assert accuracy.warning == (
        "nothing is measured: no query is committed whose answers could be judged (accuracy); errors/ says why"
    )
    assert criteria.warning is None
    found = compared(run, None, run.config.evaluate, None)
    assert accuracy.warning in printed(closing_page(found)).replace("\n", " ")
    assert 'id="accuracy"' in ablation_report(found)


def one_query() -> str:
    """A log of one query that has hits."""
    pq.write_table(pa.table({"query": [QUERIES[0]]}), "one.parquet")
    return "one.parquet"


@pytest.mark.slow
def test_judged_results_stand_beside_what_people_judged(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(prepared_work(job, [], {"arms": {"short": {"fuse.depth": 2}}}))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    first = [one for one in rows(run, "results") if one["arm"] == "full" and one["rank"] == 1]
    Path("qrels.tsv").write_text("".join(f"{texts[one['query_id']]}\t{one['doc_id']}\t1\n" for one in first))
    people, settings = read_qrels("qrels.tsv", key="query"), run.config.evaluate
    found = compared(run, people, settings, None, gold_answers(settings))
    assert found.comparison is not None
    assert found.comparison.frame.judge is None
    assert [one.frame.kind for one in found.measured] == ["lists", "answers", "relevance", "accuracy", "criteria"]
    judgements = judged_relevance(run)
    assert judgements is not None
    assert judgements.judge is not None
    alone = compare(run, judgements, settings.model_copy(update={"measures": list(judgements.judge.measures)}))
    judged = of_kind(list(found.judged), "relevance")
    assert judged.differences == alone.differences
    assert main(["evaluate", run.storage.root, "qrels.tsv", "--key", "query", "--json"]) == 0
    values_of = json.loads(capsys.readouterr().out)
    assert values_of["judged_results"]["judged_by"] == "judge-70b"
    assert "judged_by" not in values_of
    page = ablation_report(found)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "relevance-arms" in ids
    assert "Arms by judged results" in page
    assert closing_values(found)["judged_results"]["judged_by"] == "judge-70b"
    assert closing_values(found)["judged_answers"].keys() == {"accuracy", "criteria"}
    write_pages(found, texts=True)
    long = pq.read_table(Path(run.storage.root, "per_query.parquet")).to_pylist()
    values = [row["value"] for row in long if (row["arm"], row["measure"]) == ("short", "judged nDCG@2")]
    assert sum(values) / len(values) == pytest.approx(alone.by_arm["short", "nDCG@2"].mean)
    assert "results, judged by an LLM" in printed(closing_page(found))


@pytest.mark.slow
def test_criteria_of_other_names_are_not_compared_and_that_is_said(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "KEYS", ("correctness", "style", "tone"))
    Path("other.yaml").write_text(OWN_CRITERIA.replace("correctness, style", "correctness, tone"))
    a, b = (finished(prepared_work(job, settings, None)) for settings in ([], ["judge.criteria.prompt=./other.yaml"]))
    found = diff(a, b, None, None, 5)
    assert "criteria" not in diff_values(found)["judged_answers"]
    assert diff_values(found)["notes"] == [
        "judgements: criteria are other measures in A than in B (A of criteria, correctness, style; B of criteria, "
        "correctness, tone), so they are not compared"
    ]
    assert "are other measures in A than in B" in " ".join(printed(diff_page(found)).split())
