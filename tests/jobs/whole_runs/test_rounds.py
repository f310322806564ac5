"""Further rounds of whole jobs in this process: which queries have one, what is asked and searched, and what comes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer

REFINED = {
    QUERIES[0]: "wild yeast makes sourdough rise", QUERIES[1]: "lens of a small lamp", QUERIES[2]: "spring tides full moon",
    QUERIES[3]: "moon pulls the sea", "yeast": "beer cousins", "zzz": "a mirror gathers faint light",
}  # fmt: skip
BELOW = 1.2


def said(body: dict[str, Any]) -> str:
    """Writes the refined query of a query; in a second round the same with one more word."""
    prompt = body["messages"][-1]["content"]
    query = prompt.rpartition("Query: ")[2]
    again = "" if "Tried before:\n(none)" in prompt else " galaxies"
    return json.dumps({"query": REFINED[query] + again})


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
    engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address, "attempts": 1}
    values["iterate"] = {"by": "bm25", "below": BELOW, "documents": 2, "merge": "best", "engine": engine}
    return job_in_process(tmp_path, values, bm25, config_file)


def lists(run: RunFolder) -> dict[tuple[str, str, int], dict[str, float]]:
    """Query, strategy and position -> doc_id -> score of its list."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for one in rows(run, "runs"):
        found.setdefault((texts[one["query_id"]], one["strategy"], one["position"]), {})[one["doc_id"]] = one["score"]
    return found


def results(run: RunFolder, arm: str = "run") -> dict[str, list[str]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[str]] = {}
    for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
        if one["arm"] == arm:
            found.setdefault(texts[one["query_id"]], []).append(one["doc_id"])
    return found


def asked(server: FakeServer) -> Counter[str]:
    prompts = [one["messages"][-1]["content"] for one in server.bodies]
    return Counter(prompt.rpartition("Query: ")[2] for prompt in prompts if "Tried before" in prompt)


def test_queries_with_a_low_best_score_have_a_round(job: str, server: FakeServer) -> None:
    plain = finished(prepared_work(job, ["iterate=null", "name=plain"], None))
    best = {query: max(lists(plain).get((query, "original", 1), {"": 0.0}).values()) for query in QUERIES}
    low = {query for query in QUERIES if best[query] < BELOW}
    assert low, best
    assert low != set(QUERIES), best
    run = finished(prepared_work(job, [], None))
    assert asked(server) == Counter(low)
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found = {texts[one["query_id"]]: one for one in rows(run, "rounds")}
    assert found.keys() == low
    before, after, searched = results(plain), results(run), lists(run)
    for query, one in found.items():
        assert one["text"] == REFINED[query]
        assert one["best"] == (pytest.approx(best[query]) if best[query] else None)
        assert set(after[query]) == set(before.get(query, [])) | searched[query, "iterate", 1].keys()
        assert one["new"] == len(set(after[query]) - set(before.get(query, [])))
    for query in set(QUERIES) - low:
        assert after[query] == before[query]
    assert {one["stage"] for one in rows(run, "costs")} >= {"iterate", "retrieve"}
    assert not [one for one in rows(run, "errors") if one["stage"] == "iterate"]


def test_the_best_of_both_rounds_is_that_of_the_fused_scores(job: str) -> None:
    """With one list a round, min-max fusion is arithmetic that a test can do by hand."""
    run = finished(prepared_work(job, ["fuse.redundancy=none", "rewrite.strategies=[]", "iterate.below=1e9"], None))
    searched = lists(run)
    for query, doc_ids in results(run).items():
        scaled: dict[str, float] = {}
        for strategy in ("original", "iterate"):
            found = searched.get((query, strategy, 1), {})
            low, high = min(found.values(), default=0.0), max(found.values(), default=0.0)
            for doc_id, score in found.items():
                value = (score - low) / (high - low) if high > low else 1.0
                scaled[doc_id] = max(scaled.get(doc_id, 0.0), value)
        assert doc_ids == sorted(scaled, key=lambda doc_id: (-round(scaled[doc_id], 9), doc_id))


