"""Whole ablations in this process: each arm is what a run of it alone would be, and what arms share is done once."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import RewriterError
from cluster.isolation import KilledWorkerError
from jobs.chain.stages.retrieve import Retrieve
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.plan.plan import plan
from jobs.plan.work import saved
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from jobs.runs.folder import open_run
from jobs.tables import STORED
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.full_disk import full_disk
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.rewriters.fake_server import Body, FakeServer

QUERIES = [
    "why does bread rise", "lamp of a lighthouse", "moon and tides", "spring tide", "yeast", "rye", "zzz", "faint galaxies",
    "how far does a lens throw light", "harbour", "linen bag",
]  # fmt: skip
STRATEGIES = ["general", "keyword", "pseudo_answer"]
Make = Callable[..., Job]


def answers(query: str, style: str = "") -> str:
    words = query.split()
    return json.dumps(
        {
            "general": f"{style}tell me about {query}",
            "keyword": ", ".join(words[:2]),
            "pseudo_answer": f"{query}: the sea, bread or {words[-1]} explain it.",
        }
    )


@pytest.fixture
def make(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], served_dense: dict[str, Any],
    config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch,
) -> Make:  # fmt: skip
    """Checks an ablation of a small job; one query has no recorded answer, one no hits of BM25."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(
        pa.table({"query": [query for place, query in enumerate(QUERIES) for _ in range(1 + place % 3)]}), "log.parquet"
    )
    for name, style in (("recorded", ""), ("other", "please ")):
        lines = [{"query": query, "completions": {"dmqr": answers(query, style)}} for query in QUERIES[1:]]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"]["strategies"] = STRATEGIES
    values["retrieve"] |= {"retrievers": {"bm25": bm25, "dense": served_dense}}
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 4}}
    path = config_file(values)

    def made(ablate: dict[str, Any] | None = None, *settings: str) -> Job:
        given = [*settings, f"ablate={json.dumps(ablate or {})}"]
        return prepare_ablation(load_config(path, given), path)

    return made


def results(folder: Path, arm: str, keep: int = 10) -> list[tuple[Any, ...]]:
    found = [row for row in rows(folder, "results") if row["arm"] == arm and row["rank"] <= keep]
    return sorted((row["query_id"], row["rank"], row["doc_id"], row["score"], row["rerank_score"]) for row in found)


@pytest.mark.slow
def test_the_plan_refuses_an_arm_whose_server_is_away(make: Make) -> None:
    away = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"}
    ablation = make({"arms": {"served": {"rewrite.engine": away}}})
    plain = prepare(load_config("config.yaml"), "config.yaml")
    run_in_process(plain)  # that the run is finished says nothing of the arms
    with pytest.raises(RewriterError, match=r"127\.0\.0\.1:9"):
        plan(plain, LiveDisplay(io.StringIO()), ablation)


@pytest.mark.slow
def test_requests_searches_and_pairs_are_made_once(make: Make) -> None:
    ablation = make({"subsets": "all", "grid": {"rerank.kind": ["none", "bi_encoder"], "rerank.combine": ["blend", "replace"]}})
    folder = run_in_process(ablation)
    asked = Counter(
        (row["query_id"], row["component"]) for row in rows(folder, "costs") if row["stage"] == "rewrite" and row["query_id"]
    )
    assert set(asked.values()) == {1}
    assert {row["query_id"] for row in rows(folder, "costs") if row["component"].startswith("start_up")} == {None}
    alone = prepare(load_config("config.yaml", ["store=null"]), "config.yaml")
    run_in_process(alone)
    both = [open_run(str(one)) for one in (folder, alone.storage.root)]
    assert both[0].spent["retrieve"]["bm25@"]["searches"] == both[1].spent["retrieve"]["bm25@"]["searches"]
    pairs = [(row["query_id"], row["doc_id"]) for row in rows(folder, "scores")]
    assert len(pairs) == len(set(pairs))
    needed = {(row["query_id"], row["doc_id"]) for row in rows(folder, "results") if row["rerank_score"] is not None}
    assert needed <= set(pairs)
    found = saved(both[0])
    assert found.executed["pairs"] == len(pairs)
    assert found.naive["requests"] == 11 * sum(bool(arm.strategies) for arm in ablation.compiled.arms)
    assert found.executed["requests"] == 11


@pytest.mark.slow
def test_an_ablation_that_fails_in_the_middle_goes_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = {"subsets": "all", "grid": {"rerank.kind": ["none", "bi_encoder"]}}
    calm = run_in_process(make(arms, "output=calm"))
    ablation = make(arms)

    with full_disk(monkeypatch):
        run_in_process(ablation)
    folder = run_in_process(make(arms))
    for arm in (answer.arm for answer in ablation.compiled.work.answers):
        assert results(folder, arm) == results(calm, arm)
    searched = [row for row in rows(folder, "costs") if row["stage"] == "retrieve" and row["query_id"]]
    assert any(row["reused"] for row in searched)  # of the shard that was searched and not committed
    assert sum(row["searches"] + row["reused"] for row in searched) == sum(
        row["searches"] for row in rows(calm, "costs") if row["stage"] == "retrieve"
    )


