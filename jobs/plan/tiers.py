"""The tiers of providers' prices in an estimate.

Tokens are priced by the tier that `args.service_tier` of their engine names, whichever has answered before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.costs import Totals
from cluster.run.pool_sizes import stage_of_pool
from cluster.token_prices import by_tier, without_tiers
from jobs.job.prepare import Prepared
from jobs.run.job import Job
from rewriters.engines.settings import EngineSettings

Tiers = Mapping[tuple[str, str], str | None]  # stage and model -> the tier that is asked for; None: the standard one


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
    """Returns the engines of the judge, which is the same for all arms."""
    return [("judge", one.engine) for one in prepared.steps.judge.values()]


def _of_stages(asked: Iterable[tuple[str, EngineSettings | None]]) -> Tiers:
    found: dict[tuple[str, str], set[str | None]] = {}
    for stage, engine in asked:
        if engine is not None and engine.at_server:
            found.setdefault((stage, engine.shown), set()).add(engine.asked_tier)
    return {of: next(iter(tiers)) if len(tiers) == 1 else None for of, tiers in found.items()}


def at_tiers(spent: Totals, tiers: Tiers) -> Totals:
    """Returns costs as if the tiers had answered that are asked for; those of other stages and models stay."""
    found: Totals = {}
    for stage, components in spent.items():
        for key, sums in components.items():
            of = stage, key.partition("@")[2]
            plain = without_tiers(sums)
            found.setdefault(stage, {})[key] = plain | by_tier(plain, tiers[of]) if of in tiers else sums
    return found
