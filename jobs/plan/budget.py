"""The cost of a job until now, the cost of the rest if it goes on as before, and whether `limits.max_cost_usd` pays for it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from cluster import costs
from cluster.errors import ConfigError
from jobs.job.keys import settings_fingerprint
from jobs.job.prepare import Prepared
from jobs.plan.amounts import Amount, amount_text
from jobs.run.driver_costs import DriverCosts
from jobs.run.money import RunMoney
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.starts import driver_spent, known_starts, waited_seconds
from jobs.runs.tally import Tally
from jobs.terminal.formats import money


def spent_usd(prepared: Prepared, done: Tally) -> float | None:
    """Returns the USD that the starts of a job have spent, as its next start counts them; None without prices."""
    if prepared.prices is None:
        return None
    starts = known_starts(json.loads(prepared.storage.get("run.json") or b"{}"), prepared.storage)
    return RunMoney(prepared, starts, DriverCosts()).earlier(done)


def as_before(prepared: Prepared, left: int, done: Tally) -> dict[str, Any] | None:
    """Returns the cost of the `left` queries by the committed shards of a job, else by its last run; None: there are none.

    The time of nodes and driver is part of it, in USD as `around_usd`; waiting for services is not.
    """
    if not left:
        return None
    tally, starts = done, known_starts(json.loads(prepared.storage.get("run.json") or b"{}"), prepared.storage)
    basis = f"by {len(done.shards):,} shards that are committed"
    if not done.shards:
        run, own = last_run(prepared), settings_fingerprint(prepared.identity)  # only log and indexes may differ
        if run is None or not run.manifests or settings_fingerprint(run.record.get("identity", {})) != own:
            return None
        tally, starts, basis = run.tally, run.starts, f"by {run.record['run_id']}, the last run of this kind"
    parts: tuple[costs.Totals, costs.Totals] = {}, {}  # of queries, and of starting workers
    for stage, components in tally.spent.items():
        for key, sums in components.items():
            parts[key.startswith(costs.START_UP)].setdefault(stage, {})[key] = sums
    work, sums = costs.stage_sums(parts[0]), costs.stage_sums(parts[1])
    work_done = work.get("requests", 0) + work.get("searches", 0) + work.get("pairs", 0)
    if reused := work.get("reused", 0):
        basis += f", which took {reused / (work_done + reused):.0%} of its work from the store"
    scale, once = left / max(1, tally.counts["queries"]), 1 / len(tally.starts)  # workers start once more, whatever is left
    usd = around = None
    if (prices := prepared.prices) is not None:
        nodes = sum(sum(prices.node_usd(one.get("node_seconds", {})).values()) for one in starts)
        around = (nodes + prices.usd(driver_spent(starts))) * scale
        usd = prices.usd(parts[0]) * scale + prices.usd(parts[1]) * once + around
    waited, wall = waited_seconds(starts), sum(one["wall_seconds"] for one in starts)
    return {
        "basis": basis,
        "usd": usd,
        "around_usd": around,
        "seconds": work.get("seconds", 0.0) * scale + sums.get("seconds", 0.0) * once,
        "wall_seconds": max(0.0, wall - waited) * scale if starts else None,
        "waited": waited,
        "pools": {name: pool["workers"] for name, pool in (starts[-1].get("pools", {}) if starts else {}).items()},
    }


def last_run(prepared: Prepared) -> RunFolder | None:
    """Returns the newest finished run of this name."""
    with suppress(ConfigError, OSError, ValueError):
        return open_run(prepared.output.url(prepared.config.name))
    return None


def over_budget(planned: dict[str, Any], what: str = "run") -> str | None:
    """Returns a warning if what is spent and missing may cost more than `limits.max_cost_usd`; None otherwise.

    An ablation has the limit for itself.
    """
    job, most = planned if what == "run" else planned[what], planned["max_cost_usd"]
    missing, spent = job.get("missing") or {}, job.get("spent_usd") or 0.0
    if most is None or missing.get("usd") is None:
        return None
    around = (job["as_before"] or {}).get("around_usd") or 0.0
    # a night that finds more in the store than the last one takes a fraction of its time
    usd = Amount(**missing["usd"]).plus(Amount(0, around, around))
    if spent + usd.high <= most:
        return None
    before = f"{money(spent)} are spent, " if spent else ""
    with_around = f" with {money(around)} of nodes and driver" if around else ""
    expected = f"{amount_text(usd, money)}{' more' if spent else ''} are expected{with_around}"
    expected += ", retries apart" if job["left"].get("tries") else ""
    when = "will" if spent + usd.low > most else "may"
    return f"the {what} {when} stop before its end: {before}{expected}, limits.max_cost_usd is {money(most)}"
