"""The tiers of providers' prices in an estimate.

Tokens are priced by the tier that their engine asks for, whichever has answered before. How many requests will fall back to the
standard tier is not known, so the estimate tells its price, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cluster.costs import Prices, Totals
from cluster.run.pool_sizes import stage_of_pool
from jobs.job.prepare import Prepared
from jobs.run.job import Job
from jobs.runs.tiers import at_tiers
from rewriters.engines.settings import EngineSettings

Tiers = Mapping[tuple[str, str], str | None]  # stage and model -> the tier that is asked for; None: the standard one


class TierPrice(NamedTuple):
    """What costs are at the tiers that are asked for, in USD.

    Attributes:
        usd: The price.
        more: By how much it is higher if all requests fall back to the standard tier; None: no other is asked for.
    """

    usd: float
    more: float | None

    def fallen(self, usd: float, scale: float = 1.0) -> float | None:
        """Returns a price with `scale` times this one in it, if all requests fall back; None: no other tier is asked for."""
        return None if self.more is None else usd + self.more * scale


def asked_tiers(prepared: Prepared) -> Tiers:
    """Returns the tiers of a run's engines at servers; the standard one where engines of a stage and model ask for several."""
    asked = [("rewrite", one) for one in (prepared.engine, *(one.engine for one in prepared.rewriting.pool))]
    asked += [
        ("grade" if key == "web" else key.partition(".")[0], one.engine) for key, one in prepared.steps.of_results.items()
    ]
    return _of_stages([*asked, *_judges(prepared)])


def tiers_of_arms(job: Job) -> Tiers:
    """Returns the tiers of the engines of all arms of a job, as `asked_tiers` does."""
    asked = [(stage_of_pool(pool), one) for pool, engines in job.engines.items() for one in engines]
    return _of_stages([*asked, *_judges(job.prepared)])


def _judges(prepared: Prepared) -> list[tuple[str, EngineSettings]]:
    """Returns the engines of the judge, which is the same for all arms; those of nuggets with it."""
    return [("judge", one.engine) for one in prepared.steps.judge.values()]


def _of_stages(asked: Iterable[tuple[str, EngineSettings | None]]) -> Tiers:
    found: dict[tuple[str, str], set[str | None]] = {}
    for stage, engine in asked:
        if engine is not None and engine.at_server:
            found.setdefault((stage, engine.shown), set()).add(engine.asked_tier)
    return {of: next(iter(tiers)) if len(tiers) == 1 else None for of, tiers in found.items()}


def tier_price(prices: Prices, spent: Totals, tiers: Tiers) -> TierPrice:
    """Returns the price of costs if the tiers had answered that are asked for."""
    usd = prices.usd(at_tiers(spent, tiers))
    more = prices.usd(at_tiers(spent, dict.fromkeys(tiers))) - usd
    return TierPrice(usd, more if any(tiers.values()) else None)


def tier_names(tiers: Tiers) -> tuple[str, ...]:
    """Returns the tiers that are asked for, beside the standard one."""
    return tuple(sorted(set(filter(None, tiers.values()))))
