"""Estimates of the remaining tokens, time and money of a job.

They are extrapolated from the cost per query of the run's committed shards, else of the newest finished run of the same name
and the same settings (the night before); the time of its nodes and its driver included. Without either, the prompts of some
queries are counted, completions are bounded by `max_tokens`, and searches by the texts of a query; rounds, grades, answers and
judgements are bounded by the settings and the lengths of some documents (`later_steps.py`); how often an answer does not serve
is not known then, so tries of `rewrite.retries` stay apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cluster import costs
from cluster.errors import ConfigError
from jobs.job.keys import settings_fingerprint
from jobs.job.prepare import Prepared
from jobs.plan.later_steps import LaterTokens, any_paid, later_tokens
from jobs.plan.tiers import asked_tiers, at_tiers
from jobs.run.spending import tries_per_request
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.starts import Start, driver_spent, known_starts, waited_seconds
from jobs.runs.tally import Tally
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.normalise import query_id
from rewriters.query import Query
from rewriters.rewriter import Rewriter

SAMPLE = 200  # queries whose prompts are counted


@dataclass(frozen=True)
class Estimate:
    """Sums over the remaining queries; None: unknown."""

    basis: str
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    at_most: bool
    """Whether completion_tokens is an upper bound."""
    tries_apart: int
    """More tries of a request that there may be, and that are in none of the sums."""
    seconds: float | None
    """Busy time, summed over all workers."""
    usd: float | None
    wall_seconds: float | None = None
    """Time on the wall with the pools of the basis, without its waiting for services."""
    pools: str = ""
    """The pools of the basis."""
    without_steps: bool = False
    """Whether requests of rounds, grades, answers and judgements are in no sum: how long documents are is not known."""
    of_steps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of these stages, where they are in the sums by no earlier run -> prompt_tokens and completion_tokens."""
    waited: float = 0.0
    """Seconds in which the basis waited for services; the busy time of the workers that waited is part of `seconds`."""
    by_run: bool = False
    """Whether the basis are shards that are committed, of this run or the last one of its kind."""
    around_usd: float = 0.0
    """Of nodes and the driver; in `usd` where that is known. Their time is that of the basis or the last run, by queries."""

    def values(self) -> dict[str, Any]:
        """Returns the estimate as JSON-able values."""
        return asdict(self)


def estimate(
    prepared: Prepared,
    left: int,
    done: Tally,
    texts: Sequence[str],
    searches: Mapping[str, int] | None = None,
    rewritten: float = 1.0,
) -> Estimate | None:
    """Returns the estimate for the `left` queries; None if none remain or nothing is known about their cost.

    By the committed shards of this run, else by an earlier run, else by some `texts` of queries and the most searches of a
    query by `retriever@model`; `rewritten`: the share of the queries that the gate lets be rewritten.
    """
    if not left:
        return None
    if done.shards:
        record = json.loads(prepared.storage.get("run.json") or b"{}")
        starts = known_starts(record, prepared.storage)
        return _by_tally(prepared, left, done, starts, f"by {len(done.shards):,} shards that are committed")
    run = _previous_run(prepared)
    if run is not None and not mostly_reused(run.tally.spent):
        basis = f"by {run.record['run_id']}, the last run of this kind"
        engine = prepared.config.rewrite.engine
        shared = prepared.config.store is not None and engine is not None and not engine.is_recorded
        basis += "; what the store has costs nothing" if shared else ""
        return _by_tally(prepared, left, run.tally, run.starts, basis, at_most=shared)
    found = _by_tokenizer(prepared, left, texts, searches or {}, rewritten) or _by_searches(prepared, left, searches or {})
    return found if run is None else _with_around(prepared, left, found, run)


def _by_tally(
    prepared: Prepared,
    left: int,
    done: Tally,
    before: Sequence[Start],
    basis: str,
    *,
    at_most: bool = False,
) -> Estimate:
    total, start_up = _split_start_up(done.spent)
    scale = left / max(1, done.counts["queries"])
    sums = {name: value * scale for name, value in costs.stage_sums(total).items()}
    prompt, cached, completion = (round(sums.get(name, 0)) for name in ("prompt_tokens", "cached_tokens", "completion_tokens"))
    starts = len(done.starts)  # the workers start once more, however many queries remain
    once = costs.stage_sums(start_up).get("seconds", 0.0) / starts
    usd: float | None = None
    around = 0.0
    if prepared.prices is not None:
        usd = prepared.prices.usd(at_tiers(total, asked_tiers(prepared))) * scale + prepared.prices.usd(start_up) / starts
        around = usd_around(prepared.prices, before) * scale
        usd += around
    waited = waited_seconds(before)
    wall = sum(one["wall_seconds"] for one in before)
    return Estimate(
        basis, prompt, cached, completion, at_most=at_most, tries_apart=0, seconds=sums.get("seconds", 0.0) + once, usd=usd,
        wall_seconds=max(0.0, wall - waited) * scale if before else None, pools=_pools(before), waited=waited,
        without_steps=False, by_run=True, around_usd=around,
    )  # fmt: skip


def _with_around(prepared: Prepared, left: int, found: Estimate | None, run: RunFolder) -> Estimate | None:
    """Returns an estimate with nodes and driver of the last run, which took from the store most of what is not known by it."""
    if prepared.prices is None:
        return found
    around = usd_around(prepared.prices, run.starts) * left / max(1, run.tally.counts["queries"])
    if not around:
        return found
    by = f"nodes and driver by {run.record['run_id']}, the last run of this kind"
    if found is None:
        return Estimate(by, 0, None, 0, at_most=True, tries_apart=0, seconds=None, usd=around, around_usd=around)
    usd = None if found.usd is None else found.usd + around
    return replace(found, basis=f"{found.basis}; {by}", usd=usd, around_usd=around)


