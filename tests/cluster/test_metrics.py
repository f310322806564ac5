"""Metrics: the table, what the tracker counts of blocks however often they are done, and a recorded scrape."""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cluster.metrics import exporter
from cluster.metrics.exporter import METRICS, RUN_LABELS, Exporter
from cluster.run.progress import ProgressTracker
from cluster.run.snapshot import BlockTotals
from tests.support.cluster.clock import Clock
from tests.support.cluster.metric_names import exposed
from tests.support.waits import until

STAGES = {"read": 0, "rewrite": 2, "rerank": 1}
SCRAPE = Path(__file__).parent / "metrics_scrape.txt"  # of a run of the sample: tests/jobs/run/test_metrics_scraped.py
Series = tuple[str, tuple[tuple[str, str], ...]]


class Kept(Exporter):
    """Keeps what would be exported."""

    def __init__(self) -> None:
        super().__init__("night", "night-0123")
        self.amounts: Counter[Series] = Counter()
        self.gauges: dict[Series, float] = {}
        self.observed: dict[Series, list[float]] = {}

    def record(self, name: str, value: float, **labels: str) -> None:
        assert set(labels) == set(METRICS[name].labels), name
        own = series(name, **labels)
        if METRICS[name].kind == "gauge":
            self.gauges[own] = value
        elif METRICS[name].kind == "histogram":
            self.observed.setdefault(own, []).append(value)
        else:
            assert value > 0  # Ray refuses others
            self.amounts[own] += value  # type: ignore[assignment]


def series(name: str, **labels: str) -> Series:
    return name, tuple(sorted(labels.items()))


def tracker(kept: Kept, clock: Callable[[], float] = time.monotonic) -> ProgressTracker:
    return ProgressTracker(STAGES, limit=9, clock=clock, metrics=kept)


def found_in(shard: int) -> BlockTotals:
    """Returns what the rewriting of a shard finds, whichever worker does it."""
    spent: dict[str, dict[str, dict[str, float]]] = {
        "rewrite": {
            "dmqr@m": {
                "seconds": 3.0,
                "requests": 10 + shard,
                "prompt_tokens": 900,
                "cached_tokens": 50,
                "cache_write_tokens": 30,
                "completion_tokens": 7,
            },
            "dmqr@": {"requests": 2},  # lost
            "start_up@": {"seconds": 20.0},
        }
    }
    counts = {"error/rewrite/keyword/truncated": 2 + shard, "error/rewrite/general/truncated": 1, "failed_queries": 2}
    return BlockTotals(spent, counts)


def test_a_block_counts_when_a_stage_has_finished_it() -> None:
    kept, clock = Kept(), Clock()
    one = tracker(kept, clock.monotonic)
    attempt = one.block_started("read", 0, 1, "t")
    clock.sleep(0.5)
    one.block_finished("read", 0, 8, attempt, BlockTotals({}, {}))
    attempt = one.block_started("rewrite", 0, 8, "w")
    one.heartbeat("rewrite", 0, attempt, 0.5, {"rewrite": {"@m": {"requests": 5}}})
    clock.sleep(4)
    assert set(kept.amounts) == {series("dmqr_queries", stage="read")}
    one.block_finished("rewrite", 0, 8, attempt, found_in(0))
    assert kept.amounts == {
        series("dmqr_queries", stage="read"): 8,
        series("dmqr_queries", stage="rewrite"): 8,
        series("dmqr_requests", component="dmqr", model="m"): 10,
        series("dmqr_requests", component="dmqr", model=""): 2,
        series("dmqr_tokens", model="m", kind="prompt"): 900,
        series("dmqr_tokens", model="m", kind="cached"): 50,
        series("dmqr_tokens", model="m", kind="cache_write"): 30,
        series("dmqr_tokens", model="m", kind="completion"): 7,
        series("dmqr_errors", stage="rewrite", reason="truncated"): 3,
        series("dmqr_failed_queries", stage="rewrite"): 2,
    }
    assert kept.observed == {
        series("dmqr_block_seconds", stage="read"): [0.5],  # no costs: from begin to end
        series("dmqr_block_seconds", stage="rewrite"): [3.0],  # busy, without start-up
    }


EVENTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["start", "finish", "again", "commit"])), max_size=40)


