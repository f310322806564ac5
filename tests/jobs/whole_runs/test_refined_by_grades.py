"""Further rounds whose prompt shows documents by grades, the reranker's or an LLM's, in whole jobs in this process."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.measure.judged.family import judged_families, models_of
from jobs.runs.folder import RunFolder
from tests.support.jobs.corrective_llm import kind_of, prompt_of, verdict_of
from tests.support.jobs.corrective_llm import said as corrective
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.tiny_reranker import make_reranker
from tests.support.rewriters.fake_server import FakeServer

GROUPS = re.compile(
    r"Documents that fit:\n\n(.*)\n\nDocuments that fit in part:\n\n(.*)\n\nDocuments that do not fit:\n\n(.*)\n\nTried before",
    re.S,
)
SHOWN = 4


def said(body: dict[str, Any]) -> str:
    prompt = prompt_of(body)
    if kind_of(prompt) in ("grade", "answer") and "Tried before" not in prompt:
        return corrective(body)
    query, again = prompt.rpartition("Query: ")[2], "" if "Tried before:\n(none)" in prompt else " galaxies"
    refined_query = f"{query} full moon harbours{again}"
    return json.dumps({"reinforce": "", "missing": "tides", "leave_out": "bread", "query": refined_query})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["refiner-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    make_reranker(tmp_path / "reranker", ["yeast and bread", "moon and tides"])
    job_in_process(tmp_path, values, bm25, config_file)
    values["rerank"] = {"kind": "cross_encoder", "model": str(tmp_path / "reranker"), "max_length": 128}
    engine = engine_of(server)
    values["iterate"] = {"by": "rerank", "below": 0.0, "prompt": "refine", "documents": SHOWN, "engine": engine}
    return config_file(values)


def scores(run: RunFolder) -> dict[str, dict[str, float]]:
    """Query -> doc_id -> the reranker's score."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, dict[str, float]] = {query: {} for query in QUERIES}
    for one in rows(run, "scores"):
        found[texts[one["query_id"]]][one["doc_id"]] = one["score"]
    return found


def shown(run: RunFolder) -> dict[str, list[str]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[str]] = {query: [] for query in QUERIES}
    for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
        if one["rank"] <= SHOWN:
            found[texts[one["query_id"]]].append(one["doc_id"])
    return found


