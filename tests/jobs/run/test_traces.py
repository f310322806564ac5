"""OpenTelemetry spans of a run, as a collector gets them: their tree, lost workers, runs that end early, collectors that do."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError, Stopped
from cluster.run.progress import ProgressTracker
from cluster.run.settings import TraceSettings
from cluster.run.shards import Manifest
from cluster.run.snapshot import BlockTotals
from jobs.chain.stages.order import Order
from jobs.config.load import load_config
from jobs.run import traces
from jobs.run.traces import Traces
from tests.support.jobs.in_process_runs import QUERIES, job_in_process, prepared_job, run_in_process
from tests.support.jobs.otlp_collector import Collector, Span, collecting
from tests.support.jobs.whole_runs import finish, flags, rows, start

STAGES = ["read", "rewrite", "retrieve", "fuse", "order", "write"]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with collecting() as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    return job_in_process(tmp_path, values, bm25, config_file)


def sent_to(collector: Collector) -> str:
    return f"cluster.traces={{endpoint: '{collector.address}'}}"


def root(collector: Collector) -> Span:
    (found,) = [span for span in collector.spans if not span.parent]
    return found


def test_a_span_per_shard_and_stage(job: str, collector: Collector) -> None:
    prepared = prepared_job(job, sent_to(collector)).prepared
    run_in_process(prepared)
    run = root(collector)
    assert (run.name, run.failed, run.attributes["dmqr.outcome"]) == ("run", None, "finished")
    own = {"dmqr.run_id": prepared.run_id, "dmqr.run": "small", "dmqr.start": 1}
    shards = collector.below(run.id)
    assert [(span.name, span.attributes["dmqr.shard"], span.failed) for span in shards] == [
        ("shard", 0, None),
        ("shard", 1, None),
    ]
    for shard in shards:
        assert shard.attributes["dmqr.rows"] == 3
        stages = collector.below(shard.id)
        assert [span.name for span in stages] == STAGES
        assert all(one.ended <= two.began for one, two in pairwise(stages))
        assert run.began <= shard.began == stages[0].began < stages[-1].ended <= shard.ended <= run.ended
        for span in stages:
            assert span.attributes.items() >= (own | {"dmqr.shard": shard.attributes["dmqr.shard"], "dmqr.attempt": 1}).items()
            assert (span.attributes["dmqr.stage"], span.failed, collector.below(span.id)) == (span.name, None, [])
    assert len({span.trace for span in collector.spans}) == 1
    assert len(collector.spans) == 1 + 2 * (1 + len(STAGES))
    assert sum(shard.attributes["dmqr.failed_queries"] for shard in shards) == 1
    rewriting = [span.attributes for span in collector.spans if span.name == "rewrite"]
    assert sum(span.get("dmqr.errors.not_recorded", 0) for span in rewriting) == 1
    assert sum(span["dmqr.requests"] for span in rewriting) == len(QUERIES)
    assert sum(span.attributes["dmqr.searches"] for span in collector.spans if span.name == "retrieve") == 11
    assert {path for path, _ in collector.requests} == {"/v1/traces"}
    assert not [query for query in QUERIES if query.encode() in collector.bodies]


@pytest.mark.slow
def test_the_environment_of_opentelemetry_holds(job: str, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k-4711")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=night")
    folder = run_in_process(prepared_job(job, "cluster.traces={}"))
    ((path, headers),) = collector.requests
    assert (path, headers["api-key"], headers["content-encoding"]) == ("/v1/traces", "k-4711", "gzip")
    assert collector.resources[0].items() >= {"service.name": "dmqr", "deployment.environment": "night"}.items()
    assert "k-4711" not in (folder / "run.json").read_text()
    monkeypatch.setenv("OTEL_SERVICE_NAME", "searchlog")
    run_in_process(prepared_job(job, "cluster.traces={}", "output=again"))
    assert collector.resources[-1]["service.name"] == "searchlog"
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run_in_process(prepared_job(job, "cluster.traces={}", "output=third"))
    assert len(collector.requests) == 2


def test_a_run_that_fails_says_where(job: str, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Order, table: object) -> object:
        raise ZeroDivisionError("a query's text")

    monkeypatch.setattr(Order, "__call__", broken)
    with pytest.raises(ZeroDivisionError):
        run_in_process(prepared_job(job, sent_to(collector)))
    run = root(collector)
    assert (run.failed, run.attributes["dmqr.outcome"]) == ("ZeroDivisionError", "failed")
    (shard,) = collector.below(run.id)
    assert shard.failed == "not committed"
    stages = collector.below(shard.id)
    assert [span.name for span in stages] == STAGES[: STAGES.index("order") + 1]
    assert [span.failed for span in stages] == [*[None] * (len(stages) - 1), "not finished"]
    assert b"a query's text" not in collector.bodies


def test_a_block_whose_worker_was_lost_is_there_twice(collector: Collector) -> None:
    tracker = ProgressTracker({"read": 0, "rewrite": 2}, limit=4)
    trace = Traces(TraceSettings(endpoint=f"{collector.address}/v1/traces"), {"dmqr.run_id": "small-1"})
    trace.tracker = tracker
    tracker.admit(7, 1)
    done = BlockTotals({}, {})
    tracker.block_finished("read", 7, 5, tracker.block_started("read", 7, 1, "task"), done)
    assert tracker.block_started("rewrite", 7, 5, "one") == 1
    tracker.worker_started("rewrite", "one")  # it was restarted
    time.sleep(0.01)
    spent = BlockTotals({"rewrite": {"general": {"requests": 5}}}, {"error/rewrite/general/truncated": 2})
    tracker.block_finished("rewrite", 7, 5, tracker.block_started("rewrite", 7, 5, "two"), spent)
    trace.committed(Manifest(7, 1, {}, {"queries": 5}, {}))
    tracker.mark_committed(7)
    assert tracker.attempts() == {}
    trace.close(None)
    (shard,) = collector.below(root(collector).id)
    read, lost, again = collector.below(shard.id)
    assert (read.name, read.attributes["dmqr.rows"], read.failed) == ("read", 5, None)
    assert (lost.name, lost.attributes["dmqr.attempt"], lost.attributes["dmqr.worker"]) == ("rewrite", 1, "one")
    assert lost.failed == "not finished"
    assert (again.name, again.attributes["dmqr.attempt"], again.attributes["dmqr.worker"]) == ("rewrite", 2, "two")
    assert (again.failed, again.attributes["dmqr.requests"], again.attributes["dmqr.errors.truncated"]) == (None, 5, 2)
    assert lost.ended < again.began


def test_shards_given_up_for_the_budget_are_there(collector: Collector) -> None:
    tracker = ProgressTracker({"rewrite": 1}, limit=4)
    trace = Traces(TraceSettings(endpoint=collector.address), {})
    trace.tracker = tracker
    tracker.block_started("rewrite", 3, 5, "one")
    tracker.halt(3)
    trace.close(Stopped("stopped-cost", "the budget is spent"))
    assert (root(collector).failed, root(collector).attributes["dmqr.outcome"]) == ("stopped-cost", "stopped")
    (shard,) = collector.below(root(collector).id)
    assert (shard.attributes["dmqr.shard"], shard.failed) == (3, "not committed")
    assert [span.failed for span in collector.below(shard.id)] == ["not finished"]


@pytest.mark.slow
def test_a_collector_that_refuses_or_is_away_disturbs_nothing(
    job: str, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    run_in_process(prepared_job(job, sent_to(collector)))
    assert "did not take all spans" in caplog.text
    monkeypatch.setattr(traces, "_FLUSH_SECONDS", 0.2)
    caplog.clear()
    run_in_process(prepared_job(job, "cluster.traces={endpoint: 'http://127.0.0.1:9'}", "output=again"))
    assert "did not take all spans" in caplog.text


def test_no_traces_unless_asked_for(job: str, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    assert prepared_job(job).prepared.run_id == prepared_job(job, sent_to(collector)).prepared.run_id
    run_in_process(prepared_job(job))
    assert not collector.requests


def test_a_package_that_is_missing_is_named_before_the_run(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"cluster\.traces: package .* is missing; pip install 'dmqr\[traces\]'"):
        prepared_job(job, "cluster.traces={}")
    assert prepared_job(job)


@pytest.mark.parametrize("address", ["collector:4318", "http://user:password@collector", "ftp://collector"])
def test_addresses_that_are_refused(job: str, address: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.traces\.endpoint"):
        load_config(job, [f"cluster.traces={{endpoint: '{address}'}}"])


@pytest.mark.slow
def test_a_run_on_ray(sample_place: Path, tmp_path: Path, collector: Collector) -> None:
    more = {"output": tmp_path / "runs", "cluster.traces": f"{{endpoint: '{collector.address}'}}", "cluster.shard_size": 30}
    run_flags = flags(sample_place, **more)
    folder = finish(start([sys.executable, "-m", "jobs", "run", "configs/quickstart.yaml", *run_flags])).folder
    shards = collector.below(root(collector).id)
    assert [shard.attributes["dmqr.shard"] for shard in sorted(shards, key=lambda one: one.attributes["dmqr.shard"])] == list(
        range(6)
    )
    assert sum(shard.attributes["dmqr.rows"] for shard in shards) == 176
    for shard in shards:
        assert {span.name for span in collector.below(shard.id)} >= {"read", "rewrite", "retrieve", "fuse", "order", "write"}
        assert all(span.failed is None and span.ended > span.began for span in collector.below(shard.id))
    searches = sum(span.attributes.get("dmqr.searches", 0) for span in collector.spans)
    assert searches == sum(row["searches"] for row in rows(folder, "costs"))
    assert {span.attributes["dmqr.run_id"] for span in collector.spans} == {folder.name}
    (line,) = [line for line in map(json.loads, next((folder / "logs").glob("*.jsonl")).open()) if line["event"] == "trace"]
    assert {span.trace for span in collector.spans} == {line["trace_id"]}
