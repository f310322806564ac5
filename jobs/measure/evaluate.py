"""Measures a run: its results, its original query alone and their difference, and its answers, as tables and JSON-able values.

Judgements name log rows or queries. A mean is over the judged keys that are counted (`jobs/measure/frame.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster.storage import Storage
from jobs.log.judgements import JudgedBy, Judgements, Key
from jobs.measure.answers import GoldAnswers, answer_frame, answering, judged_answer_frames
from jobs.measure.frame import Frame, measure
from jobs.measure.measures import DEPTH, title
from jobs.measure.notes import (
    HEADINGS,
    detectable_words,
    ends_in_words,
    interval_notes,
    interval_words,
    judge_notes,
    judged_note,
    nothing_measured,
    zero_notes,
)
from jobs.measure.significance import FEW_QUERIES, detectable, paired_test, verdict
from jobs.measure.unknown import UnknownDocuments, unknown_documents
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import figure

EVALUATION = "evaluation.json"
Value = TypeVar("Value")


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
    p: Mapping[str, float] = field(default_factory=dict)
    """Measure -> two-sided p of this difference."""
    detectable: Mapping[str, float] = field(default_factory=dict)
    """Measure -> the smallest true difference of results and original alone that its test at .05 finds with a power of 80 %."""
    not_committed: int = 0
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
    kept: int = DEPTH
    """Most results of a query."""
    reranked: bool = False
    distinct: bool = False
    """Whether the results have each text once (`fuse.duplicates: drop`), which the original alone does not."""
    unmatched: tuple[str, str] | None = None
    """If no judged key is in the log: a key of the judgements and one of the log, as examples."""
    key: Key = "log_id"
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

    def verdict(self, name: str) -> str | None:
        """Returns better, worse or no clear difference of the results to the original alone; None without a test."""
        return verdict((self.differences or {})[name], self.p[name]) if name in self.p else None


@dataclass(frozen=True)
class AnswerQuality:
    """What gold answers, or a judge, say of a run's answers."""

    frame: Frame
    """Of its one arm."""
    means: dict[str, float]
    """Measure -> mean over the counted keys; NaN if there are none."""
    intervals: dict[str, tuple[float, float]]
    """Measure -> its 95 % interval, over clusters; without those that have none."""

    @property
    def warning(self) -> str | None:
        """Returns why nothing was measured, in one line; None if something was."""
        return self.frame.warning

    @property
    def notes(self) -> list[str]:
        """Returns what the figures include and leave out, a sentence each."""
        one = self.frame
        if self.warning is not None:
            return [f"warning: {self.warning}"]
        left_out = (one.missing, "not in the log"), (one.not_committed, "of queries not committed yet")
        notes = judge_notes(one.judge)
        notes += [judged_note(one.key, len(one.keys), one.distinct, *left_out, clusters=one.drawn, gold=one.gold)]
        notes += zero_notes((int(one.failed[0]), "without an answer"), (one.rejected, "rejected"))
        if self.intervals:
            rough = "; of so few clusters a rough one" * (one.drawn < FEW_QUERIES)
            notes.append(f"{interval_words()}: of the mean, Student's t over clusters of near-duplicates{rough}")
        return notes


def evaluate(run: RunFolder, judgements: Judgements, measures: Sequence[str] | None = None) -> Evaluation:
    """Returns the measures of a run's committed results; those of its config by default.

    Raises:
        ConfigError: a measure cannot be computed, or files of the run cannot be read.
    """
    return evaluation(run, judgements, measure(run, judgements, measures))


def evaluation(run: RunFolder, judgements: Judgements, frame: Frame) -> Evaluation:
    """Returns the means of the run's frame, as `measure` made it."""
    alone = len(frame.arms) > 1
    means = [_by_measure(frame, of.mean(axis=1) if frame.keys else [math.nan] * len(of)) for of in frame.values]
    places = range(len(frame.measures))
    test = frame.test(0, 1) if alone else None
    shares = [None if np.isnan(share) else float(share) for share in frame.unjudged]
    seen = {} if test is None else detectable(test, places)
    return Evaluation(
        judged=frame.judged,
        missing=frame.missing,
        results=means[0],
        original=means[1] if alone else None,
        intervals=None if test is None else _by_measure(frame, map(test.interval, places)) or None,
        p={} if test is None else _by_measure(frame, [None if np.isnan(p) else p for p in test.p.tolist()]),
        detectable=_by_measure(frame, map(seen.get, places)),
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
        judge=frame.judge,
        judgements=judgements.digest,
    )


