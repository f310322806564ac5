"""Quality against relevance judgements: of the results, of the original query alone, and how sure the difference is.

Judgements speak of `log_id`, joined to queries through `query_map`. A mean is over the judged log_ids that are in the log
and whose query is committed; one without results counts zero, so failures never raise it, and an unfinished run is
measured on what it has done.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
from rich.table import Table
from rich.text import Text

from cluster.s3_duckdb import attach, reason
from jobs import judged_rows
from jobs.bootstrap import LEVEL, RESAMPLES, Floats, mean_interval
from jobs.dedup_group import connect
from jobs.judgements import Judgements, read_qrels
from jobs.measure import DEPTH, MEASURES, measure
from jobs.part import ConfigError
from jobs.run_folder import RunFolder

__all__ = ["MEASURES", "Evaluation", "Judgements", "evaluate", "evaluation_table", "evaluation_values", "read_qrels"]

FEW_QUERIES = (
    50  # tests/jobs/test_bootstrap.py, skewed: held the true mean in 80 % of cases with 10 queries, 89 with 50, 93 with 150
)


@dataclass(frozen=True)
class Evaluation:
    """Means over the judged log_ids that count: in the log, their query committed. Not a number where there are none."""

    judged: int
    """log_ids with judgements."""
    missing: int
    """Of them not in the log."""
    results: dict[str, float]
    """Measure -> mean."""
    original: dict[str, float] | None
    """The same of the original query alone, its lists fused and not reranked; None where runs were not kept."""
    intervals: dict[str, tuple[float, float]] | None
    """Measure -> 95 % confidence interval of the mean of results - original; None without it, or below two queries."""
    not_committed: int = 0
    """Judged log_ids whose query the run has not committed yet."""
    rejected: int = 0
    """Judged log_ids whose row was rejected: they count zero."""
    without_results: int = 0
    """Judged log_ids whose committed query has no result: they count zero."""
    queries: int = 0
    """Distinct queries of the log_ids that count; a rejected row is one of its own."""
    unjudged: float | None = None
    """Share of the results, among the first ten, that have no judgement and so count as not relevant."""
    original_unjudged: float | None = None
    """The same of the original alone."""
    kept: int = DEPTH
    """Documents that a query's results hold at most; where fewer than ten, the original alone is cut there, too."""
    reranked: bool = False
    """Whether the results are reranked."""
    strangers: tuple[str, str] | None = None
    """Where no judged log_id is in the log: one of the judgements and one of the log."""

    @property
    def counted(self) -> int:
        """Judged log_ids that the means are over."""
        return self.judged - self.missing - self.not_committed

    @property
    def differences(self) -> dict[str, float] | None:
        """Measure -> results - original."""
        return None if self.original is None else {name: self.results[name] - self.original[name] for name in self.results}


def evaluate(run: RunFolder, judgements: Judgements) -> Evaluation:
    """Measure what is committed of a run.

    Reads `query_map`, `results` and `runs` by DuckDB in 256 MB; besides the judgements, memory grows by some hundred
    bytes per judged log_id. Raises ConfigError where files of the run cannot be read.
    """
    config = run.config
    reranked = config.rerank.kind != "none"
    kept = config.rerank.keep if reranked else config.fuse.keep
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dmqr-evaluate-") as temp,
            connect("256MB", threads=2, temp=Path(temp)) as connection,
        ):
            attach(connection)
            query_of = judged_rows.query_of(connection, run, judgements)
            pending = judged_rows.not_committed(connection, run)
            asked: dict[str, list[str]] = {}
            for log_id, query_id in sorted(query_of.items(), key=lambda pair: (pair[1] or "", pair[0])):
                if query_id is not None and query_id not in pending:
                    asked.setdefault(query_id, []).append(log_id)
            results = measure(judgements, asked, judged_rows.results(connection, run, min(kept, DEPTH)))
            original = None
            if config.retrieve.keep_runs:
                original = measure(judgements, asked, judged_rows.originals(connection, run, kept))
            strangers = None if query_of else judged_rows.strangers(connection, run, judgements)
    except (duckdb.Error, OSError) as error:
        words = reason(error)
        raise ConfigError(
            f"{run.storage.root}: the run's tables cannot be read ({words}); put back what was changed there"
        ) from error
    rejected = sum(query_id is None for query_id in query_of.values())
    sizes = np.array([len(log_ids) for log_ids in asked.values()] + [1] * rejected, np.int64)
    counted = int(sizes.sum())
    return Evaluation(
        judged=len(judgements.grades),
        missing=len(judgements.grades) - len(query_of),
        results=_means(results.values, counted),
        original=None if original is None else _means(original.values, counted),
        intervals=None if original is None else _intervals(results.values - original.values, sizes),
        not_committed=len(query_of) - counted,
        rejected=rejected,
        without_results=len(results.values) - results.found,
        queries=len(sizes),
        unjudged=results.unjudged,
        original_unjudged=None if original is None else original.unjudged,
        kept=kept,
        reranked=reranked,
        strangers=strangers,
    )


