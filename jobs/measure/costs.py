"""What each arm of an ablation costs: alone, and what leaving it out would save; and what the gates of arms save and lose.

An ablation does the work of all arms once, so no arm's cost is measured by itself. It is the number of requests, searches and
pairs that the arm needs (`jobs.runs.sums.arm_needs`), times what one of that kind cost in this ablation: the seconds,
accelerator seconds and tokens of a component (`RunFolder.spent`) over the number that was made, each with all attempts at it.
What was taken from the store is no part of either; a component of which less was made here than was taken from there has no
known cost, nor has an arm that needs it. What earlier stages of other arms have made, such as a grade that its judge needs, is
an arm's work all the same, at what it has cost there. Fusing, ordering, writing, the start-up of workers, the driver and nodes
without work are not divided among arms: they are no part of these costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from cluster.costs import Prices, Totals, add_totals, stage_sums
from jobs.counts import QUANTITIES, MadeWork, by_arm, cost_quantity, cost_stages
from jobs.measure.comparison import Comparison
from jobs.runs.bill import Bill
from jobs.runs.folder import RunFolder
from jobs.runs.gate import GateSaving, gate_saving
from jobs.runs.sums import Need, arm_needs
from jobs.terminal.formats import signed


@dataclass(frozen=True)
class ArmCost:
    """The cost of one arm over all committed queries; what is not known is None.

    `alone_...`: requests that no other arm needs, likewise searches and so on. Judgements of documents are of all arms that
    have them among their first results.
    """

    arm: str
    seconds: float | None
    """Busy time of workers."""
    device_seconds: float | None
    requests: int
    prompt_tokens: float | None
    completion_tokens: float | None
    searches: int
    pairs: int
    rounds: int
    grades: int
    web_searches: int
    answers: int
    judgements: int
    alone_requests: int
    alone_searches: int
    alone_pairs: int
    alone_rounds: int
    alone_grades: int
    alone_web_searches: int
    alone_answers: int
    alone_judgements: int
    standalone_usd: float | None
    """What the arm would cost if it ran alone; None without prices, too."""
    marginal_usd: float | None
    """What leaving it out would save: the cost of the work that no other arm needs."""
    gain_per_usd: float | None
    """Gain of the first measure over the baseline, per USD that the arm costs alone; None where it costs nothing, too."""


def arm_costs(run: RunFolder, prices: Prices | None, gains: Mapping[str, float]) -> list[ArmCost]:
    """Returns the cost of each arm but oracles, in the order of the ablation.

    Args:
        run: an ablation.
        prices: None: no USD.
        gains: arm -> the difference of the first measure to the baseline; an arm without one has no `gain_per_usd`.
    """
    arms = [arm["name"] for arm in run.record["ablation"]["arms"] if not arm["members"]]
    billed = None if prices is None else run.bill(prices)
    found = []
    for arm, needs in arm_needs(run.counts, arms).items():
        cost = cost_of(run, needs.whole)
        sums = None if cost is None else stage_sums(cost)
        usd = usd_of(billed, cost)
        figures: dict[str, Any] = {
            name: None if sums is None else sums.get(name, 0.0)
            for name in ("seconds", "device_seconds", "prompt_tokens", "completion_tokens")
        }
        for quantity in QUANTITIES:
            for name, of in (quantity, needs.whole), (f"alone_{quantity}", needs.alone):
                figures[name] = sum(need.amount for need in of if need.quantity == quantity)
        gain = gains[arm] / usd if usd and arm in gains else None
        saved = usd_of(billed, cost_of(run, needs.alone))
        found.append(ArmCost(arm, **figures, standalone_usd=usd, marginal_usd=saved, gain_per_usd=gain))
    return found


def cost_of(run: RunFolder, needs: Sequence[Need]) -> Totals | None:
    """Returns what is needed at its measured cost; None if that of a part is not known."""
    cost: Totals = {}
    for need in needs:
        made_as = need.made_as or need.quantity
        sums = component_sums(run.spent, made_as, need.component)
        # costs count attempts at a request, and an arm needs it once, at what all of them cost
        made = run.counts[MadeWork(made_as, need.component).key]
        spent = sums.get(cost_quantity(made_as), 0)
        if need.amount and spent <= sums.get("reused", 0):
            return None
        share = need.amount / (made or spent) if need.amount else 0.0
        of = {name: value * share for name, value in sums.items()}
        add_totals(cost, {cost_stages(made_as)[0]: {need.component: of}})
    return cost


def component_sums(spent: Totals, quantity: str, component: str) -> dict[str, float]:
    """Returns what a component has cost, in all stages that do such work."""
    sums: dict[str, float] = {}
    for stage in cost_stages(quantity):
        for name, value in spent.get(stage, {}).get(component, {}).items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def usd_of(billed: Bill | None, cost: Totals | None) -> float | None:
    """Returns the money of a cost; None where one of them is not known."""
    if billed is None or cost is None:
        return None
    return sum(billed.of(stage, key, sums) for stage, components in cost.items() for key, sums in components.items())


@dataclass(frozen=True)
class Loss:
    """The difference of an arm's measure to that of the same arm without a gate, and its 95 % interval."""

    measure: str
    difference: float
    low: float
    """NaN where it is not known, as with fewer than two clusters."""
    high: float

    @property
    def interval(self) -> tuple[float, float] | None:
        """Returns the ends of the interval, where it is known."""
        return None if self.low != self.low else (self.low, self.high)


@dataclass(frozen=True)
class GatedArm:
    """An arm with a gate."""

    arm: str
    saving: GateSaving
    without: str | None
    """The arm that is the same but for its gate; None: there is none."""
    losses: tuple[Loss, ...] = ()
    """By measure; empty without such an arm, or if nothing was measured."""

    @property
    def words(self) -> str:
        """Returns it in words."""
        if self.without is None:
            return f"{self.saving.words}; no arm is the same without a gate"
        found = []
        for one in self.losses:
            ends = "" if one.interval is None else f" ({signed(one.low)} to {signed(one.high)})"
            found.append(f"{one.measure} {signed(one.difference)}{ends}")
        return f"{self.saving.words}; against {self.without}: {', '.join(found) or 'not measured'}"


def gated_arms(run: RunFolder, prices: Prices | None, comparison: Comparison | None) -> list[GatedArm]:
    """Returns the arms of an ablation that have gates, in its order."""
    arms = {arm["name"]: arm for arm in run.record["ablation"]["arms"] if not arm["members"]}
    counts, needs = by_arm(run.counts, arms), arm_needs(run.counts, list(arms))
    billed = None if prices is None else run.bill(prices)
    found = []
    for name, arm in arms.items():
        requests = [need for need in needs[name].whole if need.quantity == "requests"]
        saving = gate_saving(counts[name], sum(need.amount for need in requests), usd_of(billed, cost_of(run, requests)))
        if saving is not None:
            without = arm.get("without_gate")
            found.append(GatedArm(name, saving, without, _losses(comparison, name, without)))
    return found


def _losses(comparison: Comparison | None, arm: str, without: str | None) -> tuple[Loss, ...]:
    if comparison is None or not comparison.frame.keys or not {arm, without} <= set(comparison.frame.arms):
        return ()
    frame = comparison.frame
    pairs = frame.pairs(frame.arms.index(arm), frame.arms.index(str(without)), comparison.margin)
    return tuple(Loss(name, one.difference or 0.0, *(one.interval or (nan, nan))) for name, one in pairs.items())
