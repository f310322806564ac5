"""What each arm of an ablation costs: alone, and beyond what is paid for anyway.

An ablation does the work of all arms once, so no arm's cost is measured by itself. It is the number of requests, searches and
pairs that the arm needs (the manifests' counts), times what one of that kind cost in this ablation: the seconds, accelerator
seconds and tokens of a component (`RunFolder.spent`) over the number that was made. What was reused from an earlier ablation is
no part of either; a component of which nothing was made here has no known cost, nor has an arm that needs it. Fusing, ordering,
writing, the start-up of workers, the driver and nodes without work are not divided among arms: they are no part of these
costs.

Counts that are read, of each arm but oracles:

    arm/<arm>/searches/<retriever>                    distinct searches of the arm alone
    arm/<arm>/pairs, or arm/<arm>/pairs/<component>@<model>    pairs of query and document that it has scored
    arm/<arm>/requests/<request>, or .../<request>@<model>     requests that it needs answered
    arm/<arm>/alone/searches/..., alone/pairs..., alone/requests/...    of these, what no other arm needs

A name without its model stands for the only model that the component was used with; with several its cost is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster.costs import START_UP, Prices, Totals, add_totals, stage_sums
from jobs.run.bill import Bill
from jobs.run.folder import RunFolder
from jobs.tables import ORIGINAL

_STAGES = {"searches": "retrieve", "pairs": "rerank", "requests": "rewrite"}  # counted quantity -> value of `costs.stage`
_ALONE = "alone/"
OTHERS = "the other arms"


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
    standalone_usd: float | None
    """What the arm would cost if it ran alone; None without prices, too."""
    marginal_usd: float | None
    """What it costs beyond `beyond`: the work that no other arm needs, or the difference to arm `original`'s own cost."""
    beyond: str
    """`the other arms`, or, where the counts do not tell what no other arm needs, `original`."""
    gain_per_usd: float | None
    """Gain of the first measure over the baseline, per USD that the arm costs alone; None where it costs nothing, too."""


class Need(NamedTuple):
    """A number of requests, searches or pairs, of a component; an empty component is the only one of its stage."""

    quantity: str
    component: str
    amount: int


def arm_costs(run: RunFolder, prices: Prices | None, gains: Mapping[str, float]) -> list[ArmCost]:
    """Returns the cost of each arm but oracles, in the order of the ablation.

    Args:
        run: An ablation.
        prices: None: no USD.
        gains: Arm -> the difference of the first measure to the baseline; an arm without one has no `gain_per_usd`.
    """
    arms = [arm["name"] for arm in run.record["ablation"]["arms"] if not arm["members"]]
    needs, alone = _needs(run.counts, arms)
    own = {arm: _cost(run.spent, needs[arm]) for arm in arms}
    billed = None if prices is None else run.bill(prices)
    usd = {arm: _usd(billed, own[arm]) for arm in arms}
    separable = any(alone.values())
    found = []
    for arm in arms:
        sums = None if (cost := own[arm]) is None else stage_sums(cost)
        extra = _usd(billed, _cost(run.spent, alone[arm])) if separable else _less(usd[arm], usd.get(ORIGINAL))
        counts = {quantity: sum(need.amount for need in needs[arm] if need.quantity == quantity) for quantity in _STAGES}
        found.append(
            ArmCost(
                arm=arm,
                seconds=None if sums is None else sums.get("seconds", 0.0),
                device_seconds=None if sums is None else sums.get("device_seconds", 0.0),
                requests=counts["requests"],
                prompt_tokens=None if sums is None else sums.get("prompt_tokens", 0.0),
                completion_tokens=None if sums is None else sums.get("completion_tokens", 0.0),
                searches=counts["searches"],
                pairs=counts["pairs"],
                standalone_usd=usd[arm],
                marginal_usd=extra,
                beyond=OTHERS if separable else ORIGINAL,
                gain_per_usd=gains[arm] / spent if (spent := usd[arm]) and arm in gains else None,
            )
        )
    return found


def _needs(counts: Mapping[str, int], arms: Sequence[str]) -> tuple[dict[str, list[Need]], dict[str, list[Need]]]:
    """Returns arm -> what it needs, and arm -> what it alone needs, from the counts of the manifests."""
    needs: dict[str, list[Need]] = {arm: [] for arm in arms}
    alone: dict[str, list[Need]] = {arm: [] for arm in arms}
    longest_first = sorted(arms, key=len, reverse=True)  # a name may hold a slash: weights.general/bm25=0
    for key, count in counts.items():
        arm = next((name for name in longest_first if key.startswith(f"arm/{name}/")), None)
        if arm is not None:
            rest = key.removeprefix(f"arm/{arm}/")
            into = alone if rest.startswith(_ALONE) else needs
            quantity, _, component = rest.removeprefix(_ALONE).partition("/")
            if quantity in _STAGES:
                into[arm].append(Need(quantity, component, count))
    return needs, alone


def _cost(spent: Totals, needs: Sequence[Need]) -> Totals | None:
    """Returns what is needed at its measured cost; None if that of a part is not known."""
    cost: Totals = {}
    for need in needs:
        if not need.amount:
            continue
        stage = _STAGES[need.quantity]
        made = {
            key: sums for key, sums in spent.get(stage, {}).items() if sums.get(need.quantity) and _is_of(key, need.component)
        }
        if len(made) > 1:  # requests whose answers a kill has lost have no model
            made = {key: sums for key, sums in made.items() if not key.endswith("@")}
        if len(made) != 1:
            return None
        ((key, sums),) = made.items()
        share = need.amount / sums[need.quantity]
        add_totals(cost, {stage: {key: {name: value * share for name, value in sums.items()}}})
    return cost


def _is_of(key: str, component: str) -> bool:
    """Returns whether a key of `costs.Totals` is of a component, which may be named with its model or be any but start-up."""
    if key.startswith(START_UP):
        return False
    return component in {"", key, key.partition("@")[0]}


def _usd(billed: Bill | None, cost: Totals | None) -> float | None:
    if billed is None or cost is None:
        return None
    return sum(billed.of(stage, key, sums) for stage, components in cost.items() for key, sums in components.items())


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
