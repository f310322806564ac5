"""Corrective RAG in whole jobs: questions, grades, strips and searches of the web against the rule computed apart."""

from __future__ import annotations

import html
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from jobs.chain.stages.llm.grade import named_sentences
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.measure.compare.arm_costs import arm_costs
from jobs.pages.report import report
from jobs.pages.try_one import page as try_page
from jobs.plan.budget import over_budget
from jobs.plan.plan import plan
from jobs.runs.folder import RunFolder
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.stages import LoadedConfig
from jobs.try_one.trial import trial_values
from retrievers.local.build import build_local_index
from rewriters.reading.words.sentences import split_sentences
from tests.support.jobs.corrective_llm import (
    kept_of,
    kind_of,
    prompt_of,
    question_of,
    said,
    verdict_of,
    web_query_of,
)
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer, Reply, completion, refusal

HITS = 2


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["grader-8b"], text=said) as one:
        yield one


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer("searxng") as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    web: WebServer, monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(f"cluster.outages.{pause}", 0.02)
    engine = {"kind": "openai", "model": "grader-8b", "base_url": server.address, "attempts": 1}
    values["grade"] = {"documents": 3, "engine": engine, "question": {"engine": engine}, "strips": {"engine": engine}}
    values["web"] = {"search": {**web.block(), "attempts": 1, "patience_minutes": 0.001}, "documents": HITS, "engine": engine}
    values["answer"] = {"documents": 5, "engine": engine}
    return job_in_process(tmp_path, values, bm25, config_file)


def asked(server: FakeServer, kind: str) -> list[str]:
    return [prompt for one in server.bodies if kind_of(prompt := prompt_of(one)) == kind]


class ByHand:
    """What is to be made of the results of an arm, from the tables of what came before."""

    def __init__(
        self, run: RunFolder, passages: dict[str, str], arm: str, *, rewrites_of: str = "", when: str = "none"
    ) -> None:
        self.texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
        self.questions: dict[str, str | None] = {}
        self.grades: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.web: dict[str, str] = {}
        self.kept: dict[str, list[str]] = {}
        rewrites: dict[str, list[str]] = {query_id: [] for query_id in self.texts}
        for one in rows(run, "rewrites"):
            if one.get("arm", "") in ("", rewrites_of or arm):
                rewrites[one["query_id"]].append(one["text"])
        results: dict[str, list[str]] = {query_id: [] for query_id in self.texts}
        for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
            if one["arm"] == arm:
                results[one["query_id"]].append(one["doc_id"])
        for query_id, query in self.texts.items():
            made = rewrites[query_id]
            self.questions[query_id] = question_of(query, made) if made else None
            question, verdicts = self.questions[query_id] or query, []
            self.kept[query_id] = []
            for doc_id in results[query_id][:3]:
                verdict, strips = verdict_of(question, passages[doc_id]), None
                if verdict == "ambiguous":
                    sentences = split_sentences(passages[doc_id])
                    strips = " ".join(sentences[n - 1] for n in kept_of(question, [" ".join(one.split()) for one in sentences]))
                self.grades[query_id, doc_id] = verdict, strips
                verdicts.append(verdict)
                if verdict != "irrelevant" and strips != "":
                    self.kept[query_id].append(doc_id)
            relevant = verdicts.count("relevant")
            if relevant == 0 or (when == "any" and relevant < len(verdicts)):
                self.web[query_id] = web_query_of(question)


def check(run: RunFolder, by_hand: ByHand, web: WebServer, arm: str = "run") -> None:
    """Checks grades/, corrections/, web/ and answers/ of an arm against what is computed apart."""
    grades = {(one["query_id"], one["doc_id"]): one for one in rows(run, "grades") if one["arm"] == arm}
    assert {key: (one["verdict"], one["strips"]) for key, one in grades.items()} == by_hand.grades
    corrections = {one["query_id"]: one for one in rows(run, "corrections") if one["arm"] == arm}
    assert {key: one["question"] for key, one in corrections.items()} == by_hand.questions
    assert {key: one["web_query"] for key, one in corrections.items() if one["web_query"] is not None} == by_hand.web
    pages = {text: [url for url, _, _ in web.found(text, 10)] for text in by_hand.web.values()}
    stored: dict[str, list[str]] = {}
    for one in sorted(rows(run, "web"), key=lambda one: one["rank"]):
        assert one["retriever"] == "web.search"
        if one["searched"] == by_hand.web.get(one["query_id"]):  # else of another arm
            stored.setdefault(one["searched"], []).append(one["url"])
    answers = {
        one["query_id"]: [each["doc_id"] for each in one["documents"]] for one in rows(run, "answers") if one["arm"] == arm
    }
    for query_id, kept in by_hand.kept.items():
        shown = answers[query_id]
        assert shown[: len(kept)] == kept
        text = by_hand.web.get(query_id)
        assert len(shown) - len(kept) == (0 if text is None else len(pages[text][:HITS]))
        assert corrections[query_id]["hits"] == (None if text is None else len(pages[text][:HITS]))
        if text is not None and pages[text]:
            assert stored[text][: len(pages[text])] == pages[text]


