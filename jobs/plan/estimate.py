"""The work that a job is to pay for, by kind: number, tokens, time and money of what is missing, with bounds."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from cluster import costs
from cluster.costs import by_tier
from cluster.errors import ConfigError
from cluster.prices import Prices
from cluster.run.pool_sizes import Pool
from jobs.chain.pipeline import COSTED
from jobs.counts import GATE_STAGE, QUANTITIES, cost_quantity
from jobs.job.prepare import Prepared, free_models
from jobs.plan.amounts import Amount, total
from jobs.plan.sample import PaidSample
from jobs.plan.survey import Survey
from jobs.plan.tokens import Tokens
from jobs.plan.work import Component, WorkPart, work_of
from jobs.run.draft import PlannedQueries, gold_of_queries
from jobs.run.job import Job
from jobs.runs.folder import open_run


class _Missing(NamedTuple):
    """Missing amount of a component, with its tokens and seconds as far as they are known."""

    component: Component
    part: WorkPart
    number: Amount
    quantities: Mapping[str, Amount]


def missing_of(
    job: Job,
    queries: PlannedQueries,
    done: Collection[int],
    *,
    pools: Mapping[str, Pool],
    phase: Callable[[str], object],
    pay: Callable[[Collection[str]], PaidSample | None] | None = None,
) -> dict[str, Any]:
    """Returns the work that an unfinished job is to pay for, as JSON-able values.

    `done` are the committed shards; `pay` pays for some of the queries of which something is missing.

    Raises:
        DmqrError: An index, a recording or the store cannot be read.
    """
    job = replace(job, gold=gold_of_queries(job.prepared, queries))
    looked = Survey(job, queries, done, pools, phase)
    paid = None if pay is None else pay(looked.lacking["rewrite"] or looked.lacking["retrieve"])
    if paid is not None:
        looked = Survey(job, queries, done, pools, phase)
    prepared, parts = job.prepared, work_of(job.compiled.work)
    tokens, rates = Tokens(job.compiled.work, parts.values(), looked.store), _rates(prepared, paid)
    missing = []
    for component, part in parts.items():
        number = looked.missing(component, part, None if paid is None else paid.work.get(component))
        if part.engine is None:
            quantities = {name: number.within_twice(each) for name, each in rates.get(component, {}).items()}
        else:
            quantities = tokens.quantities(number, part, looked.seen.requests[component]) or {}
        missing.append(_Missing(component, part, number, quantities))
    kinds = {kind: of_kind for kind in QUANTITIES if (of_kind := [one for one in missing if one.part.kind == kind])}
    prices = prepared.prices
    untold = [kind for kind, of in kinds.items() if _sum_of("prompt_tokens", (one for one in of if one.part.engine)) is None]
    free = [] if prices is None else free_models(prepared.config, prices, prepared.rewriting.pool)
    apart = ["the time of nodes and driver"] if prices is not None and (prices.node_hour or prices.driver_hour) else []
    return {
        "kinds": {kind: _values(QUANTITIES[kind], of, looked, prices) for kind, of in kinds.items()},
        "queries": looked.left,
        "looked": looked.looked("rewrite"),
        "usd": None if prices is None else _usd(missing, prices).values(),
        "unpriced": [*untold, *(f"tokens of {model} (no price)" for model in free), *apart],
    } | ({} if paid is None else {"sample": {"folder": paid.folder, "queries": paid.queries, "usd": paid.usd}})


def _values(stage: str, missing: Collection[_Missing], looked: Survey, prices: Prices | None) -> dict[str, Any]:
    unseen, reason = looked.unseen
    notes = [f"not looked up: {reason}"] if COSTED.index(stage) >= unseen else []
    notes += ["further rounds in the upper bound alone"] if any(one.part.in_rounds for one in missing) else []
    names = ("prompt_tokens", "completion_tokens") if any(one.part.engine for one in missing) else ()
    sums = {name: _sum_of(name, missing) for name in (*names, "seconds")}
    return {
        "number": total(one.number for one in missing).values(),
        "reused": round(sum(looked.stored(one.component) for one in missing)),
        "about": looked.looked(stage) < looked.left,
        "note": "; ".join(notes),
        "usd": None if prices is None else _usd(missing, prices).values(),
    } | {name: None if amount is None else amount.values() for name, amount in sums.items()}


def _sum_of(quantity: str, missing: Iterable[_Missing]) -> Amount | None:
    """Returns the sum of a quantity; None: it is not known of some component of which there may be any."""
    needed = [one for one in missing if one.number.high]
    return total(one.quantities[quantity] for one in needed) if all(quantity in one.quantities for one in needed) else None


def _usd(missing: Iterable[_Missing], prices: Prices) -> Amount:
    """Returns the price of tokens, by the tier that is asked for, of searches, and of work whose seconds are known."""
    ends: list[costs.Totals] = [{}, {}, {}]
    for (stage, name), part, number, quantities in missing:
        for end, sums in enumerate(ends):
            known = {quantity: amount[end] for quantity, amount in quantities.items()}
            known |= {cost_quantity(part.kind): number[end]}
            if part.engine is not None:
                known |= by_tier(known, part.engine.settings.asked_tier)
            model = "" if part.engine is None else f"@{part.engine.settings.shown}"
            sums.setdefault(stage, {})[name + model] = known
    return Amount(*map(prices.usd, ends))


def _rates(prepared: Prepared, paid: PaidSample | None) -> dict[Component, dict[str, float]]:
    """Returns the seconds of a search and of a pair, by what was paid for, else by the newest finished run of the name."""
    spent, rates = costs.Totals(), dict[Component, dict[str, float]]()
    with suppress(ConfigError, OSError, ValueError):  # no run of the name is finished
        spent = open_run(prepared.output.url(prepared.config.name) if paid is None else paid.folder).spent
    for stage, components in spent.items():
        for component, sums in components.items():
            count = sums.get("searches", 0) + sums.get("pairs", 0)
            if count and not component.startswith(costs.START_UP):
                rates[stage, component] = {one: sums.get(one, 0.0) / count for one in ("seconds", "device_seconds")}
    return {(GATE_STAGE, one): of for (stage, one), of in rates.items() if stage == "retrieve"} | rates