@given(EVENTS)
def test_however_often_a_block_is_done_it_counts_once(events: list[tuple[int, str]]) -> None:
    """Workers die before and after they have finished a block; `again` is a whole block anew."""
    kept = Kept()
    one = tracker(kept)
    attempts: dict[int, int] = {}
    finished, ended, retries = set(), set(), 0
    for shard, what in events:
        if shard in ended:
            continue
        if what in ("start", "again"):
            retries += shard in attempts
            attempts[shard] = one.block_started("rewrite", shard, 8, f"w{shard}")
        if what in ("finish", "again") and shard in attempts:
            one.block_finished("rewrite", shard, 8, attempts[shard], found_in(shard))
            finished.add(shard)
        if what == "commit" and shard in finished:
            one.mark_committed(shard)
            ended.add(shard)
    assert kept.amounts[series("dmqr_requests", component="dmqr", model="m")] == sum(10 + shard for shard in finished)
    assert kept.amounts[series("dmqr_errors", stage="rewrite", reason="truncated")] == sum(3 + shard for shard in finished)
    assert kept.amounts[series("dmqr_queries", stage="rewrite")] == 8 * len(finished)
    assert kept.amounts[series("dmqr_retries", stage="rewrite")] == retries


def test_what_a_block_found_the_second_time_only_is_added() -> None:
    kept = Kept()
    one = tracker(kept)
    for requests, searches in ((10, 4), (13, 3)):
        attempt = one.block_started("rewrite", 0, 8, "w")
        spent: dict[str, dict[str, dict[str, float]]] = {"rewrite": {"a@m": {"requests": requests, "searches": searches}}}
        one.block_finished("rewrite", 0, 8, attempt, BlockTotals(spent, {}))
    assert kept.amounts[series("dmqr_requests", component="a", model="m")] == 13
    assert kept.amounts[series("dmqr_searches", component="a")] == 4


def test_the_gauges_follow_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "LOOK_SECONDS", 0.05)
    kept = Kept()
    one = tracker(kept)
    one.block_started("rewrite", 0, 8, "w0")
    attempt = one.block_started("read", 1, 1, "t")
    one.block_finished("read", 1, 6, attempt, BlockTotals({}, {}))
    expected = {
        series("dmqr_queries_in_flight", stage="rewrite"): 8,
        series("dmqr_queries_waiting", stage="rewrite"): 6,
        series("dmqr_queries_waiting", stage="rerank"): 0,
        series("dmqr_workers", stage="rewrite"): 1,
    }
    until(lambda: {key: kept.gauges.get(key) for key in expected} == expected)
    until(lambda: 0.3 < kept.gauges[series("dmqr_busy_share", stage="rewrite")] < 0.7)  # one of two workers
    assert kept.gauges[series("dmqr_busy_share", stage="rerank")] == 0
    assert 0 <= kept.gauges[series("dmqr_seconds_since_progress")] < 600


def test_the_table_is_what_prometheus_and_ray_take() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"dmqr_[a-z_]+[a-z]", name)
        assert not {*metric.labels} & {*RUN_LABELS, "NodeAddress", "WorkerId"}
        assert list(metric.buckets) == sorted({*metric.buckets})
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert metric.kind == "counter" or all(bound > 0 for bound in metric.buckets)  # Ray refuses others


def test_a_recorded_scrape_has_the_metrics_of_the_table() -> None:
    families = {family.name: family for family in text_string_to_metric_families(SCRAPE.read_text())}
    for name, family in families.items():
        metric = METRICS[name.removeprefix("ray_")]
        assert (family.type, family.documentation) == (metric.kind, metric.about)
        assert {sample.name for sample in family.samples} == {*exposed(name.removeprefix("ray_"))}
        for sample in family.samples:
            own = {label for label in sample.labels if label[0].islower() and not label.startswith("otel_")}
            assert own == {*metric.labels, *RUN_LABELS} | ({"le"} if sample.name.endswith("_bucket") else set())
    rare = {"dmqr_reused", "dmqr_retries", "dmqr_outage_seconds", "dmqr_tokens"}  # recorded answers have no tokens
    assert {f"ray_{name}" for name in METRICS.keys() - rare} <= families.keys()
