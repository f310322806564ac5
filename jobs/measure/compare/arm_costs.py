"""What each arm of an ablation costs: alone, and what leaving it out would save.

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

from cluster.costs import Prices, Totals, add_totals, stage_sums
from jobs.counts import QUANTITIES, MadeWork, cost_quantity, cost_stages
from jobs.runs.bill import Bill
from jobs.runs.folder import RunFolder
from jobs.runs.sums import Need, arm_needs


@dataclass(frozen=True)
class ArmCost:
    """The cost of one arm over all committed queries; what is not known is None."""

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
    """Requests to the judge: its judgements of documents are of all arms that have them among their first results."""
    alone_requests: int
    """Those that no other arm needs; likewise searches, pairs and what follows."""
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
        run: An ablation.
        prices: None: no USD.
        gains: Arm -> the difference of the first measure to the baseline; an arm without one has no `gain_per_usd`.
    """
    arms = [arm["name"] for arm in run.record["ablation"]["arms"] if not arm["members"]]
    billed = None if prices is None else run.bill(prices)
    found = []
    for arm, needs in arm_needs(run.counts, arms).items():
        cost = cost_of(run, needs.whole)
        sums = None if cost is None else stage_sums(cost)
        whole, alone = _amounts(needs.whole), _amounts(needs.alone)
        usd = usd_of(billed, cost)
        found.append(
            ArmCost(
                arm=arm,
                seconds=None if sums is None else sums.get("seconds", 0.0),
                device_seconds=None if sums is None else sums.get("device_seconds", 0.0),
                requests=whole["requests"],
                prompt_tokens=None if sums is None else sums.get("prompt_tokens", 0.0),
                completion_tokens=None if sums is None else sums.get("completion_tokens", 0.0),
                searches=whole["searches"],
                pairs=whole["pairs"],
                rounds=whole["rounds"],
                grades=whole["grades"],
                web_searches=whole["web_searches"],
                answers=whole["answers"],
                judgements=whole["judgements"],
                alone_requests=alone["requests"],
                alone_searches=alone["searches"],
                alone_pairs=alone["pairs"],
                alone_rounds=alone["rounds"],
                alone_grades=alone["grades"],
                alone_web_searches=alone["web_searches"],
                alone_answers=alone["answers"],
                alone_judgements=alone["judgements"],
                standalone_usd=usd,
                marginal_usd=usd_of(billed, cost_of(run, needs.alone)),
                gain_per_usd=gains[arm] / usd if usd and arm in gains else None,
            )
        )
    return found


def _amounts(needs: Sequence[Need]) -> dict[str, int]:
    return {quantity: sum(need.amount for need in needs if need.quantity == quantity) for quantity in QUANTITIES}


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
