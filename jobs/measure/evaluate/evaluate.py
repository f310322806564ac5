"""Retrieval quality against relevance judgements: of the results, of the original query alone, and of their difference.

Judgements name log rows or queries. A mean is over the judged keys that are counted (`jobs/measure/evaluate/per_query.py`):
those in the log whose query is committed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.job.measure_names import depths
from jobs.log.judgements import Judgements, Key, read_qrels
from jobs.measure.evaluate.intervals import LEVEL, RESAMPLES, Floats, mean_interval
from jobs.measure.evaluate.looked import MARK, Looked, looked, uneven
from jobs.measure.evaluate.measure import DEPTH, MEASURES, title
from jobs.measure.evaluate.per_query import ListLengths, PerQuery, kept, per_query, sums_by_query
from jobs.measure.evaluate.unknown import UnknownDocuments, unknown_documents
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import figure

__all__ = ["MEASURES", "Evaluation", "Judgements", "evaluate", "evaluation_table", "evaluation_values", "read_qrels"]

# Skewed values held the true mean in 80 % of cases with 10 queries, 89 with 50, 93 with 150: see test_bootstrap.py.
FEW_QUERIES = 50
_WORDS: dict[Key, tuple[str, str, str]] = {  # key -> one of them, several, the config key to look at where none is in the log
    "log_id": ("log row", "log rows", "log.id_column and evaluate.key"),
    "query_id": ("query_id", "query_ids", "evaluate.key"),
    "query": ("query", "queries", "evaluate.key"),
}


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
    """Measure -> 95 % interval of the mean of results - original; None without `original`, or with fewer than two queries."""
    not_committed: int = 0
    """Number of judged keys whose query is not committed yet."""
    rejected: int = 0
    """Number of judged log rows that were rejected; they count zero."""
    without_results: int = 0
    """Number of judged keys whose committed query has no result; they count zero."""
    queries: int = 0
    """Number of distinct queries of the counted keys; each rejected row counts as one."""
    unjudged: float | None = None
    """Share of the results, as deep as the measures read, without a judgement; they count as not relevant."""
    original_unjudged: float | None = None
    """Share of the documents of the original alone, as deep, without a judgement."""
    kept: int = DEPTH
    """Most results of a query; if fewer than measures read, the original alone is cut there, too."""
    reranked: bool = False
    """Whether the results are reranked."""
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
    looked: Mapping[str, Looked] = field(default_factory=dict)
    """Measure -> how deep it looked into the results, of measures whose lists were cut above their depth."""
    original_looked: Mapping[str, Looked] = field(default_factory=dict)
    """The same of the original alone."""
    uneven: frozenset[str] = frozenset()
    """Measures of which lists of the results and of the original end at different depths, one of them cut."""

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
        return None if self.counted else nothing_measured(self.judged, self.not_committed, self.unmatched, self.key)


def evaluate(run: RunFolder, judgements: Judgements, measures: Sequence[str] | None = None) -> Evaluation:
    """Returns the measures of a run's committed results; those of its config by default.

    Raises:
        ConfigError: a measure cannot be computed, or files of the run cannot be read.
    """
    return evaluation(run, judgements, per_query(run, judgements, measures))


def evaluation(run: RunFolder, judgements: Judgements, values: PerQuery) -> Evaluation:
    """Returns the means of the values that `per_query` found."""
    original = values.original
    queries, intervals = 0, None
    if values.keys:
        sums, sizes = sums_by_query(values.results - (0 if original is None else original), values.query_ids)
        queries = len(sizes)
        intervals = None if original is None else _by_measure(values.measures, mean_interval(sums, sizes))
    reads = dict(zip(values.measures, depths(values.measures), strict=True))
    own, alone = values.lists, values.original_lists
    return Evaluation(
        judged=values.judged,
        missing=values.missing,
        results=_means(values.measures, values.results),
        original=None if original is None else _means(values.measures, original),
        intervals=intervals,
        not_committed=values.not_committed,
        rejected=values.rejected,
        without_results=values.without_results,
        queries=queries,
        unjudged=values.unjudged,
        original_unjudged=values.original_unjudged,
        kept=kept(run),
        reranked=run.config.rerank.kind != "none",
        unmatched=values.unmatched,
        key=judgements.key,
        unknown=unknown_documents(run, judgements),
        joining=run.config.joining,
        depth=values.depth,
        looked=_looked(own, reads),
        original_looked={} if alone is None else _looked(alone, reads),
        uneven=frozenset(
            name for name, depth in reads.items() if alone is not None and uneven(*own, alone.lengths, alone.least, depth)
        ),
    )


def nothing_measured(judged: int, not_committed: int, unmatched: tuple[str, str] | None, key: Key) -> str:
    """Returns why no key is counted, in one line.

    Args:
        judged: number of keys with judgements.
        not_committed: number of those in the log, whose query is not committed.
        unmatched: a key of the judgements and one of the log, as examples.
        key: what the judgements name.
    """
    _, words, look = _WORDS[key]
    if not_committed:
        return f"nothing is measured: the queries of all {not_committed:,} judged {words} of the log are not committed"
    found = ""
    if unmatched is not None:
        named, logged = (f"{name[:80]!r}" for name in unmatched)
        found = f": the judgements say {named}, the log {logged}"
    return f"nothing is measured: none of {judged:,} judged {words} is in the log{found}; see {look}"


def _means(names: Sequence[str], values: Floats) -> dict[str, float]:
    means = values.sum(axis=0) / len(values) if len(values) else [math.nan] * len(names)
    return dict(zip(names, map(float, means), strict=True))


def _by_measure(names: Sequence[str], ends: Floats | None) -> dict[str, tuple[float, float]] | None:
    return None if ends is None else {name: (float(low), float(high)) for name, (low, high) in zip(names, ends, strict=True)}


def _looked(lists: ListLengths, reads: Mapping[str, int]) -> dict[str, Looked]:
    found = {name: looked(lists.lengths, lists.least, depth) for name, depth in reads.items()}
    return {name: one for name, one in found.items() if one is not None}


# ---------------------------------------------------------------- output


def evaluation_table(evaluation: Evaluation) -> RenderableType:
    """Returns a table with a row per measure and the notes below, at most 80 columns wide; only a warning for nothing."""
    if evaluation.warning is not None:
        return Text(f"warning: {evaluation.warning}")
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76, caption_justify="left", caption_style="")
    table.add_column("", style="bold", no_wrap=True, ratio=1)
    for head in ("results", evaluation.alone.replace(", ", ",\n", 1), "difference", f"{100 * LEVEL:.0f} % interval"):
        table.add_column(head, justify="right", no_wrap=True)
    original, differences, intervals = evaluation.original, evaluation.differences, evaluation.intervals
    for name in evaluation.measures:
        alone = "-" if original is None else marked(figure(original[name]), name in evaluation.original_looked)
        difference = "-" if differences is None else marked(figure(differences[name], "+"), name in evaluation.uneven)
        interval = "-" if intervals is None else " to ".join(figure(end, "+") for end in intervals[name])
        results = marked(figure(evaluation.results[name]), name in evaluation.looked)
        table.add_row(title(name), results, alone, difference, interval)
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
            "looked": evaluation.looked[name]._asdict() if name in evaluation.looked else None,
            "original_looked": evaluation.original_looked[name]._asdict() if name in evaluation.original_looked else None,
            "uneven": name in evaluation.uneven,
        }
        for name in evaluation.measures
    }
    names = ("judged", "missing", "not_committed", "counted", "queries", "rejected", "without_results", "unjudged")
    counts = {name: getattr(evaluation, name) for name in (*names, "original_unjudged", "kept", "reranked")}
    said = {"warning": evaluation.warning, "notes": evaluation_notes(evaluation)}
    unknown = evaluation.unknown
    counts["unknown_documents"] = None if unknown is None else {"unknown": unknown.unknown, "looked_up": unknown.looked_up}
    return {"key": evaluation.key} | counts | {"measures": measures} | said


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """Returns notes on the figures: what they include, leave out and assume; a sentence each."""
    one = evaluation
    if one.warning is not None:
        return [f"warning: {one.warning}"]
    left_out = [(one.missing, "not in the log"), (one.not_committed, "of queries not committed yet")]
    left = ", ".join(f"{count:,} {where}" for count, where in left_out if count)
    rows = f"{one.counted:,} {_WORDS[one.key][one.counted != 1]} of " if one.key == "log_id" else ""
    notes = [f"judged: {rows}{one.queries:,} distinct queries" + (f"; left out: {left}" if left else "")]
    if one.unknown is not None:
        notes.append(one.unknown.note)
    zero = [(one.without_results, "without results"), (one.rejected, "rejected")]
    if words := ", ".join(f"{count:,} {why}" for count, why in zero if count):
        notes.append(f"counted as zero: {words}")
    if one.unjudged is not None:
        alone = "" if one.original_unjudged is None else f", {100 * one.original_unjudged:.1f} % of the original's"
        first = f"{100 * one.unjudged:.1f} % of the results' first {min(one.kept, one.depth)}"
        notes.append(f"not judged, so not relevant: {first}{alone}")
    if one.original is None:
        why = f"{' and '.join(one.joining)} searched it as one with its rewrites" if one.joining else ""
        notes.append(f"original alone: not measured, since {why or 'retrieve.keep_runs is false'}")
    elif one.reranked:
        notes.append(f"{one.alone}: the results are reranked, so the difference is of rewriting and reranking together")
    notes += looked_notes([("results", one.looked), ("original alone", one.original_looked)], one.counted)
    if one.uneven:
        notes.append(f"{MARK} at a difference: lists of both end at different depths, so it is of the cuts, too")
    if one.kept < one.depth:
        notes.append(f"lists end after {one.kept} documents (what the run kept), the original's, too")
    if one.original is not None:
        if one.intervals is None:
            notes.append("no interval: it takes two distinct queries")
        else:
            few = "; of so few queries rather too narrow" if one.queries < FEW_QUERIES else ""
            notes.append(f"interval: of the mean difference, {RESAMPLES:,} draws of the distinct queries{few}")
    return notes


def looked_notes(sides: Sequence[tuple[str, Mapping[str, Looked]]], keys: int) -> list[str]:
    """Returns how deep measures looked whose lists were cut above their depth, one note for measures and sides alike.

    Args:
        sides: what was measured, and measure -> how deep it looked.
        keys: number of judged keys that count.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for side, of in sides:
        for name, one in of.items():
            few = "" if one.keys == keys else f" for {one.keys:,} of {keys:,} judged"
            found.setdefault(f"{one}{few}", {}).setdefault(side, []).append(name)
    notes = []
    for words, by_side in found.items():
        for names in dict.fromkeys(tuple(names) for names in by_side.values()):
            whose = " and ".join(side for side, of in by_side.items() if tuple(of) == names)
            notes.append(f"{MARK} {', '.join(names)} {words}: {whose}; what stands behind was cut off")
    return notes


def marked(words: str, cut: bool) -> str:
    """Returns a figure with `MARK` where the lists that it is of were cut above the measure's depth."""
    return words + MARK * cut


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