@pytest.mark.slow
def test_an_ablation_that_goes_on_has_what_it_has_paid_before(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer(["m"], text=lambda _: answers("moon and tides")) as server:
        live = f"rewrite.engine={{kind: openai, base_url: '{server.address}', model: m}}"
        with full_disk(monkeypatch) as calls:
            run_in_process(make(None, live))
        asked = len(server.bodies)
        folder = run_in_process(make(None, live))
    spent = [row for row in rows(folder, "costs") if row["stage"] == "rewrite" and row["query_id"]]
    assert asked > calls[0]  # the second shard was rewritten and stored, and not committed
    assert sum(row["requests"] for row in spent) == len(server.bodies) == len(QUERIES)
    assert all(row["prompt_tokens"] and not row["reused"] for row in spent)
    assert {row["start"] for row in spent} == {1, 2}


@pytest.mark.slow
def test_an_ablation_is_closed_though_workers_died_under_one_query(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Retrieve.__call__

    def dies(self: Retrieve, table: pa.Table) -> pa.Table:
        if "harbour" in table.column("query").to_pylist():
            raise KilledWorkerError("workers died under it alone")
        return whole(self, table)

    monkeypatch.setattr(Retrieve, "__call__", dies)
    folder = run_in_process(make())
    assert ("retrieve", "killed_worker") in {(row["stage"], row["reason"]) for row in rows(folder, "errors")}
    assert (folder / "_SUCCESS.json").exists()


@pytest.mark.slow
def test_results_are_cut_and_carry_sources_on_demand(make: Make) -> None:
    folder = run_in_process(make({"keep": 2, "sources": True}, "retrieve.retrievers.bm25.together=false"))
    found = rows(folder, "results")
    assert max(row["rank"] for row in found) == 2
    assert {source["strategy"] for row in found if row["arm"] == "keyword" for source in row["sources"]} <= {
        "keyword",
        "original",
    }
    bare = run_in_process(make({"keep": 2}))
    assert {json.dumps(row["sources"]) for row in rows(bare, "results")} == {"null"}
    assert set(pq.read_schema(next((bare / "results").glob("*.parquet"))).names) == set(STORED["results"].names)


@pytest.mark.slow
def test_two_ablations_of_the_same_arms_are_one(make: Make) -> None:
    first = make({"grid": {"fuse.k": [10, 60]}})
    run_in_process(first)
    assert make({"grid": {"fuse.k": [10, 60]}}).prepared.run_id == first.prepared.run_id
    assert make({"grid": {"fuse.k": [10, 61]}}).prepared.run_id != first.prepared.run_id
    assert make({"grid": {"fuse.k": [10, 60]}, "keep": 3}).prepared.run_id != first.prepared.run_id
    assert run_in_process(make({"grid": {"fuse.k": [10, 60]}})) == Path(
        first.prepared.storage.root
    )  # finished: nothing is done


@pytest.mark.slow
def test_samples_are_answers_of_their_own_with_their_own_seeds(make: Make) -> None:
    def said(body: Body) -> str:
        return answers("moon and tides", f"take {body['seed']} ")

    with FakeServer(["m"], text=said) as server:
        live = f"rewrite.engine={{kind: openai, base_url: '{server.address}', model: m}}"
        ablation = make({"samples": 3}, live, "rewrite.decoding.temperature=1")
        folder = run_in_process(ablation)
        again = run_in_process(make({"samples": 3, "grid": {"fuse.k": [10]}}, live, "rewrite.decoding.temperature=1"))
    assert sorted(Counter(body["seed"] for body in server.bodies).values()) == [len(QUERIES)] * 3  # nothing is asked twice
    for one in (folder, again):
        arms = {row["arm"] for row in rows(one, "rewrites")}
        assert arms == {"full", "full #2", "full #3"}
        texts = {arm: {row["text"] for row in rows(one, "rewrites") if row["arm"] == arm} for arm in arms}
        assert len(set.union(*texts.values())) > max(map(len, texts.values()))


def test_overlap_in_place_of_cosine_is_said(make: Make) -> None:
    words = "fuse.redundancy: overlap in place of cosine, since no retriever is dense: "
    bm25 = make().prepared.config.retrieve.retrievers["bm25"].model_dump(mode="json")
    only = {"arms": {"bm25 alone": {"retrieve.retrievers": {"bm25": bm25}}}}
    said = make(only).prepared.warnings
    assert f"{words}bm25 alone" in said
    assert not any(one.startswith(words) for one in make().prepared.warnings)