def _means(values: Floats, counted: int) -> dict[str, float]:
    sums = values.sum(axis=0)
    return {name: float(sums[place]) / counted if counted else math.nan for place, name in enumerate(MEASURES)}


def _intervals(differences: Floats, sizes: npt.NDArray[np.int64]) -> dict[str, tuple[float, float]] | None:
    """Of log_ids in order of their queries; those of rejected rows, whose difference is 0, are not in `differences`."""
    sums = np.zeros((len(sizes), len(MEASURES)))
    np.add.at(sums, np.repeat(np.arange(len(sizes)), sizes)[: len(differences)], differences)
    ends = mean_interval(sums, sizes)
    return None if ends is None else {name: (float(low), float(high)) for name, (low, high) in zip(MEASURES, ends, strict=True)}


# ---------------------------------------------------------------- for people and programs


def evaluation_table(evaluation: Evaluation) -> Table:
    """A row per measure, and below what the figures are of; 80 columns wide at most."""
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76, caption_justify="left", caption_style="")
    table.add_column("", style="bold", no_wrap=True, ratio=1)
    for title in ("results", "original alone", "difference", f"{100 * LEVEL:.0f} % interval"):
        table.add_column(title, justify="right", no_wrap=True)
    original, differences, intervals = evaluation.original, evaluation.differences, evaluation.intervals
    for name in MEASURES:
        alone = "-" if original is None else figure(original[name])
        difference = "-" if differences is None else figure(differences[name], "+")
        interval = "-" if intervals is None else " to ".join(figure(end, "+") for end in intervals[name])
        table.add_row(name, figure(evaluation.results[name]), alone, difference, interval)
    table.caption = Text("\n" + "\n".join(evaluation_notes(evaluation)))
    return table


def evaluation_values(evaluation: Evaluation) -> dict[str, Any]:
    """The same as JSON takes it; null for what is not known."""
    original, differences, intervals = evaluation.original, evaluation.differences, evaluation.intervals
    measures = {
        name: {
            "results": _number(evaluation.results[name]),
            "original": None if original is None else _number(original[name]),
            "difference": None if differences is None else _number(differences[name]),
            "interval": None if intervals is None else list(intervals[name]),
        }
        for name in MEASURES
    }
    names = ("judged", "missing", "not_committed", "counted", "queries", "rejected", "without_results", "unjudged")
    counts = {name: getattr(evaluation, name) for name in (*names, "original_unjudged", "kept", "reranked")}
    return counts | {"measures": measures, "notes": evaluation_notes(evaluation)}


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """What the figures are of, and what to keep in mind about them; a sentence each."""
    one = evaluation
    left_out = [(one.missing, "not in the log"), (one.not_committed, "of queries not committed yet")]
    left = ", ".join(f"{count:,} {where}" for count, where in left_out if count)
    notes = [f"judged: {one.counted:,} log rows of {one.queries:,} distinct queries" + (f"; left out: {left}" if left else "")]
    if one.strangers is not None:
        judged, there = (f"{name[:80]!r}" for name in one.strangers)
        notes.append(f"no judged log_id is in the log: the judgements say {judged}, the log {there}; see log.id_column")
    zero = [(one.without_results, "without results"), (one.rejected, "rejected")]
    if words := ", ".join(f"{count:,} {why}" for count, why in zero if count):
        notes.append(f"counted as zero: {words}")
    if one.unjudged is not None:
        alone = "" if one.original_unjudged is None else f", {100 * one.original_unjudged:.1f} % of the original's"
        first = f"{100 * one.unjudged:.1f} % of the results' first {min(one.kept, DEPTH)}"
        notes.append(f"not judged, so not relevant: {first}{alone}")
    if one.original is None:
        notes.append("original alone: not measured, since retrieve.keep_runs is false")
    elif one.reranked:
        notes.append("original alone: its lists fused; it is not reranked, the results are")
    if one.kept < DEPTH:
        notes.append(f"lists end after {one.kept} documents (what the run kept), the original's, too")
    if one.original is not None and one.counted:
        if one.intervals is None:
            notes.append("no interval: it takes two distinct queries")
        else:
            few = "; of so few queries rather too narrow" if one.queries < FEW_QUERIES else ""
            notes.append(f"interval: of the mean difference, {RESAMPLES:,} draws of the distinct queries{few}")
    return notes


def figure(value: float, sign: str = "") -> str:
    """Four digits; "-" where nothing was measured."""
    return "-" if math.isnan(value) else f"{round(value, 4) + 0.0:{sign}.4f}"  # + 0.0: no minus before zero


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
