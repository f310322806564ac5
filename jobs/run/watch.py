"""Keeps the state that is shown up to date: sums over what is committed and under way, recent rates, the slowest stage."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from cluster import costs
from cluster.prices import Prices
from cluster.run.progress import ProgressTracker
from cluster.run.shards import Plan
from cluster.run.snapshot import NOTHING, StageProgress
from jobs.runs.sums import by_reason
from jobs.runs.tally import Tally, covered
from jobs.terminal.state import StageState, State

LOOK_SECONDS = 1.0  # between two looks at the progress
RATE_SECONDS = 300.0  # that a rate goes by
BUSY_SECONDS = 30.0  # that `busy` and `slowest` go by,
LEAST_SECONDS = 5.0  # and that they, and a rate, must know at least


def show_committed(state: State, plan: Plan, tally: Tally) -> None:
    """Sets how much of the plan is committed."""
    state.total, state.planned = plan.counts["queries"], len(plan.shards)
    state.done, state.shards = tally.counts["queries"], len(tally.shards)
    state.traffic = covered(plan, tally.counts)


class RecentRates:
    """Rates of the stages in the last minutes."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[str, StageProgress]]] = deque()

    def add(self, now: float, pages: Mapping[str, StageProgress], committed: int) -> None:
        """Takes in the progress; `committed` queries are done in every stage."""
        self._looks.append((now, {name: page._replace(done=committed + page.done) for name, page in pages.items()}))
        while now - self._looks[0][0] > RATE_SECONDS:
            self._looks.popleft()

    def rate(self, stage: str) -> float | None:
        """Returns rows per second since rows have come; None where too little is known, or nothing was to be done."""
        looks = [(at, page) for at, page in self._since_there(stage, RATE_SECONDS) if page.in_flight or page.done]
        if len(looks) < 2 or looks[-1][0] - looks[0][0] < LEAST_SECONDS:
            return None
        (then, before), (now, after) = looks[0], looks[-1]
        idle = after.done == before.done and not after.in_flight and not after.waiting
        return None if idle else max(0.0, (after.done - before.done) / (now - then))

    def busy(self, stage: str) -> float | None:
        """Returns the share of their time in which workers had something under way, since they are there.

        None where too little is known.
        """
        looks = self._since_there(stage)
        if len(looks) < 2 or looks[-1][0] - looks[0][0] < LEAST_SECONDS:
            return None
        (then, before), (now, after) = looks[0], looks[-1]
        return min(1.0, max(0.0, (after.busy_seconds - before.busy_seconds) / (after.workers * (now - then))))

    def slowest(self) -> str | None:
        """Returns the stage that the others wait for.

        Its workers are busiest, more than half of the time, and rows wait before it now and in most of the looks. None where
        there is no such stage, or too little is known.
        """
        busy = {}
        for stage in self._looks[-1][1] if self._looks else {}:
            held = [page.waiting > 0 for _, page in self._since_there(stage)]
            if held and held[-1] and sum(held) * 2 > len(held):
                busy[stage] = self.busy(stage) or 0.0
        name = max(busy, key=lambda name: busy[name], default=None)
        return name if name is not None and busy[name] > 0.5 else None

    def _since_there(self, stage: str, seconds: float = BUSY_SECONDS) -> list[tuple[float, StageProgress]]:
        """Returns the latest looks at a stage since its first worker has started."""
        first = self._looks[-1][0] - seconds if self._looks else 0.0
        return [(at, of[stage]) for at, of in self._looks if at >= first and stage in of and of[stage].ready_workers]


class Watch:
    """Keeps a State up to date with what is committed and the progress of the rest."""

    def __init__(self, prices: Prices | None, state: State, around: Callable[[], float] = lambda: 0.0) -> None:
        """Changes `state` in place; without `prices` it has no money."""
        self._prices, self.state, self._around = prices, state, around
        self.costed_as: Mapping[str, str] = {}
        """Stage -> the value of `costs.stage` in its entries."""
        self._pace, self._looked = RecentRates(), float("-inf")
        self.snapshot = NOTHING
        """The last progress."""
        self.counts: Counter[str] = Counter()
        """Sums of counts over what is committed and in flight."""
        self.spent: costs.Totals = {}
        """Costs of what is committed and in flight."""
        self.judged = 0
        """Queries of `counts` of which it is known whether they are rewritten."""

    def look(self, tracker: ProgressTracker, counts: Mapping[str, int], spent: costs.Totals) -> None:
        """Brings the state up to date, at most once in `LOOK_SECONDS`."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        snapshot = tracker.progress()
        pages = snapshot.stages
        committed = counts.get("queries", 0)
        self._pace.add(now, pages, committed)
        slowest = self._pace.slowest()
        self.state.stages = [
            StageState(
                name, min(self.state.total, committed + page.done), page.in_flight, page.waiting,
                self._pace.rate(name), self._pace.busy(name),
                page.workers, page.ready_workers, name == slowest,
            )
            for name, page in pages.items()
        ]  # fmt: skip
        self._keep_times(pages)
        self.snapshot = snapshot
        self._add_up(counts, spent, pages)

    def last(self, tracker: ProgressTracker) -> None:
        """Takes in the progress at the end of a runner, whose times are kept."""
        self.snapshot = tracker.progress()
        self._keep_times(self.snapshot.stages)

    def still(self, counts: Mapping[str, int], spent: costs.Totals) -> None:
        """Brings the state up to date while nothing is under way."""
        self.state.stages = ()
        self._add_up(counts, spent, {})

    def _keep_times(self, pages: Mapping[str, StageProgress]) -> None:
        busy, queued = dict[str, float](), dict[str, float]()
        for name, page in pages.items():
            stage = self.costed_as.get(name, name)
            busy[stage] = busy.get(stage, 0.0) + page.busy_seconds
            queued[stage] = queued.get(stage, 0.0) + page.queued_seconds
        self.state.busy, self.state.queued = busy, queued
        self.state.worker_seconds = sum(busy.values())

    def _add_up(self, counts: Mapping[str, int], spent: costs.Totals, pages: Mapping[str, StageProgress]) -> None:
        every: Counter[str] = Counter(counts)
        for page in pages.values():
            every.update(page.counts)
        sums = costs.added((spent, *(page.spent for page in pages.values())))
        beyond = pages.get("retrieve")
        self.judged = counts.get("queries", 0) + (beyond.done + beyond.in_flight + beyond.waiting if beyond else 0)
        self.counts, self.spent = every, sums
        state = self.state
        state.errors, state.reasons = every["failed_queries"], by_reason(every)
        state.usd = self._prices.usd(sums) + self._around() if self._prices else None
        quantities = costs.stage_sums(sums)
        state.quantities = {name: quantities.get(name, 0) for name in costs.QUANTITIES}
