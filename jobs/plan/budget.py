"""Whether `limits.max_cost_usd` pays for what is left of a job."""

from __future__ import annotations

import json
from typing import Any

from jobs.job.prepare import Prepared
from jobs.plan.estimate import usd_around
from jobs.plan.missing.amounts import Amount, words
from jobs.run.driver_costs import DriverCosts
from jobs.run.spending import RunMoney
from jobs.runs.starts import Start, known_starts
from jobs.runs.tally import Tally
from jobs.terminal.formats import money


def spent_usd(prepared: Prepared, done: Tally) -> float | None:
    """Returns the USD that the starts of a job have spent, as its next start counts them; None without prices."""
    if prepared.prices is None:
        return None
    return RunMoney(prepared, _starts(prepared), DriverCosts()).earlier(done)


def around_usd(prepared: Prepared, done: Tally, left: int) -> float:
    """Returns the USD of nodes and driver that the `left` queries of a job cost, by its committed shards; 0 without any."""
    if prepared.prices is None or not done.shards:
        return 0.0
    return usd_around(prepared.prices, _starts(prepared)) * left / max(1, done.counts["queries"])


def over_budget(planned: dict[str, Any]) -> str | None:
    """Returns a warning if what is spent and missing may cost more than `limits.max_cost_usd`; None otherwise."""
    return _warning("run", planned, planned["max_cost_usd"], (planned["expected"] or {}).get("around_usd") or 0.0)


def ablation_over_budget(planned: dict[str, Any]) -> str | None:
    """Returns the warning of an ablation, which has the limit for itself; None where it has none."""
    return _warning("ablation", planned["ablation"], planned["max_cost_usd"], planned["ablation"]["around_usd"])


def _starts(prepared: Prepared) -> list[Start]:
    return known_starts(json.loads(prepared.storage.get("run.json") or b"{}"), prepared.storage)


def _warning(job: str, planned: dict[str, Any], most: float | None, around: float) -> str | None:
    missing, spent = planned.get("missing") or {}, planned.get("spent_usd") or 0.0
    if most is None or missing.get("usd") is None:
        return None
    # a night that finds more in the store than the last one takes a fraction of its time
    usd = Amount(**missing["usd"]).plus(Amount(0, around, around))
    if spent + usd.high <= most:
        return None
    before = f"{money(spent)} are spent, " if spent else ""
    with_around = f" with {money(around)} of nodes and driver" if around else ""
    said = f"{words(usd, money)}{' more' if spent else ''} are expected{with_around}"
    said += ", tries apart" if planned["left"].get("tries") else ""
    when = "will" if spent + usd.low > most else "may"
    return f"the {job} {when} stop before its end: {before}{said}, limits.max_cost_usd is {money(most)}"