@pytest.mark.slow
def test_results_are_corrected_as_the_rule_says(job: str, server: FakeServer, web: WebServer, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [], None))
    by_hand = ByHand(run, passages, "run")
    check(run, by_hand, web)
    found = Counter(verdict for verdict, _ in by_hand.grades.values())
    assert set(found) == {"relevant", "ambiguous", "irrelevant"}, "the draw has all three"
    assert Counter(web.texts) == Counter(set(by_hand.web.values()))
    assert 0 < len(by_hand.web) < len(QUERIES)
    assert run.counts["web_asked"] == len(by_hand.web)
    assert {name: run.counts[f"graded/{name}"] for name in found} == found
    refined = [key for key, (verdict, _) in by_hand.grades.items() if verdict == "ambiguous"]
    counted = {"question": 5, "grade": len(by_hand.grades), "strips": len(refined), "web": len(by_hand.web), "answer": 6}
    assert {kind: len(asked(server, kind)) for kind in counted} == counted
    spent = Counter[str]()
    for one in rows(run, "costs"):
        spent[f"{one['stage']}/{one['component']}"] += one["requests"] if one["stage"] != "web" else one["searches"]
    assert spent["grade/three_grades"] == len(by_hand.grades)
    assert spent["web/web.search"] == len(set(by_hand.web.values()))
    contexts = asked(server, "answer")
    for query_id, query in by_hand.texts.items():
        (prompt,) = [one for one in contexts if one.endswith(f"Question: {query}")]
        for (of, doc_id), (verdict, strips) in by_hand.grades.items():
            if of == query_id and strips is not None:
                assert (strips in prompt) or not strips
            if of == query_id and verdict == "irrelevant":
                assert passages[doc_id] not in prompt
        if query_id in by_hand.web:
            for url, title, text in web.found(by_hand.web[query_id], HITS):
                assert f"(source: {url})" in prompt
                assert f"{title}. {text}" in prompt


@pytest.mark.slow
def test_a_second_run_asks_nothing_and_each_arm_is_its_run(
    job: str, server: FakeServer, web: WebServer, passages: dict[str, str]
) -> None:
    arms: dict[str, dict[str, Any]] = {
        "any": {"web.when": "any"}, "two": {"grade.documents": 2}, "whole": {"grade.strips": None},
        "plain": {"rewrite.strategies": [], "grade.question": None}, "dry": {"web": None}, "rrf": {"fuse.method": "rrf"},
        "query": {"grade.against": "query"},
    }  # fmt: skip
    ablation = finished(prepared_work(job, [], {"arms": arms}))
    for arm in ("full", "rrf"):
        check(ablation, ByHand(ablation, passages, arm, rewrites_of="full"), web, arm)
    check(ablation, ByHand(ablation, passages, "any", rewrites_of="full", when="any"), web, "any")
    sent, searched = len(server.bodies), len(web.texts)
    assert len(web.texts) == len(set(web.texts))
    needs = {one.arm: one for one in arm_costs(ablation, None, {})}
    by_hand = ByHand(ablation, passages, "full", rewrites_of="full")
    ambiguous = [key for key, (verdict, _) in by_hand.grades.items() if verdict == "ambiguous"]
    assert needs["full"].grades == 5 + len(by_hand.grades) + len(ambiguous) + len(by_hand.web)
    assert (needs["full"].web_searches, needs["dry"].web_searches) == (len(set(by_hand.web.values())), 0)
    assert needs["dry"].grades == needs["full"].grades - len(by_hand.web)
    tables = ("grades", "corrections", "answers")
    for arm, changes in {"full": {}, **arms}.items():
        settings = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, "name=alone"], None))
        for table in tables:
            of_arm = [one | {"arm": ""} for one in rows(ablation, table) if one["arm"] == arm]
            assert sorted(map(repr, of_arm)) == sorted(repr(one | {"arm": ""}) for one in rows(alone, table)), (arm, table)
        assert {one["reused"] for one in rows(alone, "costs") if one["stage"] in ("grade", "web", "answer")} <= {0, 1, 2, 3}
    assert [kind_of(prompt_of(one)) for one in server.bodies[sent:] if kind_of(prompt_of(one)) != "other"] == []
    assert web.texts[searched:] == []


