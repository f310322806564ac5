"""The nights of one name: the plain runs below an output, each held against the one before and against the first.

Compared are finished nights. Of one that is not, what is committed is shown: its queries are the most frequent, so that its
texts differ from those of a whole night. Replays, ablations and what cannot be read are left out, and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from cluster.errors import ClusterError, ConfigError
from cluster.run.shards import Plan, read_plan
from cluster.storage import Storage, open_storage
from cluster.storage.prefetch import prefetch
from cluster.storage.s3_duckdb import reason
from jobs.job.keys import SCHEMA_VERSION, fingerprint
from jobs.measure.nights.distributions import GUARD, Distribution, Edges, score_edges, unfound
from jobs.measure.nights.new_queries import new_queries
from jobs.measure.nights.night import FINISHED, INDEXES, JUDGEMENTS, SETTINGS, Drift, Night, NightFigures, figures
from jobs.measure.nights.stability import Stability, stability
from jobs.measure.run_list import ListedRun, PricesOf, judged_otherwise, leading_measure, list_runs
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.old.removal import HALF_REMOVED

_AT_ONCE = 4  # runs that are read at a time
_UNREADABLE = (ClusterError, ConfigError, OSError, duckdb.Error, pa.ArrowException, KeyError, ValueError)


class NoNight(NamedTuple):
    """A run that is no night of the page."""

    run_id: str
    night: str
    why: str


@dataclass(frozen=True)
class Nights:
    """The nights of a name, the oldest first."""

    name: str
    output: str
    measure: str
    """The leading one: that of the night that was measured last."""
    nights: list[Night]
    earlier: int
    """Nights before the first that is shown; their queries are not new."""
    left_out: list[NoNight]

    @property
    def judges(self) -> list[str]:
        """Returns who judged where an LLM did, and what it is warned of; a line each."""
        return list(dict.fromkeys(line for one in self.nights for line in one.run.judges))

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        found = {"name": self.name, "output": self.output, "measure": self.measure, "earlier": self.earlier}
        return found | {"nights": [one.values() for one in self.nights], "left_out": [one._asdict() for one in self.left_out]}


class _Opened(NamedTuple):
    """A run that can be shown, with its figures."""

    listed: ListedRun
    run: RunFolder
    figures: NightFigures

    @property
    def guards(self) -> str:
        """Returns a hash of which guards it has."""
        return fingerprint(self.run.config.rewrite.guards.model_dump(mode="json"))


def nights(output: Storage, name: str, prices: PricesOf, last: int | None = None) -> Nights:
    """Returns the nights of a name.

    Args:
        output: Where the runs lie.
        name: Of the config.
        prices: What finds a run's prices, by its record.
        last: How many to show, the newest; None: all.
    """
    left: list[NoNight] = []
    chosen = []
    for one in list_runs(output, name, prices):
        if (why := _no_night(one)) is not None:
            left.append(NoNight(one.run_id, one.night, why))
        else:
            chosen.append(one)
    cut = 0 if last is None else max(0, len(chosen) - last)
    earlier = list(_planned(chosen[:cut], left))
    opened = _with_all_guards(list(_opened(chosen[cut:], prices, left)))
    new = new_queries([*earlier, *((one.run.storage, one.run.plan) for one in opened)])[len(earlier) :]
    shown = [Night(one.listed, one.figures, of) for one, of in zip(opened, new, strict=True)]
    measure = leading_measure([one.run for one in shown])
    return Nights(name, output.root, measure, _compared(shown, measure), len(earlier), left)


def _no_night(run: ListedRun) -> str | None:
    """Returns why a run is no night; None: it is one."""
    if run.replays is not None:
        return f"a replay of {run.replays['of']}"
    if run.arms:
        return f"an ablation of {run.arms} arms"
    if run.state == HALF_REMOVED:
        return "half removed by runs --prune"
    if run.schema_version != SCHEMA_VERSION:
        return f"of schema version {run.schema_version or 'unknown'}; this version of dmqr reads {SCHEMA_VERSION}"
    if run.state == FINISHED:  # without counts it cannot be read, and opening it says why
        return None
    return None if run.queries else f"{run.state}, nothing is committed"


def _planned(listed: Sequence[ListedRun], left: list[NoNight]) -> Iterator[tuple[Storage, Plan]]:
    """Yields folder and plan of runs whose queries alone are asked for; adds to `left` what cannot be read."""

    def plan_of(one: ListedRun) -> tuple[Storage, Plan] | str:
        storage = open_storage(one.folder)
        try:
            plan = read_plan(storage)
        except _UNREADABLE as error:
            return _words(error)
        if plan is None:
            return "its plan is gone"
        return _without_queries(storage, plan) or (storage, plan)

    for one, found in zip(listed, prefetch(plan_of, listed, _AT_ONCE), strict=True):
        if isinstance(found, str):
            left.append(NoNight(one.run_id, one.night, found))
        else:
            yield found


def _opened(listed: Sequence[ListedRun], prices: PricesOf, left: list[NoNight]) -> Iterator[_Opened]:
    """Yields the runs with their figures; adds to `left` what cannot be read."""

    def opened(one: ListedRun) -> RunFolder | str:
        try:
            run = open_run(one.folder)
            return _without_queries(run.storage, run.plan) or run
        except _UNREADABLE as error:
            return _words(error)

    runs = list(zip(listed, prefetch(opened, listed, _AT_ONCE), strict=True))
    edges = _edges([run for _, run in runs if not isinstance(run, str) and run.finished])

    def read(pair: tuple[ListedRun, RunFolder | str]) -> _Opened | str:
        one, run = pair
        if isinstance(run, str):
            return run
        try:
            return _Opened(one, run, figures(run, prices(run.record), edges))
        except _UNREADABLE as error:
            return _words(error)

    for (one, _), found in zip(runs, prefetch(read, runs, _AT_ONCE), strict=True):
        if isinstance(found, str):
            left.append(NoNight(one.run_id, one.night, found))
        else:
            yield found


def _without_queries(storage: Storage, plan: Plan) -> str | None:
    """Returns why the queries of a run cannot be read with those of the others; None: they are there as they were written."""
    for file in plan.tables["queries"]:
        found = storage.stat(file.key)
        if found is None or found.size != file.size:
            return f"{file.key} {'is gone' if found is None else 'was changed'}"
    return None


def _edges(runs: Sequence[RunFolder]) -> Edges:
    """Returns the ends of the bins of scores; a run whose scores cannot be read has none, and is left out later."""
    found: dict[str, Sequence[float]] = {}
    for run in runs:
        try:
            found = {**score_edges(run, found.keys()), **found}
        except _UNREADABLE:
            continue
    return found


def _with_all_guards(opened: Sequence[_Opened]) -> list[_Opened]:
    """Returns the nights, each with the guards that found nothing in it, but something in another night of the same guards.

    A run counts what its guards find; without these, one that begins to find much would be compared with nothing.
    """
    known: dict[str, dict[str, None]] = {}
    for one in opened:
        names = [of.of for of in one.figures.distributions if of.kind == GUARD]
        known.setdefault(one.guards, {}).update(dict.fromkeys(names))
    found = []
    for one in opened:
        mine = {of.of for of in one.figures.distributions if of.kind == GUARD}
        more = unfound(one.run, (name for name in sorted(known[one.guards]) if name not in mine))
        every = [*one.figures.distributions, *more]
        found.append(one._replace(figures=replace(one.figures, distributions=every)))
    return found


def _words(error: Exception) -> str:
    """Returns why a run cannot be read, in one line."""
    if isinstance(error, KeyError):
        return f"its record or plan lacks {error}"
    return reason(error).partition(" LINE 1:")[0]  # of DuckDB, which shows its query


def _compared(shown: Sequence[Night], measure: str) -> list[Night]:
    """Returns the nights with what differs from the night before, and with their drift."""
    found: list[Night] = []
    first: Mapping[tuple[str, str], Distribution] | None = None
    before: Mapping[tuple[str, str], Distribution] = {}
    measured: Night | None = None
    runs = [one.run if one.finished else replace(one.run, evaluation=None) for one in shown]
    for one, run, otherwise in zip(shown, runs, judged_otherwise(runs), strict=True):
        last = found[-1] if found else None
        changed = []
        if last is not None:
            changed += [SETTINGS] if one.run.settings != last.run.settings else []
            changed += [INDEXES] if one.figures.indexes != last.figures.indexes else []
        moved = None
        if run.measured("results") is not None:
            if otherwise:
                changed.append(JUDGEMENTS)
            elif measured is not None:
                pair = measured.run.measured("results", measure), one.run.measured("results", measure)
                moved = None if None in pair else pair[1] - pair[0]  # type: ignore[operator]
            measured = one
        drifts = [Drift(of, None, None) for of in one.figures.distributions]
        if one.finished:
            drifts = [Drift(of, _held(before, of), _held(first or {}, of)) for of in one.figures.distributions]
            before = {(of.kind, of.of): of for of in one.figures.distributions}
            first = before if first is None else first
        found.append(replace(one, changed=changed, moved=moved, drifts=drifts))
    return found


def _held(against: Mapping[tuple[str, str], Distribution], of: Distribution) -> Stability | None:
    """Returns how far a distribution is from that of another night; None where that has none."""
    other = against.get((of.kind, of.of))
    return None if other is None else stability(other.counts, of.counts)
