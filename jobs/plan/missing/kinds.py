"""Kinds of work with what is missing of them: number, tokens, work and money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster import costs
from cluster.costs import Prices
from cluster.run.pool_sizes import Pool, stage_of_pool
from jobs.counts import GATE_STAGE
from jobs.plan.missing.amounts import NOTHING, UNSEEN, Amount, spread_between, total
from jobs.plan.missing.answers import RequestCost
from jobs.plan.missing.survey import Component, Surveyed
from jobs.plan.tiers import Tiers, at_tiers

GENERATIONS, SEARCHES, PAIRS, OF_WEB = "generations", "searches", "pairs", "web searches"
_COUNTED = {"retrieve": "searches", GATE_STAGE: "searches", "web": "searches", "rerank": "pairs"}
"""Stage -> what its costs count; else requests."""


@dataclass
class Kind:
    """What is missing of one kind of work."""

    parts: dict[Component, Amount] = field(default_factory=dict)
    """How many, by what they are costed under."""
    reused: float = 0
    """Those that the store has, of what all queries that are left are known to need."""
    about: bool = False
    """Whether `reused` is extrapolated."""
    why: Counter[str] = field(default_factory=Counter)
    """Reason -> queries of which some are missing, of up to `jobs.plan.missing.survey.IDS`."""
    drawn: bool = False
    """Whether others may lack something, too, that are not in `why`."""
    quantities: dict[str, dict[Component, Amount]] = field(default_factory=dict)
    """Tokens and seconds, likewise; a quantity that is not known of a component is not there."""
    usd: Amount | None = None
    wall_seconds: float | None = None
    """On the wall, by its busiest pool; None: not known."""
    note: str = ""
    """Why it was not looked up."""
    unpriced: bool = False
    """Whether it has requests of which no tokens are known, so that no price has them in it."""

    @property
    def number(self) -> Amount:
        """Returns how many there are."""
        return total(self.parts.values())

    def add_stored(self, scale: Scale, number: float, queries: float = 1, alike: float = 0) -> None:
        """Adds what the store has of some queries that were looked up; in proportion as much of others that are alike."""
        if number:
            self.reused += scale.times(number * (1 + alike / queries))
            self.about = self.about or alike > 0 or not scale.whole

    def sum_of(self, quantity: str) -> Amount | None:
        """Returns the sum of a quantity; None: it is not known of some component of which there may be any."""
        of = self.quantities.get(quantity, {})
        if any(one.high and key not in of for key, one in self.parts.items()):
            return None
        return total(of.values())

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        names = ("prompt_tokens", "completion_tokens", "seconds")
        sums = {name: self.sum_of(name) for name in names if name == "seconds" or self.quantities.get(name)}
        return {
            "number": self.number.values(),
            "reused": round(self.reused),
            "about": self.about,
            "why": dict(self.why.most_common()),
            "drawn": self.drawn,
            "note": self.note,
            "wall_seconds": self.wall_seconds,
            "usd": None if self.usd is None else self.usd.values(),
        } | {name: None if one is None else one.values() for name, one in sums.items()}


@dataclass
class Missing:
    """What a job is to pay for, by kind of work."""

    kinds: dict[str, Kind]
    left: int
    looked: int
    wall_seconds: float | None = None
    """On the wall, by the busiest pool of all; None: not known."""
    free_models: Sequence[str] = ()
    """Models whose tokens have no price."""

    @property
    def usd(self) -> Amount | None:
        """Returns the price of all; None without prices."""
        prices = [one.usd for one in self.kinds.values()]
        return None if any(one is None for one in prices) else total(one for one in prices if one is not None)

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        usd = self.usd
        return {
            "kinds": {name: one.values() for name, one in self.kinds.items()},
            "queries": self.left,
            "looked": self.looked,
            "wall_seconds": self.wall_seconds,
            "usd": None if usd is None else usd.values(),
            "unpriced": [
                *(name for name, one in self.kinds.items() if one.unpriced),
                *(f"tokens of {model} (no price)" for model in self.free_models),
            ],
        }


class Scale:
    """From the queries that were looked at to all that are left."""

    def __init__(self, looked: Surveyed) -> None:
        self._rest = looked.left - looked.looked
        self._factor = looked.left / looked.looked if looked.looked else 1.0
        self._spread = spread_between(looked.by_shard, looked.left)
        self._unseen = min(1.0, UNSEEN / max(1, len(looked.by_shard)))

    @property
    def whole(self) -> bool:
        """Returns whether all were looked at."""
        return not self._rest

    def times(self, number: float) -> float:
        """Returns the number of all queries that is to be expected."""
        return number if self.whole else number * self._factor

    def of(self, number: Amount, most: float) -> Amount:
        """Returns the number of all queries, of which each has `most` at most."""
        if not self._rest:
            return number
        found, rest = number.times(self._factor).wider(self._spread), self._unseen * self._rest
        return Amount(found.low * (1 - self._unseen), found.expected, found.high + rest * most)


def add_cost(kind: Kind, component: Component, cost: RequestCost) -> None:
    """Adds what requests cost."""
    values = {
        "prompt_tokens": cost.prompt_tokens,
        "cached_tokens": cost.prompt_tokens.times(cost.cached),
        "completion_tokens": cost.completion_tokens,
        "seconds": cost.seconds,
        "device_seconds": cost.device_seconds,
    }
    for name, value in values.items():
        if value is not None:
            of = kind.quantities.setdefault(name, {})
            of[component] = of.get(component, NOTHING).plus(value)


def price_of(prices: Prices, kind: Kind, tiers: Tiers) -> Amount:
    """Returns the price of what is missing: tokens, searches, and the time of workers where it is known.

    `tiers` are those that engines ask for.
    """
    ends = []
    for end in range(3):
        sums: costs.Totals = {}
        for component, number in kind.parts.items():
            of = {name: values[component][end] for name, values in kind.quantities.items() if component in values}
            if "cached_tokens" in of:  # what a cache has is cheap: the least is with all of it, the most without
                of["cached_tokens"] = (of["prompt_tokens"], of["cached_tokens"], 0.0)[end] if of["cached_tokens"] else 0.0
            sums.setdefault(component[0], {})[component[1]] = of | {_COUNTED.get(component[0], "requests"): number[end]}
        ends.append(prices.usd(at_tiers(sums, tiers)))
    return Amount(*ends)


def wall_seconds(kinds: Iterable[Kind], pools: Mapping[str, Pool]) -> float | None:
    """Returns the time on the wall of the pool that works longest; None: not known of one of the kinds."""
    seconds: dict[str, float] = {}
    for kind in kinds:
        if kind.sum_of("seconds") is None:
            return None
        for (stage, _), one in kind.quantities.get("seconds", {}).items():
            seconds[stage] = seconds.get(stage, 0.0) + one.expected
    workers: Counter[str] = Counter()
    for name, pool in pools.items():
        workers[stage_of_pool(name)] += pool.workers
    return max((value / max(1, workers[stage]) for stage, value in seconds.items()), default=0.0)
