"""The cost of each arm of an ablation: alone, and what leaving it out would save; and what the gates of arms save.

An ablation does the work of all arms once, so no arm's cost is measured by itself. It is the number of requests, searches and
pairs that the arm needs (`jobs.runs.sums.arm_needs`), times what one of that kind cost in this ablation: the seconds,
accelerator seconds and tokens of a component (`RunFolder.spent`) over the number that was made, each with all attempts at it.
What was taken from the store is no part of either; a component of which less was made here than was taken from there has no
known cost, nor has an arm that needs it. What earlier stages of other arms have made, such as a grade that its judge needs, is
an arm's work all the same, at what it has cost there. Fusing, ordering, writing, the start-up of workers, the driver and nodes
without work are not divided among arms: they are no part of these costs.
"""

from collections.abc import Sequence
from typing import Any

from cluster.costs import Totals, add_totals, stage_sums
from cluster.prices import Prices
from jobs.counts import MADE_WORK, QUANTITIES, by_arm, cost_quantity, cost_stages
from jobs.runs.bill import Bill
from jobs.runs.folder import RunFolder
from jobs.runs.savings import GateSaving, gate_saving
from jobs.runs.sums import Need, arm_needs

ArmCost = dict[str, Any]
"""The cost of one arm over all committed queries, by name; what is not known is None.

`requests`, `searches` and so on are what the arm needs (judgements of documents: of all arms that have them among their first
results), `alone_...` what no other arm needs. `seconds` are those of workers. `standalone_usd`: if the arm ran alone;
`marginal_usd`: what leaving it out would save.
"""


def arm_costs(run: RunFolder, prices: Prices | None) -> tuple[list[ArmCost], dict[str, GateSaving]]:
    """Returns the cost of each arm but oracles, in the order of the ablation, and arm -> savings, of arms that have a gate.

    Without `prices` there are no USD.
    """
    arms = [arm["name"] for arm in run.arms if not arm["members"]]
    billed, counts = None if prices is None else run.bill(prices), by_arm(run.counts, arms)
    costs: list[ArmCost] = []
    gates: dict[str, GateSaving] = {}
    for arm, needs in arm_needs(run.counts, arms).items():
        cost = cost_of(run, needs.whole)
        sums = None if cost is None else stage_sums(cost)
        names = ("seconds", "device_seconds", "requests", "prompt_tokens", "completion_tokens")
        figures: ArmCost = {"arm": arm} | {name: None if sums is None else sums.get(name, 0.0) for name in names}
        for before, some in ("", needs.whole), ("alone_", needs.alone):
            for quantity in QUANTITIES:
                figures[before + quantity] = sum(need.amount for need in some if need.quantity == quantity)
        figures["standalone_usd"], figures["marginal_usd"] = usd_of(billed, cost), usd_of(billed, cost_of(run, needs.alone))
        costs.append(figures)
        requests = [need for need in needs.whole if need.quantity == "requests"]
        saving = gate_saving(counts[arm], sum(need.amount for need in requests), usd_of(billed, cost_of(run, requests)))
        gates |= {} if saving is None else {arm: saving}
    return costs, gates


def cost_of(run: RunFolder, needs: Sequence[Need]) -> Totals | None:
    """Returns the needed work at its measured cost; None if that of a part is not known."""
    cost: Totals = {}
    for need in needs:
        made_as, sums = need.made_as or need.quantity, dict[str, float]()
        for stage in cost_stages(made_as):  # a component may do such work in several stages
            for name, value in run.spent.get(stage, {}).get(need.component, {}).items():
                sums[name] = sums.get(name, 0.0) + value
        # costs count attempts at a request, and an arm needs it once, at what all of them cost
        made_work = run.counts[MADE_WORK.key(made_as, need.component)]
        spent = sums.get(cost_quantity(made_as), 0)
        if need.amount and spent <= sums.get("reused", 0):
            return None
        share = need.amount / (made_work or spent) if need.amount else 0.0
        parts = {name: value * share for name, value in sums.items()}
        add_totals(cost, {cost_stages(made_as)[0]: {need.component: parts}})
    return cost


def usd_of(billed: Bill | None, cost: Totals | None) -> float | None:
    """Returns the money of a cost; None where one of them is not known."""
    if billed is None or cost is None:
        return None
    return sum(billed.usd_of(stage, key, sums) for stage, components in cost.items() for key, sums in components.items())