def test_rounds_end_where_the_best_score_is_reached(job: str, server: FakeServer) -> None:
    run = finished(prepared_work(job, ["iterate.rounds=3"], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    searched, expected = lists(run), Counter[str]()
    for query in QUERIES:
        best = max(searched.get((query, "original", 1), {"": 0.0}).values())
        number = 1
        while best < BELOW and number <= 3:
            expected[query] += 1
            best = max(best, *searched.get((query, "iterate", number), {"": 0.0}).values())
            number += 1
            if number == 4 or (number == 3 and best < BELOW):  # the third query would be the second again
                expected[query] += best < BELOW and number == 3
                break
    assert asked(server) == expected
    repeated = [texts[one["query_id"]] for one in rows(run, "errors") if one["reason"] == "repeated_query"]
    assert set(repeated) == {query for query, n in expected.items() if n == 3}
    assert len(rows(run, "rounds")) == expected.total() - len(repeated)


def test_a_second_run_asks_nothing_and_an_arm_is_its_run(job: str, server: FakeServer) -> None:
    arms = {
        "two": {"iterate.rounds": 2}, "fused": {"iterate.merge": "fuse"}, "never": {"iterate.below": -1.0},
        "rrf": {"fuse.method": "rrf"},
    }  # fmt: skip
    ablation = finished(prepared_work(job, [], {"arms": arms}))
    sent = len(server.bodies)
    for arm, changes in {"full": {}, "general": {"fuse.weights.original": 0}, **arms}.items():
        settings = [f"{key}={value}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, "name=alone"], None))
        assert results(alone) == results(ablation, arm), arm
        of_arm = [one for one in rows(ablation, "rounds") if one["arm"] == arm]
        own = rows(alone, "rounds")
        assert sorted(repr(one | {"arm": ""}) for one in of_arm) == sorted(repr(one | {"arm": ""}) for one in own), arm
    prompts = [one["messages"][-1]["content"] for one in server.bodies[sent:]]
    assert not [prompt for prompt in prompts if "Tried before" in prompt]


def test_rounds_by_the_reranker(job: str, tmp_path: Path, server: FakeServer) -> None:
    from tests.support.retrievers.tiny_reranker import make_reranker

    make_reranker(tmp_path / "reranker", ["yeast and bread", "moon and tides"])
    rerank = [
        "rerank.max_length=128",
        "rerank.kind=cross_encoder",
        f"rerank.model={tmp_path / 'reranker'}",
        "iterate.by=rerank",
    ]
    plain = finished(prepared_work(job, ["iterate=null", "name=plain", *rerank[:3]], None))
    texts = {one["query_id"]: one["query"] for one in rows(plain, "queries")}
    best: dict[str, float] = {}
    for one in rows(plain, "scores"):
        best[texts[one["query_id"]]] = max(best.get(texts[one["query_id"]], -1e9), one["score"])
    below = sorted(best.values())[len(best) // 2]
    run = finished(prepared_work(job, [*rerank, f"iterate.below={below!r}"], None))
    low = {query for query in QUERIES if best.get(query, -1e9) < below}
    assert asked(server) == Counter(low)
    pairs = [(one["query_id"], one["doc_id"]) for one in rows(run, "scores")]
    assert len(pairs) == len(set(pairs))
    shown = results(run)
    scored = {(texts[one["query_id"]], one["doc_id"]) for one in rows(run, "scores")}
    assert all((query, doc_id) in scored for query, doc_ids in shown.items() for doc_id in doc_ids)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("iterate.by=bm52", "iterate.by: no retriever 'bm52'; did you mean 'bm25'"),
        ("iterate.by=rerank", "rerank.kind is none"),
        ("retrieve.retrievers.bm25.together=true", "has no list of the original alone"),
    ],
)
def test_a_score_that_there_is_not_is_refused(job: str, setting: str, words: str) -> None:
    from cluster.errors import ConfigError

    with pytest.raises(ConfigError, match=words):
        prepared_work(job, [setting], None)