def usd_around(prices: costs.Prices, starts: Sequence[Start]) -> float:
    """Returns the USD of the nodes and the drivers of starts."""
    nodes = sum(sum(prices.node_usd(one.get("node_seconds", {})).values()) for one in starts)
    return nodes + prices.usd(driver_spent(starts))


def _pools(starts: Sequence[Start]) -> str:
    pools = starts[-1].get("pools", {}) if starts else {}
    return ", ".join(f"{name} {of['workers']}" for name, of in pools.items())


def _split_start_up(spent: costs.Totals) -> tuple[costs.Totals, costs.Totals]:
    """Returns the costs of queries and the costs of starting workers."""
    parts: tuple[costs.Totals, costs.Totals] = {}, {}
    for stage, components in spent.items():
        for key, sums in components.items():
            parts[key.startswith(costs.START_UP)].setdefault(stage, {})[key] = sums
    return parts


def _by_tokenizer(
    prepared: Prepared, left: int, texts: Sequence[str], searches: Mapping[str, int], rewritten: float
) -> Estimate | None:
    engines = {"": prepared.engine} | {one.name: one.engine for one in prepared.rewriting.pool if one.engine is not None}
    asked = {name: one for name, one in engines.items() if one is not None and not one.is_recorded}
    later = later_tokens(prepared, left, texts)
    if not texts or not (asked or later):
        return None
    rewriter = Rewriter(prepared.rewriting)
    queries = [Query(query_id(text), text) for text in texts[:SAMPLE]]
    requests = [request for query in queries for request in [rewriter.question(query), *rewriter.requests(query)] if request]
    scale = left * rewritten / min(len(texts), SAMPLE)
    tokens: dict[str, dict[str, float]] = {}  # @model -> its tokens
    sources: dict[str, None] = {}
    for name, one in asked.items():
        of_engine = [request for request in requests if request.engine == name]
        if not of_engine:
            continue
        counter, sums = TokenCounter(one.counted_by), tokens.setdefault(f"x@{one.shown}", {})
        for key, counted in (
            ("prompt_tokens", sum(counter.count(request.prompt) for request in of_engine)),
            ("completion_tokens", sum(request.decoding.get("max_tokens", 0) for request in of_engine)),
        ):
            sums[key] = sums.get(key, 0) + round(counted * scale)
        sources[counter.source] = None
    if not tokens and later is None:
        return None
    by_stage: costs.Totals = {"rewrite": tokens} | ({} if later is None else later.by_stage)
    prompt, completion = (
        int(sum(of[key] for models in by_stage.values() for of in models.values()))
        for key in ("prompt_tokens", "completion_tokens")
    )
    counted = [f"prompts of {min(len(texts), SAMPLE):,} queries counted ({'; '.join(sources)})"] if tokens else []
    basis = "; ".join([*counted, *([] if later is None else [later.basis])])
    usd: float | None = None
    asked_models = {model.removeprefix("x@") for models in by_stage.values() for model in models}
    if (prices := prepared.prices) is not None and asked_models & prices.tokens.keys():
        usd = prices.usd(at_tiers(by_stage, asked_tiers(prepared))) + _price_of(prices, left, searches)
    tries = tries_per_request(prepared.rewriting)
    apart = later is None and any_paid(prepared)
    return Estimate(
        basis, prompt, None, completion, at_most=True, tries_apart=tries, seconds=None, usd=usd, without_steps=apart,
        of_steps=_of_steps(later),
    )  # fmt: skip


def _of_steps(later: LaterTokens | None) -> dict[str, dict[str, int]]:
    """Returns stage -> its tokens by their name."""
    if later is None:
        return {}
    return {
        stage: {"prompt_tokens": tokens, "completion_tokens": later.completion_tokens[stage]}
        for stage, tokens in later.prompt_tokens.items()
    }


def _by_searches(prepared: Prepared, left: int, searches: Mapping[str, int]) -> Estimate | None:
    """Returns the estimate of a job whose only price that is known before it are searches; None without such a price."""
    usd = 0.0 if prepared.prices is None else _price_of(prepared.prices, left, searches)
    if not usd:
        return None
    apart = any_paid(prepared)
    basis = "searches alone, each text of each query once"
    return Estimate(basis, 0, None, 0, at_most=True, tries_apart=0, seconds=None, usd=usd, without_steps=apart)


def _price_of(prices: costs.Prices, left: int, searches: Mapping[str, int]) -> float:
    """Returns the price of the searches of the remaining queries, at most."""
    return prices.usd({"retrieve": {key: {"searches": left * most} for key, most in searches.items()}})


def mostly_reused(spent: costs.Totals) -> bool:
    """Returns whether a stage took more from the store than it made."""
    return any(
        sums.get("reused", 0) > sums.get("requests", 0) + sums.get("searches", 0) + sums.get("pairs", 0)
        for sums in (costs.stage_sums(spent, stage) for stage in spent)
    )


def _previous_run(prepared: Prepared) -> RunFolder | None:
    """Returns the newest finished run of this name, if only its log and its indexes differ."""
    if prepared.output.get(f"{prepared.config.name}/latest.json") is None:
        return None
    try:
        run = open_run(prepared.output.url(prepared.config.name))
    except (ConfigError, OSError, ValueError):
        return None
    same = settings_fingerprint(run.record.get("identity", {})) == settings_fingerprint(prepared.identity)
    return run if run.manifests and same else None
