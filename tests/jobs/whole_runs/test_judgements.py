"""Judgements of whole jobs in this process, from an LLM's server: what is asked, what is stored, and what is paid again."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.measure.compare.comparison import compare
from jobs.measure.compare.standing import mark, standing, verdict
from jobs.measure.diff.diff import diff, diff_values
from jobs.measure.evaluate.evaluate import evaluate, evaluation_notes, evaluation_values
from jobs.measure.frame import measure
from jobs.measure.judged.family import alike, family, family_notes, models_of
from jobs.measure.judged.noise import judge_noise, with_noise
from jobs.measure.judged.relevance import judged_relevance
from jobs.pages.comparison import comparison_values, sign
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer

UNREADABLE = QUERIES[1]  # the judge answers in prose about the first of its documents that it sees


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def grade_of(query: str, text: str) -> int:
    """The grade that the judge gives, by chance of the texts."""
    return zlib.crc32(f"{query}|{text}".encode()) % 4


def parts(prompt: str) -> tuple[str, str]:
    """The query and the document that a prompt of relevance shows."""
    query, _, text = prompt.removeprefix("Query: ").partition("\n\nDocument:\n")
    return query, text


def said(body: dict[str, Any]) -> str:
    query, text = parts(prompt_of(body))
    if query == UNREADABLE and grade_of(query, text) == 0:
        return "I would rather say 2 or 3."
    grade = grade_of(query, text)
    return json.dumps({"match": 3 - grade, "trust": 0, "overall": grade})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b"], text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    engine = {"kind": "openai", "model": "judge-70b", "base_url": server.address, "attempts": 1}
    values["judge"] = {"engine": engine, "relevance": {"documents": 3}}
    return job_in_process(tmp_path, values, bm25, config_file)


def asked(server: FakeServer) -> list[str]:
    """The prompts that were sent, but those that ask whether the server is there."""
    return [prompt_of(one) for one in server.bodies if prompt_of(one).startswith("Query: ")]


def first_results(run: RunFolder, arms: int = 3) -> set[tuple[str, str]]:
    """(query, doc_id) of the first results of any arm."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    return {(texts[one["query_id"]], one["doc_id"]) for one in rows(run, "results") if one["rank"] <= arms}


def test_the_first_results_are_judged(job: str, server: FakeServer, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [], None))
    first = first_results(run)
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    assert sorted(asked(server)) == sorted({f"Query: {query}\n\nDocument:\n{passages[doc]}" for query, doc in first})
    unread = {(query, doc) for query, doc in first if query == UNREADABLE and grade_of(query, passages[doc]) == 0}
    judged = rows(run, "judgements")
    found = {(texts[one["query_id"]], one["doc_id"]): one["grade"] for one in judged}
    assert found == {(query, doc): grade_of(query, passages[doc]) for query, doc in first - unread}
    assert {(one["kind"], one["model"], one["sample"]) for one in judged} == {("relevance", "judge-70b", 0)}
    errors = [one for one in rows(run, "errors") if one["stage"] == "judge"]
    assert len(errors) == len(unread)
    assert all(one["reason"] == "unparsable" and one["message"].startswith("document '") for one in errors)
    costs = [one for one in rows(run, "costs") if one["stage"] == "judge"]
    assert sum(one["requests"] for one in costs) == len(asked(server))


