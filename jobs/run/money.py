"""The spending of a run, and its requests at most.

Of a start's driver that is its wall time by phase, its requests to S3, and the time of the nodes. Of the money, by where it was
spent, the budget grants what is left.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from cluster import costs
from cluster.costs import DRIVER, STORAGE_COMPONENT, Totals, add_totals, added, by_tier
from cluster.prices import Prices
from cluster.storage.s3_client import take_traffic
from jobs.chain.arms.requests import asked_at_most
from jobs.chain.arms.shared_work import Answer, SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.completions import uncommitted
from jobs.chain.pipeline import ASKING
from jobs.job.prepare import Prepared
from jobs.runs.starts import Start, driver_spent
from jobs.runs.tally import Tally
from rewriters.calls import asked_engines
from rewriters.rewriter import Rewriting
from rewriters.steps.settings import RelevanceSettings

COUNT_SECONDS = 10.0  # between two counts of the nodes


class DriverCosts:
    """Accounts for one start, from the driver's first step on. Thread-safe.

    The wall time of the driver is divided among phases without a gap: `start` (checks, Ray), `log` (reading, dedup), `plan`
    (lease, storing the plan), `work` (shards) and `finish`. Nodes are counted now and then; between two counts there were as
    many as their mean.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins the phase `start`; `clock` returns seconds."""
        self._clock, self._lock = clock, threading.Lock()
        self._phase, self._since = "start", clock()
        self._counted_at = self._since
        self._count: Callable[[], Mapping[str, int]] | None = None
        self._nodes: dict[str, int] = {}
        self._node_seconds: dict[str, float] = {}  # until the last count
        self._spent: Totals = {}

    def watch_nodes(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Counts nodes from now on; the present number also holds for the time before."""
        with self._lock:
            self._count, self._nodes = count, dict(count())

    def begin(self, phase: str, dedup_seconds: float = 0.0) -> None:
        """Ends the phase before, and begins another.

        `dedup_seconds` are those of work that other machines have done on the log, in the phase before.
        """
        with self._lock:
            self._end_phase()
            self._phase = phase
            if dedup_seconds:
                add_totals(self._spent, {"dedup": {"@": {"seconds": dedup_seconds}}})

    def spent(self) -> Totals:
        """Returns all until now, as stages and components."""
        with self._lock:
            self._end_phase()
            if traffic := take_traffic():
                add_totals(self._spent, {DRIVER: {STORAGE_COMPONENT: traffic}})
            return added([self._spent])

    def node_seconds(self) -> dict[str, float]:
        """Returns kind of node -> seconds x nodes, until now."""
        with self._lock:
            now = self._clock()
            if self._count is not None and now - self._counted_at >= COUNT_SECONDS:
                nodes = self._nodes
                with contextlib.suppress(Exception):  # Ray's head does not answer: the next count has it
                    nodes = dict(self._count())
                for kind in self._nodes.keys() | nodes.keys():
                    mean = (self._nodes.get(kind, 0) + nodes.get(kind, 0)) / 2
                    self._node_seconds[kind] = self._node_seconds.get(kind, 0.0) + (now - self._counted_at) * mean
                self._nodes, self._counted_at = nodes, now
            since = now - self._counted_at
            kinds = self._nodes.keys() | self._node_seconds.keys()
            return {kind: self._node_seconds.get(kind, 0.0) + since * self._nodes.get(kind, 0) for kind in sorted(kinds)}

    def _end_phase(self) -> None:
        now = self._clock()
        add_totals(self._spent, {DRIVER: {f"{self._phase}@": {"driver_seconds": now - self._since}}})
        self._since = now


class RunMoney:
    """Counts the money of a run beside that which its present workers are granted."""

    def __init__(self, prepared: Prepared, before: Sequence[Start], driver_costs: DriverCosts) -> None:
        self._prices, self._storage, self._driver_costs = prepared.prices or Prices(), prepared.storage, driver_costs
        self._earlier = self._prices.usd(driver_spent(before)) + sum(self._nodes(one.get("node_seconds", {})) for one in before)
        self.limited = prepared.config.limits.max_cost_usd is not None
        self._before = 0.0

    def renew(self, tally: Tally) -> None:
        """Counts all grants until now, and costs of earlier starts without a commit, as spent before."""
        self._before = self._prices.usd(self.total(tally)) - self._prices.usd(_other(tally.spent)) if self.limited else 0.0

    def elsewhere(self, spent: costs.Totals) -> float:
        """Returns the USD of all earlier starts and workers, of the other stages, the driver and the nodes."""
        return self._before + self._prices.usd(_other(spent)) + self.around() if self.limited else 0.0

    def around(self) -> float:
        """Returns the USD until now of the nodes' time and of what the drivers have spent, of all starts."""
        return self._earlier + self._prices.usd(self._driver_costs.spent()) + self._nodes(self._driver_costs.node_seconds())

    def earlier(self, tally: Tally) -> float:
        """Returns the USD of the starts before: `total`, and what their drivers and nodes have cost."""
        return self._prices.usd(self.total(tally)) + self._earlier

    def total(self, tally: Tally) -> costs.Totals:
        """Returns the costs of what is committed, and, with a budget, of stored completions that are not."""
        sums = costs.added([tally.spent])
        for row in uncommitted(self._storage, tally.shards) if self.limited else ():
            if row["text"] is not None:
                quantities = {name: row[name] or 0 for name in costs.COMPLETION_QUANTITIES} | {"requests": row["attempts"]}
                quantities |= by_tier(quantities, row.get("tier"))
                costs.add_totals(sums, {ASKING[0]: {f"{row['request']}@{row['model']}": quantities}})  # of any of them
        return sums

    def _nodes(self, node_seconds: Mapping[str, float]) -> float:
        return sum(self._prices.node_usd(node_seconds).values())


def tries_per_request(rewriting: Rewriting) -> int:
    """Returns the number of further tries of a request (`rewrite.retries`); 0 where all engines are recordings."""
    engines = asked_engines(rewriting.pool, rewriting.select)
    return rewriting.retries if set(engines) - rewriting.answer_once else 0


def most_of_task(arm: Answer, section: str, task: LlmTask) -> int:
    """Returns the requests of an arm's task on results, for a query at most; `section` is its key of the config."""
    if section.startswith("iterate"):
        rounds = arm.tasks["iterate"].rounds
        return rounds.rounds * (1 if section == "iterate" else rounds.documents)
    if section in ("grade", "grade.strips") and arm.grade is not None:
        return arm.grade.documents
    if section.startswith("judge"):
        return task.settings.documents if isinstance(task.settings, RelevanceSettings) else int("answer" in arm.tasks)
    return 1


def most_requests(work: SharedWork) -> int:
    """Returns the requests to LLMs of a query at most, retries of rewriting included."""
    tries = {key: 1 + tries_per_request(reading.asked) for reading in work.readings for key in asked_at_most(reading)}
    of_results = (most_of_task(arm, section, task) for arm in work.answers for section, task in arm.tasks.items())
    return sum(tries.values()) + sum(of_results)


def _other(spent: costs.Totals) -> costs.Totals:
    return {stage: parts for stage, parts in spent.items() if stage not in ASKING}
