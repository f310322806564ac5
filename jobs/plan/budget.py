"""The cost of a job until now, and whether `limits.max_cost_usd` pays for the rest."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from cluster.errors import ConfigError
from jobs.job.prepare import Prepared
from jobs.plan.amounts import Amount, amount_text
from jobs.run.driver_costs import DriverCosts
from jobs.run.money import RunMoney
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.starts import known_starts
from jobs.runs.tally import Tally
from jobs.terminal.formats import money


def spent_usd(prepared: Prepared, done: Tally) -> float | None:
    """Returns the USD that the starts of a job have spent, as its next start counts them; None without prices."""
    if prepared.prices is None:
        return None
    starts = known_starts(json.loads(prepared.storage.get("run.json") or b"{}"), prepared.storage)
    return RunMoney(prepared, starts, DriverCosts()).earlier(done)


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
    usd = Amount(**missing["usd"])
    if spent + usd.high <= most:
        return None
    before = f"{money(spent)} are spent, " if spent else ""
    expected = f"{amount_text(usd, money)}{' more' if spent else ''} are expected"
    expected += ", retries apart" if job["left"].get("tries") else ""
    when = "will" if spent + usd.low > most else "may"
    return f"the {what} {when} stop before its end: {before}{expected}, limits.max_cost_usd is {money(most)}"
