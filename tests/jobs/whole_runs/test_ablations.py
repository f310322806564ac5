"""Whole ablations in this process: what is refused, what a second start has paid, and what results carry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import RewriterError
from jobs.job.prepare import Prepared
from jobs.pages.ablation import closing_page, compared
from jobs.plan.plan import plan
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.in_process_runs import QUERIES, finished, full_disk, prepared_job, prepared_work, record, rows
from tests.support.jobs.terminals import printed
from tests.support.rewriters.fake_server import FakeServer


@pytest.fixture
def job(small_job: Callable[..., str], bm25: dict[str, Any], served_dense: dict[str, Any]) -> str:
    return small_job(retrieve={"retrievers": {"bm25": bm25, "dense": served_dense}})


@pytest.mark.slow
def test_the_plan_refuses_an_arm_whose_server_is_away(job: str) -> None:
    away = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"}
    ablation = prepared_work(job, [], {"arms": {"served": {"rewrite.engine": away}}})
    plain: Prepared = prepared_job(job).prepared
    finished(plain)  # that the run is finished says nothing of the arms
    with pytest.raises(RewriterError, match=r"127\.0\.0\.1:9"):
        plan(plain, LiveDisplay(io.StringIO()), ablation)


@pytest.mark.slow
def test_an_ablation_that_goes_on_has_what_it_has_paid_before(job: str) -> None:
    with FakeServer(["m"], text=lambda _: json.dumps({"general": "moon and tides"})) as server:
        live = [f"rewrite.engine={{kind: openai, base_url: '{server.address}', model: m}}", "cluster.shard_size=2"]
        with full_disk() as calls:
            finished(prepared_work(job, live, {}))
        asked = len(server.bodies)
        run = finished(prepared_work(job, live, {}))
    spent = [row for row in rows(run, "costs") if row["stage"] == "rewrite" and row["query_id"]]
    assert asked > calls[0]  # the second shard was rewritten and stored, and not committed
    assert sum(row["requests"] for row in spent) == len(server.bodies) == len(QUERIES)
    assert all(row["prompt_tokens"] and not row["reused"] for row in spent)
    assert {row["start"] for row in spent} == {1, 2}


@pytest.mark.slow
def test_results_are_cut_and_carry_sources_on_demand(job: str) -> None:
    found = rows(finished(prepared_work(job, [], {"keep": 2, "sources": True})), "results")
    assert max(row["rank"] for row in found) == 2
    assert {source["strategy"] for row in found if row["arm"] == "full" for source in row["sources"]} == {"general", "original"}
    assert {json.dumps(row["sources"]) for row in rows(finished(prepared_work(job, [], {"keep": 2})), "results")} == {"null"}


def test_overlap_in_place_of_cosine_is_said(job: str, bm25: dict[str, Any]) -> None:
    words = "fuse.redundancy: overlap in place of cosine, since no retriever is dense: "
    only = {"arms": {"bm25 alone": {"retrieve.retrievers": {"bm25": bm25}}}}
    assert f"{words}bm25 alone" in prepared_work(job, [], only).prepared.warnings
    assert not any(one.startswith(words) for one in prepared_work(job, [], {}).prepared.warnings)


def test_fallbacks_stand_in_the_closing_table(small_job: Callable[..., str]) -> None:
    job, views = small_job(), Path(__file__).parents[3] / "configs" / "strategies" / "book_views.yaml"
    record({query: {"book_views": "[]"} for query in QUERIES[1:]})
    run = finished(prepared_work(job, [f"rewrite.strategies=[{views}]"], {"arms": {"shallow": {"retrieve.depth": 3}}}))
    text = " ".join(printed(closing_page(compared(run, None, run.config.evaluate, None)), 120).split())
    assert f"fallbacks the original in place of book_views {len(QUERIES) - 1} queries" in text
    assert "stand-ins book_views: 1 query without hits of its own; the original's were used" in text
