"""What a job is to pay for: number, tokens, work and money of what is missing, with bounds where answers are not there yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from cluster.run.pool_sizes import Pool
from jobs.chain.arms.opened import AnsweredBy
from jobs.chain.arms.requests import as_made, key_in_reading, most_requests
from jobs.chain.arms.shared_work import Answer, SharedWork
from jobs.chain.journal import Key
from jobs.chain.store.files import Space
from jobs.chain.store.spaces import kept_spaces
from jobs.job.prepare import free_models
from jobs.plan.later_steps import later_tokens
from jobs.plan.missing.amounts import NOTHING, Amount, exactly, of_others, of_unlike
from jobs.plan.missing.answers import cost_of
from jobs.plan.missing.kinds import GENERATIONS, OF_WEB, PAIRS, SEARCHES, Kind, Missing, Scale, add_cost, price_of, wall_seconds
from jobs.plan.missing.rates import Rates, add_seconds, rates_of
from jobs.plan.missing.reasons import UNKNOWN, StoredQueries
from jobs.plan.missing.steps import steps
from jobs.plan.missing.survey import ByComponent, Component, Surveyed
from jobs.plan.tiers import tiers_of_arms
from jobs.plan.work import searches_by_name
from jobs.run.job import Job

UNKEPT = "lists that are not kept"


class Paid(Protocol):
    """What some of the queries with missing answers have cost."""

    @property
    def folder(self) -> str:
        """Returns the folder of their run."""

    @property
    def searches(self) -> ByComponent:
        """Returns their searches."""

    @property
    def pairs(self) -> ByComponent:
        """Returns their pairs."""


def expected(
    job: Job,
    looked: Surveyed,
    pools: Mapping[str, Pool],
    rewritten: float = 1.0,
    paid: Paid | None = None,
    texts: Sequence[str] = (),
) -> Missing:
    """Returns what a job is to pay for.

    Args:
        job: The job.
        looked: What was found of it in the store.
        pools: Its workers.
        rewritten: The share of the queries that the gate lets be rewritten, of those of which it is not known.
        paid: A sample of the queries of which something is missing.
        texts: Of some queries.
    """
    config, work = job.prepared.config, job.compiled.work
    stored = StoredQueries(looked.store, kept_spaces(config, work))
    rates, tiers = rates_of(job.prepared, None if paid is None else paid.folder), tiers_of_arms(job)
    found = Missing(
        {
            GENERATIONS: _generations(work, looked, stored, rewritten),
            SEARCHES: _searches(job, looked, stored, rates, paid),
            PAIRS: _pairs(work, looked, stored, rates, paid),
            **steps(work, looked, stored, later_tokens(job.prepared, 1, texts)),
            **_of_web(work, looked, rates),
        },
        looked.left,
        looked.looked,
    )
    prices = job.prepared.prices
    if prices is not None:
        found.free_models = free_models(config, prices, job.prepared.rewriting.pool)
    for kind in found.kinds.values():
        kind.wall_seconds = wall_seconds([kind], pools)
        kind.usd = None if prices is None else price_of(prices, kind, tiers)
    found.wall_seconds = wall_seconds(found.kinds.values(), pools)
    return found


def _generations(work: SharedWork, looked: Surveyed, stored: StoredQueries, rewritten: float) -> Kind:
    seen, kind = looked.seen, Kind(drawn=not looked.knows_all("answers"))
    engines = {one.key: one for reading in work.readings for one in reading.engines.values()}
    most = _most_requests(work)
    scale = Scale(looked)
    kind.add_stored(scale, seen.reused["rewrite"])
    for engine, name in sorted({*most, *((engine, name) for _, engine, name in seen.requests)}):
        of_query = most[engine, name]
        counted, doubtful = (of["rewrite", engine, name] for of in (seen.requests, seen.doubtful))
        open_type = len(seen.typeless) * of_query
        number = Amount(counted - doubtful, counted, counted - doubtful + max(doubtful, open_type))
        ungated = looked.ungated * of_query
        number = scale.of(number.plus(Amount(0, ungated * rewritten, ungated)), of_query)
        if not number.high:
            continue
        by: AnsweredBy = engines[engine]
        component = "rewrite", f"{name}@{by.settings.shown}"
        before = kind.parts.get(component, NOTHING)
        kind.parts[component] = before.plus(number)
        add_cost(kind, component, cost_of(number, by.settings, by.space, name, seen.asked[engine, name], stored))
    kind.why = stored.answers(looked.some("answers"), seen.prompts)
    return kind


def _searches(job: Job, looked: Surveyed, stored: StoredQueries, rates: Rates, paid: Paid | None) -> Kind:
    kind, scale = Kind(note=looked.blind), Scale(looked)
    plain = looked.unfollowed
    kept = _kept_lists(job, stored)
    kind.why = stored.lists(looked.some("lists")) if kept else Counter({UNKEPT: looked.looked} if looked.looked else {})
    kind.drawn = not (looked.knows_all("lists") if kept else scale.whole)
    for name, most in sorted(searches_by_name(job.compiled, before_rounds=True).items()):
        component = "retrieve", name
        if looked.blind:
            kind.parts[component] = scale.of(Amount(0, looked.looked * most, looked.looked * most), most)
            continue
        new = _share_new(kind.why) if name in kept else 1.0
        followed, first = looked.searches, looked.first_searches
        known = sum(followed.missing.get(component, ())) + sum(first.missing.get(component, ()))
        others = of_others(followed.of(followed.missing, component), plain, most)
        whole = of_unlike(followed.of(followed.every, component), looked.unanswered, most)
        counted = sum(first.every.get(component, ()))
        # of a query that was asked before, the texts of a new answer may be those of the old one
        more = Amount(*(max(0.0, one - counted) for one in (whole.low * new, whole.expected, whole.high)))
        if paid is not None:
            less = sum(first.missing.get(component, ()))
            like_paid = of_others(paid.searches.of(paid.searches.missing, component), looked.unanswered, most)
            more = Amount(*(max(0.0, one - less) for one in like_paid))
        ungated = looked.ungated * most
        number = exactly(known).plus(others).plus(more).plus(Amount(0, ungated, ungated))
        kind.parts[component] = scale.of(number, most)
        kind.add_stored(scale, _reused(followed, component), looked.followed, plain)
        kind.add_stored(scale, _reused(first, component))
    for component, of_gate in looked.gate_searches.missing.items():
        kind.parts[component] = scale.of(exactly(sum(of_gate)), 1)
        kind.add_stored(scale, _reused(looked.gate_searches, component))
    add_seconds(kind, rates)
    return kind


def _pairs(work: SharedWork, looked: Surveyed, stored: StoredQueries, rates: Rates, paid: Paid | None) -> Kind:
    kind, scale = Kind(note=looked.blind or looked.unscored), Scale(looked)
    plain = looked.unfollowed
    reach = looked.listed / looked.followed if looked.followed else 0.0  # of those with all answers, the part with all lists
    alike, rest = plain * reach, looked.looked - looked.listed - plain * reach
    new = _share_new(stored.scores(looked.some("lists")))
    for component, most in sorted(_most_pairs(work).items()):
        if kind.note:
            kind.parts[component] = scale.of(Amount(0, looked.looked * most, looked.looked * most), most)
            continue
        missing, every = (looked.pairs.of(of, component) for of in (looked.pairs.missing, looked.pairs.every))
        number = Amount(sum(missing), sum(missing), sum(missing)).plus(of_others(missing, alike, most))
        of_new, of_known = of_unlike(every, rest * new, most), of_unlike(every, rest * (1 - new), most)
        others = of_new.plus(Amount(0, of_known.expected, rest * (1 - new) * most))
        if paid is not None:
            others = of_others(paid.pairs.of(paid.pairs.missing, component), rest, most)
        number = number.plus(others)
        kind.parts[component] = scale.of(number, most)
        kind.add_stored(scale, _reused(looked.pairs, component), looked.listed, alike)
    add_seconds(kind, rates)
    kind.why, kind.drawn = stored.scores(looked.some("pairs")), bool(kind.note) or not looked.knows_all("pairs")
    return kind


def _of_web(work: SharedWork, looked: Surveyed, rates: Rates) -> dict[str, Kind]:
    """Returns the searches of the web of queries whose results are graded as too poor; nothing where there are none."""
    kind, scale = Kind(note="it is asked where graded results do not suffice"), Scale(looked)
    for search in {one.web_search.space: one.web_search for one in work.answers if one.web_search is not None}.values():
        for name, model in search.search_names.items():
            component = "web", f"{name}@{model or ''}"
            number = scale.of(Amount(0, looked.looked, looked.looked), 1)
            kind.parts[component] = kind.parts.get(component, NOTHING).plus(number)
    add_seconds(kind, rates)
    return {OF_WEB: kind} if kind.parts else {}


def _reused(of: ByComponent, component: Component) -> int:
    return sum(of.every.get(component, ())) - sum(of.missing.get(component, ()))


def _share_new(why: Counter[str]) -> float:
    """Returns the share of the queries of which nothing is stored that counts: whatever their texts are, all is to be made."""
    return sum(why[one] for one in UNKNOWN) / why.total() if why else 0.0


def _kept_lists(job: Job, stored: StoredQueries) -> set[str]:
    """Returns the retrievers, under the names they are counted by, whose lists the store keeps."""
    kept = [one for one in job.compiled.work.retrievers.values() if stored.keeps(Space("lists", one.space))]
    return {f"{counted}@{model or ''}" for one in kept for counted, model in one.search_names.items()}


def _most_requests(work: SharedWork) -> Counter[tuple[str, str]]:
    """Returns the requests of a query at most, by key of the engine and name."""
    found: dict[Key, tuple[str, str]] = {}
    for reading in work.readings:
        for one in most_requests(reading.rewriting, reading.asked):
            made = as_made(reading, one)
            found[key_in_reading(reading, one)] = made.engine, made.name
    return Counter(found.values())


def _most_pairs(work: SharedWork) -> Counter[Component]:
    """Returns the pairs of a query at most; how many arms share shows itself later."""
    found: Counter[Component] = Counter()
    for answer in work.answers:
        if answer.reranker is not None:
            found[_pairs_of(work, answer)] += answer.candidates
    return found


def _pairs_of(work: SharedWork, answer: Answer) -> Component:
    """Returns under what the pairs of an answer with a reranker are counted."""
    assert answer.reranker is not None
    by = work.rerankers[answer.reranker]
    return "rerank", f"{by.settings.counted_as}@{by.model}"