@pytest.mark.slow
@pytest.mark.parametrize("when", ["any", "none"])
def test_without_the_relevant_documents_the_web_is_asked_by_the_rule(
    job: str, web: WebServer, passages: dict[str, str], tmp_path: Path, when: str
) -> None:
    """The documents that answer the queries are taken out of the corpus, as in the paper's case without support."""
    whole = finished(prepared_work(job, ["name=whole"], None))
    by_hand = ByHand(whole, passages, "run")
    relevant = {doc for (_, doc), (verdict, _) in by_hand.grades.items() if verdict == "relevant"}
    left = {doc_id: text for doc_id, text in passages.items() if doc_id not in relevant}
    pq.write_table(pa.table({"doc_id": list(left), "text": list(left.values())}), tmp_path / "left.parquet")
    build_local_index(tmp_path / "left", tmp_path / "left.parquet", index_fields("english"))
    before = len(web.texts)
    settings = [f"retrieve.retrievers.bm25.index={tmp_path / 'left'}", f"web.when={when}", "store=null"]
    run = finished(prepared_work(job, settings, None))
    expected = ByHand(run, passages, "run", when=when)
    check(run, expected, web)
    assert len(web.texts) - before == len(set(expected.web.values()))
    assert len(expected.web) > len(by_hand.web)


@pytest.mark.slow
def test_the_web_is_away_and_what_is_kept_stands_alone(job: str, web: WebServer, passages: dict[str, str]) -> None:
    texts = set(ByHand(finished(prepared_work(job, ["store=null", "name=first"], None)), passages, "run").web.values())
    failing = sorted(texts)[0]
    web.fail(failing, "400")
    run = finished(prepared_work(job, ["store=null", "name=second"], None))
    by_hand = ByHand(run, passages, "run")
    asking = {query_id for query_id, text in by_hand.web.items() if text == failing}
    errors = [one for one in rows(run, "errors") if one["stage"] == "web"]
    assert {one["query_id"] for one in errors} == asking
    assert {one["raw"] for one in errors} == {failing}
    assert all("stand alone" in one["message"] for one in errors)
    for one in rows(run, "corrections"):
        if one["query_id"] in asking:
            assert (one["web_query"], one["hits"]) == (failing, None)
    for one in rows(run, "answers"):
        if one["query_id"] in asking:
            assert [each["doc_id"] for each in one["documents"]] == by_hand.kept[one["query_id"]]


@pytest.mark.slow
def test_what_cannot_be_graded_stays(job: str, server: FakeServer, passages: dict[str, str]) -> None:
    """A refused grade and a verdict in other words are rows in errors; their documents are answered from."""

    def refused(body: dict[str, Any]) -> Reply | None:
        prompt = prompt_of(body)
        return refusal(400, "no") if kind_of(prompt) == "grade" and "moon" in prompt else None

    server.answer = refused
    run = finished(prepared_work(job, [], None))
    errors = [one for one in rows(run, "errors") if one["stage"] == "grade"]
    assert errors
    assert {one["component"] for one in errors} == {"three_grades"}
    ungraded = {(one["query_id"], one["doc_id"]) for one in rows(run, "grades") if one["verdict"] is None}
    assert len(errors) == len(ungraded) == run.counts["graded/ungraded"]
    shown = {(one["query_id"], each["doc_id"]) for one in rows(run, "answers") for each in one["documents"]}
    assert ungraded <= shown


