"""How much work the arms of an ablation have saved by sharing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.counts import QUANTITIES, cost_quantity, cost_stages
from jobs.runs.folder import RunFolder
from jobs.runs.sums import arm_needs


@dataclass(frozen=True)
class Saving:
    """Work by its kind: of all arms, each alone, and of the ablation.

    `executed` has each distinct request, search and pair once; `reused` of them were taken from the store.
    """

    naive: Mapping[str, int]
    executed: Mapping[str, int]
    reused: Mapping[str, int]

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return {"naive": dict(self.naive), "executed": dict(self.executed), "reused": dict(self.reused)}


def saved(run: RunFolder) -> Saving:
    """Returns what the committed shards of an ablation saved."""
    naive, executed, reused = (dict.fromkeys(QUANTITIES, 0) for _ in range(3))
    arms = [arm["name"] for arm in run.record["ablation"]["arms"]]
    for needs in arm_needs(run.counts, arms).values():
        for need in needs.whole:
            naive[need.quantity] += need.amount
    for kind in QUANTITIES:
        sums = [quantities for stage in cost_stages(kind) for quantities in run.spent.get(stage, {}).values()]
        reused[kind] = int(sum(quantities.get("reused", 0) for quantities in sums))
        executed[kind] = int(sum(quantities.get(cost_quantity(kind), 0) for quantities in sums)) + reused[kind]
    return Saving(naive, executed, reused)
