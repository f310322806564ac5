"""The money that a run has cost, by where it was spent, of which the budget grants what is left; and its requests at most."""

from collections.abc import Mapping, Sequence

from cluster import costs
from cluster.costs import by_tier
from cluster.prices import Prices
from jobs.chain.arms.requests import asked_at_most
from jobs.chain.arms.shared_work import Answer, SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.completions import uncommitted
from jobs.chain.pipeline import ASKING
from jobs.job.prepare import Prepared
from jobs.run.driver_costs import DriverCosts
from jobs.runs.starts import Start, driver_spent
from jobs.runs.tally import Tally
from rewriters.calls import asked_engines
from rewriters.rewriter import Rewriting
from rewriters.steps.settings import RelevanceSettings


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
