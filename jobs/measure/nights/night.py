"""One night in figures: what it cost, how much of the traffic it covers, what failed, and what it took from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster.costs import Prices, stage_sums
from jobs.job.keys import fingerprint
from jobs.measure.nights.distributions import Distribution, Edges, distributions
from jobs.measure.nights.new_queries import NewQueries
from jobs.measure.nights.stability import Stability
from jobs.measure.run_list import ListedRun
from jobs.plan.work import executed_work
from jobs.runs.bill import Bill
from jobs.runs.folder import RunFolder
from jobs.runs.sums import by_reason
from jobs.runs.traffic import covered

FINISHED = "finished"  # `ListedRun.state`
SETTINGS, INDEXES, JUDGEMENTS = "settings", "indexes", "judgements"  # what may differ from the night before


@dataclass(frozen=True)
class NightFigures:
    """What a run's folder says of its committed shards."""

    queries: int
    """Distinct queries of the log, committed or not."""
    coverage: float | None
    """Share of the log's traffic whose queries are committed; None: a version wrote its plan that did not count it."""
    traffic: int | None
    """How often the log's queries were asked; None as with `coverage`."""
    usd_by_stage: dict[str, float] | None
    """USD of each stage, and of nodes that were `idle` or `lost`; they add up to the bill. None: there are no prices."""
    seconds_by_stage: dict[str, float]
    """Seconds of work."""
    failed: float
    """Share of the committed queries with an error."""
    failures: dict[str, int]
    """Reason -> errors, the most frequent first; notes are left out."""
    needed: dict[str, int]
    """Requests, searches and pairs that were needed, by `jobs.counts.QUANTITIES`, each distinct one once."""
    taken: dict[str, int]
    """How many of them were taken from the store."""
    indexes: str
    """A hash of the content of its indexes."""
    distributions: list[Distribution]


@dataclass(frozen=True)
class Drift:
    """A distribution of a night, held against that of the finished night before and of the first."""

    of: Distribution
    before: Stability | None
    """None: there is no such night, or it has no such distribution."""
    first: Stability | None

    @property
    def level(self) -> str:
        """Returns the graver of both levels (`Stability.level`)."""
        levels = {one.level for one in (self.before, self.first) if one is not None}
        return next((level for level in ("shift", "moderate") if level in levels), "")


@dataclass(frozen=True)
class Night:
    """A run as the page of nights shows it."""

    run: ListedRun
    figures: NightFigures
    new: NewQueries
    changed: list[str] = field(default_factory=list)
    """Of SETTINGS, INDEXES and JUDGEMENTS, what differs from the night before."""
    moved: float | None = None
    """The leading measure less that of the newest earlier night that was measured, if both are finished and judged alike."""
    drifts: list[Drift] = field(default_factory=list)
    """Of a finished night."""

    @property
    def finished(self) -> bool:
        """Returns whether all of its queries are done."""
        return self.run.state == FINISHED

    @property
    def new_share(self) -> float:
        """Returns the share of its distinct queries that no earlier night had."""
        return self.new.queries / self.figures.queries if self.figures.queries else 0.0

    @property
    def new_traffic(self) -> float | None:
        """Returns the share of its traffic that is of them."""
        traffic = self.figures.traffic
        return self.new.asked / traffic if traffic else None

    def taken(self, kind: str) -> float | None:
        """Returns the share of the requests, searches or pairs that was taken from the store; None: it needed none."""
        needed = self.figures.needed.get(kind)
        return self.figures.taken[kind] / needed if needed else None

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        found = asdict(self.figures)
        del found["distributions"]
        shares = {"new_share": self.new_share, "new_traffic_share": self.new_traffic}
        taken = {"taken_shares": {kind: self.taken(kind) for kind, needed in self.figures.needed.items() if needed}}
        drifts = [
            {"kind": one.of.kind, "of": one.of.of, "counts": one.of.counts, "level": one.level}
            | {name: None if held is None else asdict(held) for name, held in (("before", one.before), ("first", one.first))}
            for one in self.drifts
        ]
        new = {"new": self.new._asdict(), "changed": self.changed, "quality_moved": self.moved}
        return self.run.values() | {"figures": found} | new | shares | taken | {"drift": drifts}


def figures(run: RunFolder, prices: Prices | None, edges: Edges) -> NightFigures:
    """Returns the figures of a run.

    Raises:
        ConfigError, duckdb.Error, OSError: its tables cannot be read.
    """
    counts, spent = run.counts, run.spent
    queries = counts["queries"]
    needed, taken = executed_work(spent)
    return NightFigures(
        queries=run.plan.counts["queries"],
        coverage=covered(run.plan, counts),
        traffic=run.plan.counts.get("traffic"),
        usd_by_stage=None if prices is None else _by_stage(run.bill(prices), list(spent)),
        seconds_by_stage={stage: stage_sums(spent, stage).get("seconds", 0.0) for stage in spent},
        failed=counts["failed_queries"] / queries if queries else 0.0,
        failures=by_reason(counts),
        needed=needed,
        taken=taken,
        indexes=fingerprint(run.record.get("identity", {}).get("indexes", {})),
        distributions=distributions(run, edges),
    )


def _by_stage(billed: Bill, stages: Sequence[str]) -> dict[str, float]:
    rest = {name: usd for name, usd in (("idle", billed.idle), ("lost", billed.lost)) if usd}
    return {stage: billed.of_stages([stage]) for stage in stages} | rest
