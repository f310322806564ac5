"""Exact match and F1 of a run's answers: means with their intervals, as a table and as JSON-able values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.measure.answers.frame import GoldAnswers, answer_frame, answering
from jobs.measure.frame import Frame
from jobs.measure.notes import interval_words, judged_note, nothing_measured, zero_notes
from jobs.measure.significance import FEW_QUERIES, paired_test
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import figure


@dataclass(frozen=True)
class AnswerMean:
    """A measure of the answers."""

    mean: float
    """Over the counted keys; NaN if there are none."""
    interval: tuple[float, float] | None
    """Its 95 % interval, over clusters; None with fewer than two, or where all have the same value."""


@dataclass(frozen=True)
class AnswerQuality:
    """What gold answers say of a run's answers."""

    frame: Frame
    """Of its one arm."""
    measures: dict[str, AnswerMean]

    @property
    def warning(self) -> str | None:
        """Returns why nothing was measured, in one line; None if something was."""
        one = self.frame
        if one.keys:
            return None
        return nothing_measured(one.judged, one.not_committed, one.unmatched, one.key, answers=True)

    @property
    def notes(self) -> list[str]:
        """Returns what the figures include and leave out, a sentence each."""
        one = self.frame
        if self.warning is not None:
            return [f"warning: {self.warning}"]
        left_out = (one.missing, "not in the log"), (one.not_committed, "of queries not committed yet")
        notes = [judged_note(one.key, len(one.keys), one.distinct, *left_out, clusters=one.drawn, answers=True)]
        notes += zero_notes((int(one.failed[0]), "without an answer"), (one.rejected, "rejected"))
        if any(of.interval for of in self.measures.values()):
            rough = "; of so few clusters a rough one" * (one.drawn < FEW_QUERIES)
            notes.append(f"{interval_words()}: of the mean, Student's t over clusters of near-duplicates{rough}")
        return notes


def answer_quality(run: RunFolder, gold: GoldAnswers | None) -> AnswerQuality | None:
    """Returns the quality of a run's answers; None without gold answers, or if no LLM answers in it.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    if gold is None or not answering(run):
        return None
    frame = answer_frame(run, gold)
    if not frame.keys:
        return AnswerQuality(frame, {name: AnswerMean(math.nan, None) for name in frame.measures})
    test = paired_test(frame.values[0], frame.clusters)
    return AnswerQuality(
        frame,
        {name: AnswerMean(float(test.mean[place]), test.interval(place)) for place, name in enumerate(frame.measures)},
    )


def answer_table(found: AnswerQuality) -> RenderableType:
    """Returns a table with a row per measure and the notes below; only a warning for nothing."""
    if found.warning is not None:
        return Text(f"warning: {found.warning}")
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76, caption_justify="left", caption_style="")
    table.add_column("", style="bold", no_wrap=True, ratio=1)
    for head in ("answers", interval_words()):
        table.add_column(head, justify="right", no_wrap=True)
    for name, one in found.measures.items():
        table.add_row(name, figure(one.mean), _ends(one.interval))
    table.caption = Text("\n" + "\n".join(found.notes))
    return table


def _ends(interval: tuple[float, float] | None) -> str:
    return "-" if interval is None else " to ".join(map(figure, interval))


def answer_values(found: AnswerQuality) -> dict[str, Any]:
    """Returns the quality of the answers as JSON-able values; unknown ones are None."""
    one = found.frame
    return {
        "key": one.key,
        "judged": one.judged,
        "missing": one.missing,
        "not_committed": one.not_committed,
        "counted": len(one.keys),
        "queries": one.distinct,
        "rejected": one.rejected,
        "without_answer": int(one.failed[0]),
        "measures": {
            name: {"answers": None if math.isnan(of.mean) else of.mean, "interval": of.interval and list(of.interval)}
            for name, of in found.measures.items()
        },
        "warning": found.warning,
        "notes": found.notes,
    }
