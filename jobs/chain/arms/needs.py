"""What each arm of an ablation needs, and what of it no other arm does, as its stages count it.

Counts in the manifests, of each arm but oracles:

    arm/<arm>/requests/<request>@<model>      requests that it needs an answer of
    arm/<arm>/searches/<retriever>@<model>    distinct searches of a block's texts; the model is its encoder's, or empty
    arm/<arm>/pairs/<kind>@<model>            pairs of query and document that it has scored
    arm/<arm>/alone/...                       of each, those that no other arm needs: they would not be made without the arm
    made/requests/<request>@<model>           distinct requests that were made here, each once for all attempts at it

An ablation without an arm makes (or takes from earlier ones) fewer requests, searches and pairs by just its `alone` counts. Two
arms may share what no third needs: what leaving out both saves is more than the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

KINDS = {"requests": "rewrite", "searches": "retrieve", "pairs": "rerank"}  # quantity -> value of `costs.stage`
_ALONE = "alone/"


class Need(NamedTuple):
    """A number of requests, searches or pairs of a component, `component@model` in the totals of costs."""

    quantity: str
    component: str
    amount: int


@dataclass(frozen=True)
class ArmNeeds:
    """What an arm needs: all of it, and what no other arm needs."""

    whole: list[Need] = field(default_factory=list)
    alone: list[Need] = field(default_factory=list)


def arm_needs(counts: Mapping[str, int], arms: Sequence[str]) -> dict[str, ArmNeeds]:
    """Returns what each arm needs, from the counts of the manifests."""
    found = {arm: ArmNeeds() for arm in arms}
    for key, count in counts.items():
        first, *parts = key.split("/")
        # a name may hold a slash: weights.general/bm25=0
        names = ("/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)) if first == "arm" else ()
        arm = next((name for name in names if name in found), None)
        if arm is not None:
            rest = key.removeprefix(f"arm/{arm}/")
            quantity, _, component = rest.removeprefix(_ALONE).partition("/")
            if quantity in KINDS:
                needs = found[arm]
                (needs.alone if rest.startswith(_ALONE) else needs.whole).append(Need(quantity, component, count))
    return found
