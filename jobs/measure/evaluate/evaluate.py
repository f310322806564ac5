"""Retrieval quality against relevance judgements: of the results, of the original query alone, and of their difference.

Judgements name log rows or queries. A mean is over the judged keys that are counted (`jobs/measure/frame.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.log.judgements import JudgedBy, Judgements, Key, read_qrels
from jobs.measure.frame import Frame, measure
from jobs.measure.judged.noise import with_noise
from jobs.measure.measures import DEPTH, MEASURES, title
from jobs.measure.notes import (
    detectable_words,
    ends_in_words,
    interval_notes,
    interval_words,
    judge_notes,
    judged_note,
    nothing_measured,
    zero_notes,
)
from jobs.measure.power import detectable
from jobs.measure.unknown import UnknownDocuments, unknown_documents
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import figure

Value = TypeVar("Value")
__all__ = ["MEASURES", "Evaluation", "Judgements", "evaluate", "evaluation_table", "evaluation_values", "read_qrels"]


@dataclass(frozen=True)
class Evaluation:
    """Means over the counted keys: judged, in the log, with a committed query; NaN if there are none."""

    judged: int
    """Number of keys (log rows or queries) with judgements."""
    missing: int
    """Number of judged keys that are not in the log."""
    results: dict[str, float]
    """Measure -> mean."""
    original: dict[str, float] | None
    """Measure -> mean of the original query alone, its lists fused and not reranked (so not the paper's OQR if the results
    are reranked: documents that only its lists have were not scored); None if runs were not kept, or texts were searched
    together."""
    intervals: dict[str, tuple[float, float]] | None
    """Measure -> 95 % interval of the mean of results - original, of those that have one (`paired_test`); None without any."""
    detectable: Mapping[str, float] = field(default_factory=dict)
    """Measure -> the smallest true difference of results and original alone that its test at .05 finds with a power of 80 %."""
    not_committed: int = 0
    """Number of judged keys whose query is not committed yet."""
    rejected: int = 0
    """Number of judged log rows that were rejected; they count zero."""
    without_results: int = 0
    """Number of judged keys whose committed query has no result; they count zero."""
    queries: int = 0
    """Number of distinct queries of the counted keys; each rejected row counts as one."""
    clusters: int = 0
    """Number of clusters of near-duplicates among them."""
    unjudged: float | None = None
    """Share of the results, as deep as the measures read, without a judgement; they count as not relevant."""
    original_unjudged: float | None = None
    """Share of the documents of the original alone, as deep, without a judgement."""
    kept: int = DEPTH
    """Most results of a query."""
    reranked: bool = False
    """Whether the results are reranked."""
    distinct: bool = False
    """Whether the results have each text once (`fuse.duplicates: drop`), which the original alone does not."""
    unmatched: tuple[str, str] | None = None
    """If no judged key is in the log: a key of the judgements and one of the log, as examples."""
    key: Key = "log_id"
    """What the judgements name."""
    unknown: UnknownDocuments | None = None
    """The judged documents that no index has."""
    joining: Sequence[str] = ()
    """The retrievers that have no list of the original alone (`Config.joining`)."""
    depth: int = DEPTH
    """The deepest rank that a measure reads."""
    left_out: tuple[str, ...] = ()
    """Which measures are left out (`Frame.left_out`)."""
    judge: JudgedBy | None = None
    """The LLM that judged; None: people did."""
    judgements: str | None = None
    """What tells the judgements from others (`Judgements.digest`)."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Returns the measures, the leading one first."""
        return tuple(self.results)

    @property
    def alone(self) -> str:
        """Returns the name of the baseline that the results are compared with."""
        return "original alone, fused, not reranked" if self.reranked else "original alone"

    @property
    def counted(self) -> int:
        """Returns the number of keys that the means are over."""
        return self.judged - self.missing - self.not_committed

    @property
    def differences(self) -> dict[str, float] | None:
        """Returns measure -> results - original."""
        return None if self.original is None else {name: self.results[name] - self.original[name] for name in self.results}

    @property
    def warning(self) -> str | None:
        """Returns why nothing was measured, in one line; None if something was."""
        if self.counted:
            unmeasured = all(map(math.isnan, self.results.values()))  # each measure is left out
            return f"nothing is measured: {'; '.join(self.left_out)}" if unmeasured else None
        return nothing_measured(self.judged, self.not_committed, self.unmatched, self.key)


def evaluate(run: RunFolder, judgements: Judgements, measures: Sequence[str] | None = None) -> Evaluation:
    """Returns the measures of a run's committed results; those of its config by default.

    Raises:
        ConfigError: a measure cannot be computed, or files of the run cannot be read.
    """
    return evaluation(run, judgements, measure(run, judgements, measures))


