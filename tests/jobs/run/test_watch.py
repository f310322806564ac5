"""From the ledger to the display: rates, what is busy and what is slowest, and sums in which nothing is counted twice."""

from typing import Any

import pytest

from cluster.costs import Totals
from cluster.prices import Prices
from cluster.run.snapshot import Snapshot, StageProgress
from jobs.run.watch import BUSY_SECONDS, LEAST_SECONDS, RecentRates, Watch
from jobs.terminal.state import State

NOTHING: tuple[Totals, dict[str, int]] = ({}, {})


def page(
    done: int = 0, at_work: int = 0, waiting: int = 0, busy: float = 0.0, workers: int = 1, there: int = 1
) -> StageProgress:
    return StageProgress(done, at_work, waiting, busy, workers, there, *NOTHING)


# ---------------------------------------------------------------- rates


def test_a_rate_is_that_of_the_last_minutes_since_rows_have_come() -> None:
    pace = RecentRates()
    for second in range(600):  # ten a second, then one
        done = 10 * min(max(0, second - 100), 200) + max(0, second - 300)
        pace.add(float(second), {"rewrite": page(done, at_work=5 * (second >= 100))}, 0)
        if second < 100 + LEAST_SECONDS:
            assert pace.rate("rewrite") is None
        if second in (110, 300):
            assert pace.rate("rewrite") == 10
    assert pace.rate("rewrite") == pytest.approx(1, abs=0.04)


def test_committed_rows_are_done_in_every_stage() -> None:
    pace = RecentRates()
    for second in range(20):  # what leaves the ledger is committed
        pace.add(float(second), {"write": page(5 if second % 2 else 0, at_work=1)}, 5 * (second - second % 2))
    assert pace.rate("write") == pytest.approx(5, rel=0.1)


def test_a_stage_that_has_nothing_to_do_has_no_rate() -> None:
    pace = RecentRates()
    for second in range(400):
        pace.add(float(second), {"read": page(10 * min(second, 20), at_work=int(second < 20))}, 0)
        if second == 70:
            assert pace.rate("read") is not None
    assert pace.rate("read") is None
    assert pace.rate("unheard") is None


# ---------------------------------------------------------------- busy, slowest


def test_busy_is_the_share_of_all_workers_over_the_last_seconds() -> None:
    pace = RecentRates()
    for second in range(100):
        pace.add(float(second), {"rerank": page(busy=2.0 * min(second, 60) + 0.5 * max(0, second - 60), workers=2)}, 0)
        if second < LEAST_SECONDS:
            assert pace.busy("rerank") is None
        if second == 60:
            assert pace.busy("rerank") == 1
    assert pace.busy("rerank") == pytest.approx(0.25)
    assert BUSY_SECONDS < 39


def test_a_worker_that_starts_is_not_idle() -> None:
    pace = RecentRates()
    for second in range(20):
        pace.add(float(second), {"rerank": page(busy=float(max(0, second - 10)), there=int(second >= 10))}, 0)
    assert pace.busy("rerank") == 1


def slowest(*looks: dict[str, StageProgress]) -> str | None:
    """A look each second; `busy` of the pages is a share here."""
    pace = RecentRates()
    for second, pages in enumerate(looks):
        summed = {name: one._replace(busy_seconds=one.busy_seconds * one.workers * second) for name, one in pages.items()}
        pace.add(float(second), summed, 0)
    return pace.slowest()


def test_the_slowest_is_the_busiest_before_which_rows_wait() -> None:
    pages = {"rewrite": page(busy=0.9, waiting=5), "retrieve": page(busy=1.0), "rerank": page(busy=0.99, waiting=5, workers=4)}
    assert slowest(*[pages] * 20) == "rerank"
    assert slowest(*[pages | {"rerank": page(busy=0.99)}] * 20) == "rewrite"


@pytest.mark.parametrize(
    "looks",
    [
        [],
        [{}],
        [{"rewrite": page(busy=1.0, waiting=5)}] * 5,  # too little is known
        [{"rewrite": page(busy=1.0)}] * 20,  # nothing waits
        [{"rewrite": page(busy=0.4, waiting=5)}] * 20,  # it waits for something else
        [{"rewrite": page(busy=1.0, waiting=0)}] * 15 + [{"rewrite": page(busy=1.0, waiting=9)}] * 5,  # only just now
        [{"rewrite": page(busy=1.0, waiting=9)}] * 15 + [{"rewrite": page(busy=1.0, waiting=0)}] * 5,  # no longer
        [{"rewrite": page(busy=1.0, waiting=9, there=0)}] * 20,  # its workers start
    ],
    ids=["never", "no looks", "short", "nothing waits", "idle", "new", "over", "starting"],
)
def test_nothing_is_called_slowest_without_reason(looks: list[dict[str, StageProgress]]) -> None:
    assert slowest(*looks) is None


