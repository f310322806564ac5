"""What `plan` says of an ablation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.counts import QUANTITIES
from jobs.plan.saving import planned_saving
from jobs.run.job import Job


def planned_ablation(ablation: Job, queries: int) -> dict[str, Any]:
    """Returns the arms of an ablation and what they share, as JSON-able values.

    Args:
        ablation: checked.
        queries: of the log.
    """
    arms = ablation.compiled.arms
    saving = planned_saving(ablation.compiled, queries)
    return {"arms": len(arms), "folder": ablation.prepared.storage.root} | saving.values()


def ablation_rows(planned: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table of `plan`."""
    yield "ablate", f"{planned['arms']:,} arms over the same queries, each thing that they share done once"
    for kind in QUANTITIES:
        naive, executed = planned["naive"][kind], planned["executed"][kind]
        if naive:
            times = f"{naive / executed:.1f} times less" if executed < naive else "the pairs that arms share are known later"
            yield f"  {kind}", f"up to {executed:,} in place of {naive:,}: {times}"
    yield "  folder", planned["folder"]
