"""Further rounds whose prompt shows documents by the reranker's grades, in whole jobs in this process."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.retrievers.tiny_reranker import make_reranker
from tests.support.rewriters.fake_server import FakeServer

GROUPS = re.compile(
    r"Documents that fit:\n\n(.*)\n\nDocuments that fit in part:\n\n(.*)\n\nDocuments that do not fit:\n\n(.*)\n\nTried before",
    re.S,
)
SHOWN = 4


def said(body: dict[str, Any]) -> str:
    query = body["messages"][-1]["content"].rpartition("Query: ")[2]
    return json.dumps({"reinforce": "", "missing": "tides", "leave_out": "bread", "query": f"{query} full moon harbours"})


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
    engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address, "attempts": 1}
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


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "iterate.prompt: refine: shows documents by label, and iterate.labels is not set"),
        (["iterate.labels={by: rerank}"], "high and medium go with by: score or rerank"),
        (
            ["iterate.labels={by: rerank, high: 1, medium: 0}", "rerank.kind=none", "iterate.by=bm25"],
            "iterate.labels.by: rerank has",
        ),
    ],
)
def test_grades_that_there_are_not_are_refused(job: str, settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, settings, None)