def test_a_judge_with_the_prompt_of_the_grades_pays_for_none_of_them(
    job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def graded(body: dict[str, Any]) -> str:
        if "Query: " in prompt_of(body) and "Document:" in prompt_of(body):
            return json.dumps({"match": 1, "trust": 2, "overall": len(prompt_of(body)) % 4})
        return said(body)

    monkeypatch.setattr(server, "_text", graded)
    engine = json.dumps({"kind": "openai", "model": "grader-8b", "base_url": server.address, "attempts": 1})
    judge = f'judge={{"engine": {engine}, "relevance": {{"documents": 4}}}}'
    settings = ["grade.prompt=relevance", "grade.against=query", "grade.strips=null", judge]
    run = finished(prepared_work(job, settings, None))
    grades = {(one["query_id"], one["doc_id"]): one["grade"] for one in rows(run, "grades")}
    judged = {(one["query_id"], one["doc_id"]): float(one["grade"]) for one in rows(run, "judgements")}
    assert {key: judged[key] for key in grades} == grades
    of_stage = {stage: [one for one in rows(run, "costs") if one["stage"] == stage] for stage in ("grade", "judge")}
    assert sum(one["requests"] for one in of_stage["grade"] if one["component"] == "relevance") == len(grades)
    assert sum(one["requests"] for one in of_stage["judge"]) == len(judged) - len(grades)
    assert sum(one["reused"] for one in of_stage["judge"]) == 0, "what was graded is a cost of the grading alone"
    sent = [prompt_of(one) for one in server.bodies if '"overall"' in one["messages"][0]["content"]]
    assert len(sent) == len(set(sent)) == len(judged)


@pytest.mark.slow
def test_try_plan_and_report_show_each_step(job: str, web: WebServer, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [], None))
    by_hand = ByHand(run, passages, "run")
    query_id = next(one for one, text in by_hand.web.items() if by_hand.questions[one] and web.found(text))
    page = report(run, None, None)
    assert html.escape(str(by_hand.questions[query_id])) in page
    assert html.escape(by_hand.web[query_id]) in page
    assert html.escape(web.found(by_hand.web[query_id])[0][1]) in page
    config = load_config(job, [])
    planned = plan(prepare(config, job), LiveDisplay(io.StringIO()))
    left = {name: planned["left"][name] for name in ("grades", "web_searches", "answers")}
    assert left == {"grades": 0, "web_searches": 0, "answers": 0}  # it is finished
    Path(job).with_name("prices.yaml").write_text("searches: {web.search: 8000.0}\n")
    other = load_config(job, ["name=other", "limits.max_cost_usd=0.01"])
    planned = plan(prepare(other, job), LiveDisplay(io.StringIO()))
    of_web, usd = planned["missing"]["kinds"]["web searches"], len(QUERIES) * 0.008
    assert of_web["number"] == {"low": 0, "expected": len(QUERIES), "high": len(QUERIES)}
    assert of_web["usd"] == pytest.approx({"low": 0, "expected": usd, "high": usd})
    assert "the run may stop before its end" in str(over_budget(planned))
    assert planned["left"]["grades"] == len(QUERIES) * (1 + 3 + 3 + 1)
    assert planned["left"]["web_searches"] == len(QUERIES)
    with LoadedConfig(config, job, "small") as loaded:
        trial = loaded.try_query(by_hand.texts[query_id], lambda _: None)
    values = trial_values(trial)
    assert values["correction"]["question"] == by_hand.questions[query_id]
    assert values["correction"]["web_query"] == by_hand.web[query_id]
    found = [url for url, _, _ in web.found(by_hand.web[query_id], HITS)]
    assert [one["url"] for one in values["correction"]["pages"]] == found
    graded = {one["doc_id"]: (one["verdict"], one["strips"]) for one in values["grades"]}
    assert graded == {doc: of for (of_query, doc), of in by_hand.grades.items() if of_query == query_id}
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(try_page([trial], prompts=False))
    shown = console.export_text()
    assert str(by_hand.questions[query_id])[:40] in shown
    assert by_hand.web[query_id][:40] in shown


@pytest.mark.parametrize(
    ("said_of_them", "kept"),
    [
        ("2, 3", [2, 3]), ("2-4", [2, 3, 4]), ("1, 3 – 4.", [1, 3, 4]), ("none", []), ("None.", []), ("7", None), ("0", None),
        ("all", None), ("1-99", None),
    ],
)  # fmt: skip
def test_sentences_are_named_by_numbers_and_ranges(said_of_them: str, kept: list[int] | None) -> None:
    assert named_sentences(said_of_them, 5) == kept