def evaluation(run: RunFolder, judgements: Judgements, frame: Frame) -> Evaluation:
    """Returns the means of the run's frame, as `measure` made it."""
    alone = len(frame.arms) > 1
    counted = len(frame.keys) > 0
    means = [_by_measure(frame, of.mean(axis=1) if counted else [math.nan] * len(of)) for of in frame.values]
    places = range(len(frame.measures))
    test = frame.test(0, 1) if alone else None
    intervals = {} if test is None else _by_measure(frame, map(test.interval, places))
    seen = {} if test is None else _by_measure(frame, detectable(test.error, test.freedom))
    shares = [None if np.isnan(share) else float(share) for share in frame.unjudged]
    return Evaluation(
        judged=frame.judged,
        missing=frame.missing,
        results=means[0],
        original=means[1] if alone else None,
        intervals=intervals or None,
        detectable=seen,
        not_committed=frame.not_committed,
        rejected=frame.rejected,
        without_results=int(frame.failed[0]),
        queries=frame.distinct,
        clusters=frame.drawn,
        unjudged=shares[0],
        original_unjudged=shares[1] if alone else None,
        kept=run.config.results,
        reranked=run.config.rerank.kind != "none",
        distinct=run.config.fuse.duplicates == "drop",
        unmatched=frame.unmatched,
        key=judgements.key,
        unknown=unknown_documents(run, judgements),
        joining=run.config.joining,
        depth=frame.depth,
        left_out=frame.left_out,
        judge=with_noise(run, judgements, frame).judge,
        judgements=judgements.digest,
    )


def _by_measure(frame: Frame, values: Iterable[Value | None]) -> dict[str, Value]:
    """Returns measure -> its value, of those that have one."""
    return {name: value for name, value in zip(frame.measures, values, strict=True) if value is not None}


# ---------------------------------------------------------------- output


def evaluation_table(evaluation: Evaluation) -> RenderableType:
    """Returns a table with a row per measure and the notes below, at most 80 columns wide; only a warning for nothing."""
    if evaluation.warning is not None:
        return Text(f"warning: {evaluation.warning}")
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76, caption_justify="left", caption_style="")
    table.add_column("", style="bold", no_wrap=True, ratio=1)
    for head in ("results", evaluation.alone.replace(", ", ",\n", 1), "difference", interval_words()):
        table.add_column(head, justify="right", no_wrap=True)
    original, differences, intervals = evaluation.original, evaluation.differences, evaluation.intervals or {}
    for name in evaluation.measures:
        alone = "-" if original is None else figure(original[name])
        difference = "-" if differences is None else figure(differences[name], "+")
        table.add_row(title(name), figure(evaluation.results[name]), alone, difference, ends_in_words(intervals.get(name)))
    table.caption = Text("\n" + "\n".join([*evaluation_notes(evaluation), *detectable_notes(evaluation)]))
    return table


def evaluation_values(evaluation: Evaluation) -> dict[str, Any]:
    """Returns the evaluation as JSON-able values; unknown ones are None."""
    one, original, differences, intervals = evaluation, evaluation.original, evaluation.differences, evaluation.intervals or {}
    measures = {
        name: {
            "results": _number(one.results[name]),
            "original": None if original is None else _number(original[name]),
            "difference": None if differences is None else _number(differences[name]),
            "interval": list(intervals[name]) if name in intervals else None,
            "detectable": one.detectable.get(name),
        }
        for name in one.measures
    }
    names = ("judged", "missing", "not_committed", "counted", "queries", "rejected", "without_results", "unjudged")
    counts = {name: getattr(one, name) for name in (*names, "original_unjudged", "kept", "reranked")}
    said = {"warning": one.warning, "notes": evaluation_notes(one)}
    unknown = one.unknown
    counts["unknown_documents"] = None if unknown is None else {"unknown": unknown.unknown, "looked_up": unknown.looked_up}
    judged_by = {} if one.judge is None else {"judged_by": one.judge.model, "judge_asked": one.judge.asked}
    return {"key": one.key, "judgements": one.judgements} | judged_by | counts | {"measures": measures} | said


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """Returns notes on the figures: what they include, leave out and assume; a sentence each."""
    one = evaluation
    if one.warning is not None:
        return [f"warning: {one.warning}"]
    left_out = (one.missing, "not in the log"), (one.not_committed, "of queries not committed yet")
    notes = [*judge_notes(one.judge), judged_note(one.key, one.counted, one.queries, *left_out, clusters=one.clusters)]
    notes += [] if one.unknown is None else [one.unknown.note]
    notes += zero_notes((one.without_results, "without results"), (one.rejected, "rejected"))
    if one.unjudged is not None:
        alone = "" if one.original_unjudged is None else f", {100 * one.original_unjudged:.1f} % of the original's"
        first = f"{100 * one.unjudged:.1f} % of the results' first {min(one.kept, one.depth)}"
        notes.append(f"not judged, so not relevant: {first}{alone}")
    if one.original is None:
        why = "the judge graded the results only" if one.judge is not None else ""
        why = why or (f"{' and '.join(one.joining)} searched it as one with its rewrites" if one.joining else "")
        notes.append(f"original alone: not measured, since {why or 'retrieve.keep_runs is false'}")
    elif one.reranked:
        notes.append(f"{one.alone}: the results are reranked, so the difference is of rewriting and reranking together")
    if one.original is not None and one.distinct:
        notes.append("documents with the text of a better one are dropped from the results, and not from the original alone")
    notes += one.left_out
    if one.original is not None:
        untested = [name for name in one.measures if name not in (one.intervals or {})]
        notes += interval_notes(f"to the original alone; {interval_words()}", one.clusters, one.counted, untested)
    return notes


def detectable_notes(evaluation: Evaluation) -> list[str]:
    """Returns the smallest true differences to the original alone that these queries show, in one line; nothing without any."""
    return detectable_words(evaluation.detectable)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
