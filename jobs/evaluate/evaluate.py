"""Retrieval quality against relevance judgements: of the results, of the original query alone, and of their difference.

Judgements name `log_id`s, joined to queries through `query_map`. A mean is over the judged log_ids that are in the log
and whose query is committed. A log_id without results counts zero, so failures never raise a mean; an unfinished run is
measured on its committed queries.
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

from cluster.errors import ConfigError
from cluster.storage.s3_duckdb import attach, reason
from jobs.evaluate import judged_rows
from jobs.evaluate.intervals import LEVEL, RESAMPLES, Floats, mean_interval
from jobs.evaluate.judgements import Judgements, read_qrels
from jobs.evaluate.measure import DEPTH, MEASURES, SHOWN, measure
from jobs.log.dedup import connect
from jobs.run.folder import RunFolder

__all__ = ["MEASURES", "Evaluation", "Judgements", "evaluate", "evaluation_table", "evaluation_values", "read_qrels"]

FEW_QUERIES = (
    50  # tests/jobs/test_bootstrap.py, skewed: held the true mean in 80 % of cases with 10 queries, 89 with 50, 93 with 150
)


@dataclass(frozen=True)
class Evaluation:
    """Means over the counted log_ids: judged, in the log, with a committed query; NaN if there are none."""

    judged: int
    """Number of log_ids with judgements."""
    missing: int
    """Number of judged log_ids that are not in the log."""
    results: dict[str, float]
    """Measure -> mean."""
    original: dict[str, float] | None
    """Measure -> mean of the original query alone, its lists fused and not reranked (so not the paper's OQR if the results
    are reranked: documents that only its lists have were not scored); None if runs were not kept."""
    intervals: dict[str, tuple[float, float]] | None
    """Measure -> 95 % interval of the mean of results - original; None without `original`, or with fewer than two queries."""
    not_committed: int = 0
    """Number of judged log_ids whose query is not committed yet."""
    rejected: int = 0
    """Number of judged log_ids whose row was rejected; they count zero."""
    without_results: int = 0
    """Number of judged log_ids whose committed query has no result; they count zero."""
    queries: int = 0
    """Number of distinct queries of the counted log_ids; each rejected row counts as one."""
    unjudged: float | None = None
    """Share of the first ten results without a judgement; they count as not relevant."""
    original_unjudged: float | None = None
    """Share of the first ten documents of the original alone without a judgement."""
    kept: int = DEPTH
    """Most results of a query; if fewer than ten, the original alone is cut there, too."""
    reranked: bool = False
    """Whether the results are reranked."""
    unmatched_ids: tuple[str, str] | None = None
    """If no judged log_id is in the log: a log_id of the judgements and one of the log, as examples."""

    @property
    def alone(self) -> str:
        """Returns the name of the baseline that the results are compared with."""
        return "original alone, fused, not reranked" if self.reranked else "original alone"

    @property
    def counted(self) -> int:
        """Returns the number of log_ids that the means are over."""
        return self.judged - self.missing - self.not_committed

    @property
    def differences(self) -> dict[str, float] | None:
        """Returns measure -> results - original."""
        return None if self.original is None else {name: self.results[name] - self.original[name] for name in self.results}


def evaluate(run: RunFolder, judgements: Judgements) -> Evaluation:
    """Returns the measures of a run's committed results.

    Reads `query_map`, `results` and `runs` by DuckDB in 256 MB; besides the judgements, memory grows by some hundred
    bytes per judged log_id.

    Raises:
        ConfigError: files of the run cannot be read.
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
            log_ids_of: dict[str, list[str]] = {}
            for log_id, query_id in sorted(query_of.items(), key=lambda pair: (pair[1] or "", pair[0])):
                if query_id is not None and query_id not in pending:
                    log_ids_of.setdefault(query_id, []).append(log_id)
            results = measure(judgements, log_ids_of, judged_rows.results(connection, run, min(kept, DEPTH)))
            original = None
            if config.retrieve.keep_runs:
                original = measure(judgements, log_ids_of, judged_rows.originals(connection, run, kept))
            unmatched_ids = None if query_of else judged_rows.unmatched_ids(connection, run, judgements)
    except (duckdb.Error, OSError) as error:
        words = reason(error)
        raise ConfigError(
            "run-damaged", f"{run.storage.root}: the run's tables cannot be read ({words}); put back what was changed there"
        ) from error
    rejected = sum(query_id is None for query_id in query_of.values())
    sizes = np.array([len(log_ids) for log_ids in log_ids_of.values()] + [1] * rejected, np.int64)
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
        unmatched_ids=unmatched_ids,
    )


def _means(values: Floats, counted: int) -> dict[str, float]:
    sums = values.sum(axis=0)
    return {name: float(sums[place]) / counted if counted else math.nan for place, name in enumerate(MEASURES)}


def _intervals(differences: Floats, sizes: npt.NDArray[np.int64]) -> dict[str, tuple[float, float]] | None:
    """Returns measure -> confidence interval of the mean difference; None with fewer than two queries.

    Args:
        differences: (log_ids, measures), in order of their queries, without rejected rows, whose difference is 0.
        sizes: (queries,), log_ids per query, with one entry per rejected row at the end.
    """
    sums = np.zeros((len(sizes), len(MEASURES)))
    np.add.at(sums, np.repeat(np.arange(len(sizes)), sizes)[: len(differences)], differences)
    ends = mean_interval(sums, sizes)
    return None if ends is None else {name: (float(low), float(high)) for name, (low, high) in zip(MEASURES, ends, strict=True)}


# ---------------------------------------------------------------- output


def evaluation_table(evaluation: Evaluation) -> Table:
    """Returns a table with a row per measure and the notes below, at most 80 columns wide."""
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76, caption_justify="left", caption_style="")
    table.add_column("", style="bold", no_wrap=True, ratio=1)
    for title in ("results", evaluation.alone.replace(", ", ",\n", 1), "difference", f"{100 * LEVEL:.0f} % interval"):
        table.add_column(title, justify="right", no_wrap=True)
    original, differences, intervals = evaluation.original, evaluation.differences, evaluation.intervals
    for name in MEASURES:
        alone = "-" if original is None else figure(original[name])
        difference = "-" if differences is None else figure(differences[name], "+")
        interval = "-" if intervals is None else " to ".join(figure(end, "+") for end in intervals[name])
        table.add_row(SHOWN[name], figure(evaluation.results[name]), alone, difference, interval)
    table.caption = Text("\n" + "\n".join(evaluation_notes(evaluation)))
    return table


def evaluation_values(evaluation: Evaluation) -> dict[str, Any]:
    """Returns the evaluation as JSON-able values; unknown ones are None."""
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
    """Returns notes on the figures: what they include, leave out and assume; a sentence each."""
    one = evaluation
    left_out = [(one.missing, "not in the log"), (one.not_committed, "of queries not committed yet")]
    left = ", ".join(f"{count:,} {where}" for count, where in left_out if count)
    notes = [f"judged: {one.counted:,} log rows of {one.queries:,} distinct queries" + (f"; left out: {left}" if left else "")]
    if one.unmatched_ids is not None:
        judged, logged = (f"{name[:80]!r}" for name in one.unmatched_ids)
        notes.append(f"no judged log_id is in the log: the judgements say {judged}, the log {logged}; see log.id_column")
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
        notes.append(f"{one.alone}: the results are reranked, so the difference is of rewriting and reranking together")
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
    """Returns the value with four decimals, or "-" for NaN."""
    return "-" if math.isnan(value) else f"{round(value, 4) + 0.0:{sign}.4f}"  # + 0.0: turns -0.0 into 0.0


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
