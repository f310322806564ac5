"""The gates of an ablation's arms: what each saves, and what it loses against the same arm without a gate."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.costs import Prices
from jobs.counts import by_arm
from jobs.measure.compare.arm_costs import cost_of, usd_of
from jobs.measure.compare.difference import Comparison
from jobs.runs.folder import RunFolder
from jobs.runs.gate import GateSaving, gate_saving
from jobs.runs.sums import arm_needs
from jobs.terminal.formats import signed


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
    if comparison is None or without is None or not comparison.frame.keys:
        return ()
    frame = comparison.frame
    if arm not in frame.arms or without not in frame.arms:
        return ()
    places = frame.arms.index(arm), frame.arms.index(without)
    tests = {name: frame.difference_test([places], n) for n, name in enumerate(frame.measures)}
    return tuple(Loss(name, float(test.mean[0]), float(test.low[0]), float(test.high[0])) for name, test in tests.items())