# ---------------------------------------------------------------- sums


class Runner:
    """A runner whose progress the test writes."""

    def __init__(self) -> None:
        self.now: dict[str, StageProgress] = {}
        self.asked = 0

    def progress(self) -> Snapshot:
        self.asked += 1
        return Snapshot(self.now, 0, 0, [], [])


def test_what_is_under_way_is_added_to_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    state, runner = State(total=100), Runner()
    anything: Any = runner
    watch = Watch(Prices(cpu_worker_hour=3.6, tokens={"m": {"prompt": 1.0, "completion": 10.0}}), state)
    counts = {"queries": 20, "failed_queries": 1, "error_queries/rewrite/truncated": 2, "error_queries/fuse/no_hits": 9}
    spent: Totals = {"rewrite": {"dmqr@m": {"seconds": 1000.0, "prompt_tokens": 500_000, "requests": 20}}}
    under_way: Totals = {"rewrite": {"dmqr@m": {"prompt_tokens": 500_000, "completion_tokens": 100_000, "requests": 10}}}
    found = {"failed_queries": 2, "error_queries/rewrite/truncated": 1, "error_queries/rewrite/echo": 4}
    runner.now = {
        "rewrite": StageProgress(10, 5, 3, 4.0, 2, 1, under_way, found),
        "retrieve": StageProgress(4, 5, 1, 4.0, 1, 1, {}, {}),
        "rerank": StageProgress(0, 10, 0, 4.0, 1, 1, {"rerank": {"cross_encoder@r": {"pairs": 40}}}, {}),
    }
    watch.look(anything, counts, spent)
    assert [(s.name, s.done, s.at_work, s.waiting, s.there, s.workers) for s in state.stages] == [
        ("rewrite", 30, 5, 3, 1, 2),
        ("retrieve", 24, 5, 1, 1, 1),
        ("rerank", 20, 10, 0, 1, 1),
    ]
    assert (state.errors, list(state.reasons.items())) == (3, [("echo", 4), ("truncated", 3)])
    assert state.usd == pytest.approx(1.0 + 1.0 + 1.0)
    assert state.quantities == {
        "requests": 30, "prompt_tokens": 1_000_000, "cached_tokens": 0, "cache_write_tokens": 0,
        "completion_tokens": 100_000, "searches": 0, "saved": 0,
        "pairs": 40, "reused": 0,
    }  # fmt: skip

    now[0] += 0.5
    watch.look(anything, counts, spent)
    assert runner.asked == 1  # once in a second
    now[0] += 0.5
    watch.look(anything, counts, spent)
    assert (runner.asked, state.errors, state.quantities["requests"]) == (2, 3, 30)  # and nothing adds up twice
    assert spent == {"rewrite": {"dmqr@m": {"seconds": 1000.0, "prompt_tokens": 500_000, "requests": 20}}}
    assert watch.judged == 20 + 10  # of the moment of `counts`: what is committed later is still among what is under way

    watch.still(counts, spent)
    assert watch.judged == 20
    assert (state.stages, state.errors, state.quantities["requests"]) == ((), 1, 20)


def test_times_are_summed_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    state, runner = State(), Runner()
    anything: Any = runner
    watch = Watch(None, state)
    watch.costed_as = {"score": "rerank", "rewrite_2": "rewrite"}
    runner.now = {name: page(busy=4.0)._replace(queued_seconds=1.0) for name in ("rewrite", "rewrite_2", "score")}
    watch.look(anything, {}, {})
    runner.now = {name: one._replace(queued_seconds=1.5) for name, one in runner.now.items()}
    watch.last(anything)  # however soon after the last look
    assert (state.busy, state.queued) == ({"rewrite": 8.0, "rerank": 4.0}, {"rewrite": 3.0, "rerank": 1.5})
    assert state.worker_seconds == 12.0


def test_without_prices_there_is_no_money() -> None:
    state = State()
    Watch(None, state).still({}, {"rewrite": {"dmqr@m": {"seconds": 9.0}}})
    assert state.usd is None
