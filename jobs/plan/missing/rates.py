"""The seconds of searches and pairs, by a run that is finished."""

from __future__ import annotations

from collections.abc import Mapping

from cluster import costs
from cluster.errors import ConfigError
from jobs.counts import GATE_STAGE
from jobs.job.prepare import Prepared
from jobs.plan.missing.amounts import Amount
from jobs.plan.missing.kinds import Kind
from jobs.plan.missing.survey import Component
from jobs.runs.folder import open_run

Rates = Mapping[Component, Mapping[str, float]]


def rates_of(prepared: Prepared, folder: str | None = None) -> Rates:
    """Returns the seconds of a search and of a pair, by a finished run; {} without one.

    Args:
        prepared: A job, whose name the newest finished run has.
        folder: Of a run that says it in its place.
    """
    output, name = prepared.output, prepared.config.name
    if folder is None and output.get(f"{name}/latest.json") is None:
        return {}
    try:
        spent = open_run(folder or output.url(name)).spent
    except (ConfigError, OSError, ValueError):
        return {}
    found = {}
    for stage, components in spent.items():
        for component, sums in components.items():
            made = sums.get("searches", 0) + sums.get("pairs", 0)
            if made and not component.startswith(costs.START_UP):
                each = {name: sums.get(name, 0.0) / made for name in ("seconds", "device_seconds")}
                found[stage, component] = each
    return found


def add_seconds(kind: Kind, rates: Rates) -> None:
    """Adds the seconds of searches or pairs, where they are known; within a factor of two."""
    for component, number in kind.parts.items():
        known = rates.get(component) or (rates.get(("retrieve", component[1])) if component[0] == GATE_STAGE else None)
        for name, each in (known or {}).items():
            kind.quantities.setdefault(name, {})[component] = Amount(
                each * number.low / 2, each * number.expected, 2 * each * number.high
            )