def means(run: RunFolder, of: list[dict[str, Any]], passages: dict[str, str]) -> list[float]:
    """nDCG@3, P@3 and Success@3 of results, a grade of 2 or 3 being relevant, over the queries that the judge has judged."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    judged = {(one["query_id"], one["doc_id"]): one["grade"] for one in rows(run, "judgements")}
    with_results = {one["query_id"] for one in rows(run, "results")}
    counted = [one for one in texts if one not in with_results or any(query_id == one for query_id, _ in judged)]
    sums = [0.0, 0.0, 0.0]
    for query_id in counted:
        ranked = sorted((one for one in of if one["query_id"] == query_id and one["rank"] <= 3), key=lambda one: one["rank"])
        grades = [judged.get((query_id, one["doc_id"]), 0) for one in ranked]
        ideal = sorted((grade for (one, _), grade in judged.items() if one == query_id), reverse=True)[:3]
        gain, best = (sum(grade / math.log2(2 + place) for place, grade in enumerate(one)) for one in (grades, ideal))
        sums[0] += gain / best if best else 0.0
        sums[1] += sum(grade >= 2 for grade in grades) / 3
        sums[2] += any(grade >= 2 for grade in grades)
    return [one / len(counted) for one in sums]


def test_measures_by_the_judge_need_no_file(job: str, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [], None))
    judgements = judged_relevance(run)
    assert judgements is not None
    found = evaluate(run, judgements)
    assert found.measures == ("nDCG@3", "P(rel=2)@3", "Success(rel=2)@3")
    assert list(found.results.values()) == pytest.approx(means(run, rows(run, "results"), passages))
    assert found.original is None
    notes = evaluation_notes(found)
    assert notes[0].startswith("judged by judge-70b, an LLM")
    assert "original alone: not measured, since the judge graded the results only" in notes
    assert evaluation_values(found)["judged_by"] == "judge-70b"


def test_arms_are_compared_by_the_judge(job: str, passages: dict[str, str]) -> None:
    arms = {"rrf": {"fuse.method": "rrf"}, "short": {"fuse.depth": 2}}
    run = finished(prepared_work(job, [], {"arms": arms}))
    judgements = judged_relevance(run)
    assert judgements is not None
    settings = run.config.evaluate.model_copy(update={"measures": judgements.measures(run.config.evaluate.measures)})
    found = compare(run, judgements, settings)
    for arm in ("full", "original", "rrf", "short"):
        own = [one for one in rows(run, "results") if one["arm"] == arm]
        expected = means(run, own, passages)
        assert [found.by_arm[arm, name].mean for name in found.frame.measures] == pytest.approx(expected)
    assert found.notes[0].startswith("judged by judge-70b")
    assert comparison_values(found)["judged_by"] == "judge-70b"


@pytest.mark.slow
def test_the_verbs_measure_by_the_judge(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", job]) == 0
    out = capsys.readouterr().out
    assert "nDCG@3" in out
    folder = out.splitlines()[-1]
    assert main(["evaluate", folder]) == 0
    assert "judged by judge-70b" in capsys.readouterr().out
    assert main(["report", folder]) == 0
    assert "judged by judge-70b" in Path(folder, "report.html").read_text().casefold()
    capsys.readouterr()
    assert main(["evaluate", folder, "--judged", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["judged_by"] == "judge-70b"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "qwen"), ("qwen2.5:7b", "qwen"), ("gpt-4.1-mini", "gpt"), ("/models/llama-3/", "llama"), ("4o", "4o"),
        ("/cache/models--Qwen--Qwen3-8B/snapshots/b968826d9c46dd60", "qwen"), ("models--phi-4/snapshots/0c/", "phi"),
        ("claude-3-5-sonnet@20240620", "claude"), ("deepseek-v3", "deepseek"), ("vicuna-7b", "vicuna"), ("llava-7b", "llava"),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", "llama"), ("judge", "judge"),
    ],
)  # fmt: skip
def test_a_family_is_the_name_up_to_the_first_digit(model: str, name: str) -> None:
    assert family(model) == name


@pytest.mark.parametrize(
    ("judge", "model", "is_one"),
    [
        ("gpt-4.1", "ft:gpt-4o-mini:shop::a1", True), ("meta-llama/Meta-Llama-3-8B", "llama3.1:8b", True),
        ("us.anthropic.claude-3-7-sonnet", "claude-opus-4", True), ("deepseek-v3", "DeepSeek-R1", True),
        ("mistral-large-2407", "jamba-large-1.7", False), ("qwen3-8b", "gpt-oss-20b", False), ("o3", "gpt-4o", False),
        ("123", "123", True), ("123", "4", False),
        ("claude-opus-4", "claude-sonnet-4-5", True), ("command-r7b", "DeepSeek-R1", False),
    ],
)  # fmt: skip
def test_families_are_one_where_they_share_a_name(judge: str, model: str, *, is_one: bool) -> None:
    assert alike(family(judge), family(model)) == alike(family(model), family(judge)) == is_one
    assert bool(family_notes([judge], None, {"answers": [model]})) == is_one


def test_a_judge_of_the_family_of_the_rewriter_is_warned_of() -> None:
    others = {"rewrites": ["Qwen3-8B"], "answers": ["gpt-4.1"]}
    (note,) = family_notes(["qwen2.5-72b"], None, others)
    assert note.startswith("warning: the judge qwen2.5-72b is of the family of Qwen3-8B, which wrote the rewrites; ")
    assert family_notes(["qwen2.5-72b"], "other", others) == []
    assert "answers" in family_notes(["mistral"], "GPT", others)[0]
    assert "rewrites" in family_notes(["judge"], "Qwen3", others)[0], "a family is named as models are, too"


def test_models_of_a_stage_may_have_a_version_behind_their_name() -> None:
    spent = {"judge": {"relevance@claude-3-5-sonnet@20240620": {"requests": 1}, "start_up.load@": {"seconds": 1}}}
    assert models_of(SimpleNamespace(spent=spent), "judge") == ["claude-3-5-sonnet@20240620"]  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_judge_that_is_asked_twice_has_a_noise(job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(body: dict[str, Any]) -> str:
        grade = (grade_of(*parts(prompt_of(body))) + body["seed"]) % 4
        return json.dumps({"match": 0, "trust": 0, "overall": grade})

    monkeypatch.setattr(server, "_text", again)
    run = finished(prepared_work(job, ["judge.samples=2"], {"arms": {"rrf": {"fuse.method": "rrf"}}}))
    assert len(asked(server)) == 2 * len(first_results(run))
    first, second = (judged_relevance(run, sample) for sample in (0, 1))
    assert first is not None
    assert second is not None
    assert all((grade + 1) % 4 == second.grades[key][doc] for key, of in first.grades.items() for doc, grade in of.items())
    frames = [measure(run, one) for one in (first, second)]
    moved = abs(frames[0].values.mean(axis=2) - frames[1].values.mean(axis=2)).max(axis=0)
    noise = judge_noise([(frames[0], frames[1])])
    assert noise is not None
    assert noise.tolist() == pytest.approx(moved.tolist())
    assert moved.max() > 0
    settings = run.config.evaluate.model_copy(update={"measures": list(first.judge.measures if first.judge else ())})
    notes = compare(run, first, settings).notes
    assert any(one.startswith("noise of the judge, asked the same again: means move by up to ") for one in notes)
    assert any(one.startswith("not ordered by ") and "full" in one and "rrf" in one for one in notes)


@pytest.mark.slow
def test_an_answer_that_cannot_be_read_is_no_disagreement(
    job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(body: dict[str, Any]) -> str:
        query, document = parts(prompt_of(body))
        if body["seed"] and len(document) % 2:
            return "I cannot say."
        return json.dumps({"match": 0, "trust": 0, "overall": grade_of(query, document)})

    monkeypatch.setattr(server, "_text", again)
    run = finished(prepared_work(job, ["judge.samples=2"], {"arms": {"rrf": {"fuse.method": "rrf"}}}))
    first, second = (judged_relevance(run, sample) for sample in (0, 1))
    assert first is not None
    assert second is not None
    graded = [sum(map(len, one.grades.values())) for one in (first, second)]
    assert graded[0] > graded[1] > 0
    assert first.judge is not None
    noise = with_noise(run, first, measure(run, first, list(first.judge.measures))).noise
    assert noise is not None
    assert not any(noise)


@pytest.mark.slow
def test_people_who_judged_some_results_say_how_far_the_judge_agrees(
    job: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = finished(prepared_work(job, [], None))
    first = judged_relevance(before)
    assert first is not None
    graded = [(query_id, doc_id, grade) for query_id, of in first.grades.items() for doc_id, grade in of.items()][:4]
    people = "".join(f"{query_id}\t{doc_id}\t{max(0, grade - 1)}\n" for query_id, doc_id, grade in graded)
    Path(tmp_path, "people.tsv").write_text(people + f"{graded[0][0]}\tnowhere\t3\n")
    run = finished(prepared_work(job, ["judge.calibration=people.tsv", "evaluate.key=query_id", "label=later"], None))
    again = judged_relevance(run)
    assert again is not None
    assert again.judge is not None
    higher = sum(grade > 0 for *_, grade in graded)
    assert any(one.startswith("calibration: of 4 results") and f"{25 * higher} % higher" in one for one in again.judge.notes)
    named = judged_relevance(before, calibration="people.tsv")  # whose keys are log_ids
    assert named is not None
    assert named.judge is not None
    assert any(one.startswith("warning: calibration: the judge has graded no result") for one in named.judge.notes)
    named = judged_relevance(before, calibration="people.tsv", key="query_id")
    assert named is not None
    assert named.judge is not None
    assert any(one.startswith("calibration: of 4 results") for one in named.judge.notes)
    by_people = ["evaluate", str(before.storage.root), "--key", "query_id", "--calibration", "people.tsv"]
    assert main([*by_people[:2], "people.tsv", *by_people[2:]]) == 2
    assert "--calibration: is held against the run's judge" in capfd.readouterr().err
    assert main([*by_people, "--judged"]) == 0
    assert "calibration: of 4 results" in " ".join(capfd.readouterr().out.split())
    with pytest.raises(ConfigError, match=r"judge\.calibration: none\.tsv: cannot be read"):
        prepared_work(job, ["judge.calibration=none.tsv"], None)


def calibrated(run: RunFolder, lines: str) -> str:
    """What the judge's notes say of people's judgements."""
    Path("people.tsv").write_text(lines)
    found = judged_relevance(run, calibration="people.tsv")
    assert found is not None
    assert found.judge is not None
    return next(one for one in found.judge.notes if "calibration:" in one)


def test_a_pair_counts_once_and_below_zero_is_not_relevant(
    job: str, tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_text", lambda body: json.dumps({"match": 0, "trust": 0, "overall": 0}))
    repeated = [QUERIES[0], QUERIES[0].upper(), QUERIES[2]]
    pq.write_table(pa.table({"query": repeated, "id": ["r1", "r2", "r3"]}), tmp_path / "log.parquet")
    run = finished(prepared_work(job, ["log.id_column=id"], None))
    row_of = {one["query_id"]: [of["log_id"] for of in rows(run, "query_map") if of["query_id"] == one["query_id"]]
              for one in rows(run, "queries")}  # fmt: skip
    judged = [(one["query_id"], one["doc_id"]) for one in rows(run, "judgements")]
    lines = "".join(f"{log_id}\t{doc_id}\t-1\n" for query_id, doc_id in judged for log_id in row_of[query_id])
    words = calibrated(run, lines)
    assert words.startswith(
        f"calibration: of {len(judged)} results that people have judged, too, the judge grades 100 % as they"
    )
    assert "(people's highest grade is -1 of 3)" in words
    both = [(log_id, doc_id) for query_id, doc_id in judged for log_id in row_of[query_id]]
    words = calibrated(run, "".join(f"{log_id}\t{doc_id}\t{3 * (log_id == 'r2')}\n" for log_id, doc_id in both))
    same = sum("r2" not in row_of[query_id] for query_id, _ in judged)
    share = f"{100 * same / len(judged):.0f} %"
    assert words.startswith(f"calibration: of {len(judged)} results ")
    assert f"grades {share} as they" in words


def test_people_s_grades_of_another_scale_are_not_compared(job: str) -> None:
    run = finished(prepared_work(job, ["evaluate.key=query_id"], None))
    one = rows(run, "judgements")[0]
    words = calibrated(run, f"{one['query_id']}\t{one['doc_id']}\t5\n")
    assert words.startswith(
        "warning: calibration: people.tsv has grades up to 5, and the judge's are from 0 to 3: they are not"
    )


@pytest.mark.slow
def test_two_runs_are_compared_by_the_grades_of_both(job: str, passages: dict[str, str]) -> None:
    a, b = (finished(prepared_work(job, [setting], None)) for setting in ("fuse.depth=1", "judge.relevance.documents=4"))
    found = next(one for one in diff(a, b, None, None, 5).judged if one.kind == "relevance")
    assert tuple(found.measures) == ("nDCG@3", "P(rel=2)@3", "Success(rel=2)@3"), "as deep as both are judged"
    grades: dict[str, dict[str, int]] = {}
    sides: list[set[str]] = []
    for run in (a, b):
        for one in rows(run, "judgements"):
            grades.setdefault(one["query_id"], {})[one["doc_id"]] = one["grade"]
        with_results = {one["query_id"] for one in rows(run, "results")}
        judged = {one["query_id"] for one in rows(run, "judgements")}
        sides.append(judged | ({one["query_id"] for one in rows(run, "queries")} - with_results))
    both = sides[0] & sides[1]
    assert found.counted == len(both)
    for run, mean in ((a, found.measures["nDCG@3"].a), (b, found.measures["nDCG@3"].b)):
        values = []
        for query_id in both:
            ranked = sorted((one for one in rows(run, "results") if one["query_id"] == query_id), key=lambda one: one["rank"])[
                :3
            ]
            mine = grades.get(query_id, {})
            ideal = sorted(mine.values(), reverse=True)[:3]
            gain, best = (
                sum(grade / math.log2(2 + place) for place, grade in enumerate(one))
                for one in ([mine.get(of["doc_id"], 0) for of in ranked], ideal)
            )
            values.append(gain / best if best else 0.0)
        assert mean == pytest.approx(sum(values) / len(values))
    shown = json.loads(json.dumps(diff_values(diff(a, b, None, None, 5))))
    assert shown["judged_results"]["judged_by"] == "judge-70b"
    assert shown["judged_answers"] == {}
    alone = finished(prepared_work(job, ["judge=null"], None))
    assert diff_values(diff(alone, b, None, None, 5))["judged_results"] is None


@pytest.mark.slow
def test_arms_nearer_than_the_noise_have_no_verdict_and_share_a_place(
    job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(body: dict[str, Any]) -> str:
        grade = (grade_of(*parts(prompt_of(body))) + body["seed"]) % 4
        return json.dumps({"match": 0, "trust": 0, "overall": grade})

    monkeypatch.setattr(server, "_text", again)
    run = finished(prepared_work(job, ["judge.samples=2"], {"arms": {"rrf": {"fuse.method": "rrf"}}}))
    judgements = judged_relevance(run)
    assert judgements is not None
    assert judgements.judge is not None
    settings = run.config.evaluate.model_copy(update={"measures": list(judgements.judge.measures)})
    found = compare(run, judgements, settings)
    frame, stand = found.frame, standing(found)
    assert len(frame.noise) == len(frame.measures)
    for one in found.differences:
        noise = frame.noise[frame.measures.index(one.measure)]
        near = one.arm != found.baseline and abs(one.difference) < noise
        assert one.within_noise == near
        assert (verdict(one, 0.01) == "within the judge's noise") == (near and one.corrected is not None)
        assert not near or (mark(one) == "" and sign(one) == "~")
    for place, name in enumerate(frame.measures):
        means = {arm: mean[name] for arm, mean in stand.means.items()}
        best = max(means.values())
        assert stand.best[name] == {arm for arm, mean in means.items() if best - mean < frame.noise[place] or mean == best}
    assert any(one.within_noise for one in found.differences)