def test_what_is_masked_in_the_query_is_masked_in_every_prompt(job: str, server: FakeServer, tmp_path: Path) -> None:
    """In other words no pattern would tell the number: it is known from the query."""
    query = "spring tide of tel 5551234"
    pq.write_table(pa.table({"query": [query]}), tmp_path / "log.parquet")
    recorded = {"query": query, "completions": {"dmqr": json.dumps({"general": "tide of 5551234"})}}
    (tmp_path / "recorded.jsonl").write_text(json.dumps(recorded) + "\n")
    run = finished(prepared_work(job, ["rewrite.guards.mask=[phone]"], None))
    assert [one["question"] for one in rows(run, "corrections")] == [question_of(query, ["tide of 5551234"])]
    prompts = [prompt for one in server.bodies if kind_of(prompt := prompt_of(one)) != "other"]
    assert {kind_of(one) for one in prompts} >= {"question", "grade", "answer"}
    assert not [one for one in prompts if "5551234" in one.rpartition("Question: ")[2]]  # pages say what they were asked


@pytest.mark.slow
def test_try_shows_each_grade_with_its_own_tokens_and_document(job: str, server: FakeServer, passages: dict[str, str]) -> None:
    def counted(body: dict[str, Any]) -> Reply:
        prompt = prompt_of(body)
        if kind_of(prompt) == "grade" and passages["d04"] in prompt:
            return refusal(400, "no such document")
        good = completion(said(body), {"prompt_tokens": len(prompt), "completion_tokens": 3})
        return Reply(content=json.dumps(good).encode(), headers={"Content-Type": "application/json"})

    server.answer = counted
    query = QUERIES[0]  # of which three documents are found
    with LoadedConfig(load_config(job, []), job, "small") as loaded:
        trial = loaded.try_query(query, lambda _: None)
    grades = [one for one in trial.requests if one["request"] == "three_grades"]
    answered = [one for one in grades if one["answer"] is not None]
    ranked = [hit["doc_id"] for hit in trial.row["hits"]][:3]
    assert "d04" in ranked
    assert [one["document"] for one in answered] == [doc_id for doc_id in ranked if doc_id != "d04"]
    assert len(answered) == 2
    for one in answered:
        assert passages[one["document"]] in one["prompt"]
        assert (one["prompt_tokens"], one["requests"], one["reused"]) == (len(one["prompt"]), 1, False)
    (failed,) = [one for one in grades if one["answer"] is None]
    assert failed["error"] is not None
    assert "no such document" in failed["message"]
    assert sum(one["prompt_tokens"] or 0 for one in trial.requests) == sum(
        sums.get("prompt_tokens", 0) for of in trial.spent.values() for sums in of.values()
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(try_page([trial], prompts=True))
    shown = console.export_text()
    for one in answered:
        assert f"request three_grades about {one['document']}  grader-8b, {one['prompt_tokens']:,} prompt tokens" in shown
    assert "no such document" in shown
    finished(prepared_work(job, [], None))
    with LoadedConfig(load_config(job, []), job, "small") as loaded:
        again = loaded.try_query(query, lambda _: None)
    stored = [one for one in again.requests if one["request"] == "three_grades" and one["answer"] is not None]
    assert [(one["document"], one["reused"], one["prompt_tokens"]) for one in stored] == [
        (one["document"], True, 0) for one in answered
    ]


@pytest.mark.slow
def test_a_report_shows_every_request_where_it_is_asked_for(job: str, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [], None))
    one_each, all_of_them = (html.unescape(report(run, None, None, requests=which)) for which in ("kinds", "all"))
    graded = [(one["query_id"], one["doc_id"]) for one in rows(run, "grades")]
    by_query = Counter(query_id for query_id, _ in graded)
    assert max(by_query.values()) == 3
    for doc_id in {doc_id for _, doc_id in graded}:
        assert f"three_grades about {doc_id}: " in all_of_them
    assert len(re.findall(r"three_grades about d\d+: ", all_of_them)) == len(graded)
    assert len(re.findall(r"three_grades about d\d+, one of 3: ", one_each)) == sum(n == 3 for n in by_query.values())
    assert "three_grades about" not in html.unescape(report(run, None, None, texts=False, requests="all"))