@pytest.mark.slow
def test_the_llm_sees_the_first_documents_by_grade_where_the_best_is_low(
    job: str, server: FakeServer, passages: dict[str, str]
) -> None:
    plain = finished(prepared_work(job, ["iterate=null", "name=plain"], None))
    known, first = scores(plain), shown(plain)
    best = {query: max(of.values(), default=float("-inf")) for query, of in known.items()}
    below = sorted(best.values())[len(best) // 2]
    low = {query for query in QUERIES if best[query] < below}
    every = sorted(known[query][doc_id] for query in low for doc_id in first[query])
    medium, high = every[len(every) // 3], every[2 * len(every) // 3]
    settings = [f"iterate.below={below!r}", f"iterate.labels={{by: rerank, high: {high!r}, medium: {medium!r}}}"]
    run = finished(prepared_work(job, settings, None))
    prompts = {
        body["messages"][-1]["content"].rpartition("Query: ")[2]: body["messages"][-1]["content"] for body in server.bodies
    }
    assert prompts.keys() == low
    assert len(server.bodies) == len(low)
    grades = Counter[int]()
    for query, prompt in prompts.items():
        match = GROUPS.search(prompt)
        assert match is not None
        for place, group in enumerate(match.groups()):
            wanted = [doc_id for doc_id in first[query]
                      if (known[query][doc_id] < high) + (known[query][doc_id] < medium) == place]  # fmt: skip
            assert all((passages[doc_id] in group) == (doc_id in wanted) for doc_id in first[query])
            assert bool(wanted) == (group != "(none)")
            grades[place] += len(wanted)
    assert min(grades[place] for place in range(3)) > 0
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    assert {texts[one["query_id"]]: one["text"] for one in rows(run, "rounds")} == {
        one: f"{one} full moon harbours" for one in low
    }
    finished(prepared_work(job, [*settings, "name=again"], None))
    assert len(server.bodies) == len(low)  # of the store
    finished(prepared_work(job, [*settings, "name=again", "iterate.prompt=iterate"], None))
    assert len(server.bodies) == 2 * len(low)  # another prompt


LABELS = {"relevant": "High", "ambiguous": "Medium", "irrelevant": "Low"}


def engine_of(server: FakeServer) -> dict[str, Any]:
    return {"kind": "openai", "model": "refiner-8b", "base_url": server.address, "attempts": 1}


def by_grades(server: FakeServer) -> list[str]:
    labels = {"by": "llm", "grades": {"engine": engine_of(server)}}
    return ["rerank.kind=none", "iterate.by=bm25", "iterate.below=1.2", f"iterate.labels={json.dumps(labels)}"]


def graded(server: FakeServer, since: int = 0) -> Counter[tuple[str, str]]:
    """Query and document -> how often its grade was asked for."""
    prompts = [prompt for body in server.bodies[since:] if kind_of(prompt := prompt_of(body)) == "grade"]
    parts = [prompt.removeprefix("Question: ").partition("\n\nDocument:\n") for prompt in prompts]
    return Counter((query, document.partition("\n\nOne word:")[0]) for query, _, document in parts)


def refined(server: FakeServer, since: int = 0) -> dict[str, str]:
    """Query -> the last prompt that asked for a refined query."""
    prompts = [prompt_of(body) for body in server.bodies[since:]]
    return {prompt.rpartition("Query: ")[2]: prompt for prompt in prompts if "Tried before" in prompt}


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
def test_an_llm_grades_each_document_once_for_all_rounds(
    job: str, server: FakeServer, passages: dict[str, str], rounds: int
) -> None:
    settings = [*by_grades(server), f"iterate.rounds={rounds}"]
    first = shown(finished(prepared_work(job, ["rerank.kind=none", "iterate=null", "name=plain"], None)))
    run = finished(prepared_work(job, settings, None))
    prompts = refined(server)
    assert 0 < len(prompts) < len(QUERIES)
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    seen: dict[str, list[list[str]]] = {}
    for one in sorted(rows(run, "rounds"), key=lambda one: one["round"]):
        of_query = seen.setdefault(texts[one["query_id"]], [])
        of_query.append([of["doc_id"] for of in one["documents"]])
        for of in one["documents"]:
            verdict = verdict_of(texts[one["query_id"]], passages[of["doc_id"]])
            assert of["label"] == LABELS[verdict]
    assert {query: of[0] for query, of in seen.items()} == {query: first[query] for query in prompts}
    assert graded(server) == Counter(
        {(query, passages[doc_id]) for query, of in seen.items() for doc_ids in of for doc_id in doc_ids}
    )
    for query, prompt in prompts.items():
        match = GROUPS.search(prompt)
        assert match is not None
        for label, group in zip(LABELS.values(), match.groups(), strict=True):
            wanted = [doc_id for doc_id in seen[query][-1] if LABELS[verdict_of(query, passages[doc_id])] == label]
            assert all((passages[doc_id] in group) == (doc_id in wanted) for doc_id in seen[query][-1])
            assert bool(wanted) == (group != "(none)")
    of_grades = [one for one in rows(run, "costs") if one["component"] == "three_grades"]
    assert {one["stage"] for one in of_grades} == {"iterate"}
    assert sum(one["requests"] for one in of_grades) == graded(server).total()
    before = len(server.bodies)
    finished(prepared_work(job, [*settings, "name=again"], None))
    assert len(server.bodies) == before


@pytest.mark.slow
def test_a_grade_serves_refining_grading_and_judging(job: str, server: FakeServer, passages: dict[str, str]) -> None:
    engine = engine_of(server)
    steps = {
        "grade": {"documents": 1, "engine": engine}, "answer": {"documents": 5, "engine": engine},
        "judge": {"engine": engine, "relevance": {"prompt": "three_grades", "documents": 6}},
    }  # fmt: skip
    settings = [*by_grades(server), *(f"{key}={json.dumps(value)}" for key, value in steps.items())]
    run = finished(prepared_work(job, [*settings, "store=null"], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    judged = {(texts[one["query_id"]], passages[one["doc_id"]]) for one in rows(run, "judgements")}
    of_rounds = {(texts[one["query_id"]], passages[of["doc_id"]]) for one in rows(run, "rounds") for of in one["documents"]}
    of_grades = {(texts[one["query_id"]], passages[one["doc_id"]]) for one in rows(run, "grades")}
    assert of_rounds - of_grades
    assert of_grades - of_rounds
    assert graded(server) == Counter(judged | of_rounds | of_grades)
    paid = Counter[str]()
    for one in rows(run, "costs"):
        if one["component"] == "three_grades":
            paid[one["stage"]] += one["requests"]
    wanted = {
        "iterate": len(of_rounds), "grade": len(of_grades - of_rounds), "judge": len(judged - of_grades - of_rounds),
    }  # fmt: skip
    assert paid == +Counter(wanted)
    wholly = finished(prepared_work(job, [*settings, "judge.relevance.documents=1", "name=wholly", "store=null"], None))
    assert not [one for one in rows(wholly, "costs") if one["stage"] == "judge" and one["requests"]]
    assert models_of(wholly, "judge") == ["refiner-8b"]  # that wrote the refined queries, too
    assert "of refiner-8b, which wrote the refined queries" in judged_families(wholly, models_of(wholly, "judge"))[0]
    before = len(server.bodies)
    ablation = finished(prepared_work(job, settings, {"arms": {"never": {"iterate": None}, "twice": {"iterate.rounds": 2}}}))
    once = graded(server, before)
    assert once.keys() >= graded(server).keys()
    assert set(once.values()) == {1}  # whichever arms and stages need it
    sent = len(server.bodies)
    for arm, changes in {"full": [], "never": ["iterate=null"], "twice": ["iterate.rounds=2"]}.items():
        alone = finished(prepared_work(job, [*settings, *changes, "name=alone"], None))
        columns = ("query_id", "rank", "doc_id", "verdict")
        own = sorted(tuple(one[name] for name in columns) for one in rows(alone, "grades"))
        assert own == sorted(tuple(one[name] for name in columns) for one in rows(ablation, "grades") if one["arm"] == arm), arm
        assert results_of(alone, "run") == results_of(ablation, arm), arm
    assert len(server.bodies) == sent


def results_of(run: RunFolder, arm: str) -> list[tuple[Any, ...]]:
    columns = ("query_id", "rank", "doc_id", "score")
    return sorted(tuple(one[name] for name in columns) for one in rows(run, "results") if one["arm"] == arm)


def test_a_grade_that_cannot_be_read_is_an_error_and_no_label(
    job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch, passages: dict[str, str]
) -> None:
    first = shown(finished(prepared_work(job, ["rerank.kind=none", "iterate=null", "name=plain"], None)))
    query = next(query for query in QUERIES if "d03" in first[query])
    other = corrective_but(passages["d03"])
    monkeypatch.setattr(server, "_text", other)
    run = finished(prepared_work(job, [*by_grades(server), "iterate.below=1e9"], None))
    errors = [one for one in rows(run, "errors") if one["stage"] == "iterate"]
    assert {(one["component"], one["reason"], one["raw"]) for one in errors} == {("three_grades", "unparsable", "perhaps")}
    assert all("document 'd03'" in one["message"] for one in errors)
    assert len(errors) == sum("d03" in first[query] for query in QUERIES)
    labels = {of["doc_id"]: of["label"] for one in rows(run, "rounds") for of in one["documents"]}
    assert labels.pop("d03") is None
    assert None not in labels.values()
    assert passages["d03"] not in refined(server)[query]


def corrective_but(document: str) -> Callable[[dict[str, Any]], str]:
    """What the server says, but for grades of a document, which cannot be read."""
    return lambda body: "perhaps" if kind_of(prompt_of(body)) == "grade" and document in prompt_of(body) else said(body)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "iterate.prompt: refine: shows documents by label, and iterate.labels is not set"),
        (["iterate.labels={by: rerank}"], "by: rerank needs high and medium"),
        (["iterate.labels={by: llm, high: 2}"], "high and medium go with each other"),
        (["iterate.labels={by: rerank, high: 1, medium: 0, grades: {}}"], "grades are of an LLM, and by is rerank"),
        (["iterate.labels={by: llm, grades: {prompt: answer}}"], "iterate.labels.grades.prompt: "),
        (["iterate.labels={by: llm, grades: {prompt: strips}}"], "output: object is no grade"),
        (
            ["iterate.labels={by: rerank, high: 1, medium: 0}", "rerank.kind=none", "iterate.by=bm25"],
            "iterate.labels.by: rerank has",
        ),
    ],
)
def test_grades_that_there_are_not_are_refused(job: str, settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, settings, None)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("keys: [refined]", "refine.yaml: its answer has no key query; make it an object with this key"),
        ("keys: [query]\noptional: [query]", "refine.yaml: its key query is optional, and is what the step is for"),
    ],
)
def test_a_prompt_whose_answer_may_have_no_query_is_refused(job: str, keys: str, words: str) -> None:
    prompt = (ROOT / "rewriters" / "steps" / "iterate.yaml").read_text().replace("keys: [query]", keys)
    Path("refine.yaml").write_text(prompt)
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, ["iterate.prompt=refine.yaml", "iterate.labels=null"], None)