def measured_answers(run: RunFolder, gold: GoldAnswers | None) -> list[AnswerQuality]:
    """Returns the quality of a run's answers: against gold answers, if there are some, then in each kind that is judged.

    Empty if no LLM answers in it.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    found = []
    for frame in ([] if gold is None or not answering(run) else [answer_frame(run, gold)]) + judged_answer_frames(run):
        test = paired_test(frame.values[0], frame.clusters)
        intervals = _by_measure(frame, map(test.interval, range(len(frame.measures))))
        found.append(AnswerQuality(frame, _by_measure(frame, test.mean.tolist()), intervals))
    return found


def _by_measure(frame: Frame, values: Iterable[Value | None]) -> dict[str, Value]:
    """Returns measure -> its value, of those that have one."""
    return {name: value for name, value in zip(frame.measures, values, strict=True) if value is not None}


# ---------------------------------------------------------------- tables


def evaluated_table(lists: Evaluation | None, answers: Sequence[AnswerQuality]) -> RenderableType:
    """Returns the tables of what was measured, one below the other."""
    found: list[RenderableType] = [] if lists is None else [evaluation_table(lists)]
    for one in answers:
        found += [Text("")] * bool(found) + [answer_table(one)]
    return Group(*found)


def _table(name: str, *heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76, caption_justify="left", caption_style="")
    table.add_column(name, style="bold", no_wrap=True, ratio=1)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def evaluation_table(evaluation: Evaluation) -> RenderableType:
    """Returns a table with a row per measure and the notes below, at most 80 columns wide; only a warning for nothing."""
    if evaluation.warning is not None:
        return Text(f"warning: {evaluation.warning}")
    table = _table("", "results", evaluation.alone.replace(", ", ",\n", 1), "difference", interval_words())
    original, differences, intervals = evaluation.original, evaluation.differences, evaluation.intervals or {}
    for name in evaluation.measures:
        alone = "-" if original is None else figure(original[name])
        difference = "-" if differences is None else figure(differences[name], "+")
        table.add_row(title(name), figure(evaluation.results[name]), alone, difference, ends_in_words(intervals.get(name)))
    table.caption = Text("\n" + "\n".join([*evaluation_notes(evaluation), *detectable_words(evaluation.detectable)]))
    return table


def answer_table(found: AnswerQuality) -> RenderableType:
    """Returns a table with a row per measure and the notes below; only a warning for nothing."""
    heading = HEADINGS[found.frame.kind]
    if found.warning is not None:
        return Text(f"warning: {heading}: {found.warning}")
    table = _table(heading, "answers", interval_words())
    for name, mean in found.means.items():
        table.add_row(name, figure(mean), " to ".join(map(figure, found.intervals.get(name, ()))) or "-")
    table.caption = Text("\n" + "\n".join(found.notes))
    return table


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


# ---------------------------------------------------------------- values


def evaluated_values(lists: Evaluation | None, answers: Sequence[AnswerQuality]) -> dict[str, Any]:
    """Returns the values of the lists, and of the answers under `answers` and `judged_answers`; JSON-able."""
    return ({} if lists is None else evaluation_values(lists)) | answers_values(answers)


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
            "verdict": one.verdict(name),
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


def answers_values(found: Iterable[AnswerQuality]) -> dict[str, Any]:
    """Returns the values by gold answers under `answers`, and under `judged_answers` those of each kind of judgement."""
    values: dict[str, Any] = {}
    for one in found:
        if one.frame.gold:
            values["answers"] = answer_values(one)
        else:
            values.setdefault("judged_answers", {})[one.frame.kind] = answer_values(one)
    return values


def answer_values(found: AnswerQuality) -> dict[str, Any]:
    """Returns the quality of the answers as JSON-able values; unknown ones are None."""
    one = found.frame
    counts = {name: getattr(one, name) for name in ("key", "judged", "missing", "not_committed")}
    counts |= {"counted": len(one.keys), "queries": one.distinct, "rejected": one.rejected}
    measures = {
        name: {"answers": _number(mean), "interval": list(found.intervals[name]) if name in found.intervals else None}
        for name, mean in found.means.items()
    }
    judged_by = {} if one.judge is None else {"judged_by": one.judge.model}
    said = {"without_answer": int(one.failed[0]), "measures": measures, "warning": found.warning, "notes": found.notes}
    return judged_by | counts | said


def in_words(found: Iterable[AnswerQuality]) -> list[tuple[str, str]]:
    """Returns, for a closing table, a row for what was measured by gold answers and in each kind: its name, and the means.

    Behind the means of what is judged stands the number of queries that they are over.
    """
    rows = []
    for one in (one for one in found if one.warning is None):
        if one.frame.gold:
            rows += [(f"{name} of answers", figure(mean)) for name, mean in one.means.items()]
        else:
            means = ", ".join(f"{name} {mean:.2f}" for name, mean in one.means.items())
            rows.append((f"answers, {one.frame.kind}", f"{means} ({len(one.frame.keys):,} queries)"))
    return rows


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def store_evaluation(
    storage: Storage, lists: Evaluation | None, answers: Sequence[AnswerQuality] = (), *, finished: bool = True
) -> None:
    """Stores an evaluation in a run's folder for `runs`, in place of an earlier one; nothing where nothing is measured.

    `finished`: whether the run was, when it was measured.
    """
    if values := evaluated_values(lists, answers):
        storage.put(EVALUATION, json.dumps({"finished": finished} | values, indent=1).encode())


def stored_evaluation(output: Storage, folder: str, *, finished: bool) -> dict[str, Any] | None:
    """Returns `evaluated_values` as they were stored; None: there are none, or they cannot be parsed.

    `finished`: whether the run is. Of a finished one, what was measured before its end, of the most frequent queries, is none.
    """
    try:
        values = json.loads(output.get(f"{folder}/{EVALUATION}") or b"null")
    except ValueError:
        return None
    if not isinstance(values, dict) or not values.keys() & {"measures", "answers", "judged_answers"}:
        return None
    return None if finished and not values.get("finished", True) else values
