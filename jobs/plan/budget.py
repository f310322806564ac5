"""Whether `limits.max_cost_usd` pays for what is left of a job."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cluster.run.shards import Manifest
from jobs.job.prepare import Prepared
from jobs.plan.missing.amounts import Amount, words
from jobs.plan.missing.words import STANDARD_AT_MOST
from jobs.run.driver_costs import DriverCosts
from jobs.run.spending import RunMoney
from jobs.runs.starts import known_starts
from jobs.runs.tally import summed
from jobs.terminal.formats import money


def spent_usd(prepared: Prepared, done: Iterable[Manifest]) -> float | None:
    """Returns the USD that the starts of a job have spent, as its next start counts them; None without prices."""
    if prepared.prices is None:
        return None
    starts = known_starts(json.loads(prepared.storage.get("run.json") or b"{}"), prepared.storage)
    return RunMoney(prepared, starts, DriverCosts()).earlier(summed(done))


def over_budget(planned: dict[str, Any]) -> str | None:
    """Returns a warning if what is spent and what is missing may cost more than `limits.max_cost_usd`; None otherwise."""
    most, missing, expected = planned["max_cost_usd"], planned.get("missing") or {}, planned["expected"] or {}
    if most is None or missing.get("usd") is None:
        return None
    spent, around = planned.get("spent_usd") or 0.0, expected.get("around_usd") or 0.0
    # a night that finds more in the store than the last one takes a fraction of its time
    usd = Amount(**missing["usd"]).plus(Amount(0, around, around))
    if spent + usd.high <= most:
        return None
    before = f"{money(spent)} are spent, " if spent else ""
    with_around = f" with {money(around)} of nodes and driver" if around else ""
    tiers = f", {STANDARD_AT_MOST}" if missing.get("tiers") else ""
    said = f"{words(usd, money)}{' more' if spent else ''} are expected{with_around}{tiers}"
    said += ", tries apart" if planned["left"].get("tries") else ""
    when = "will" if spent + usd.low > most else "may"
    return f"the run {when} stop before its end: {before}{said}, limits.max_cost_usd is {money(most)}"
