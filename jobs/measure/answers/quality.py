"""The measures of a run's answers, by gold answers or by a judge: means with intervals, as a table and as JSON-able values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.measure.answers.frame import GoldAnswers, answer_frame, answering
from jobs.measure.frame import Frame
from jobs.measure.judged.answers import judged_answer_frames
from jobs.measure.notes import HEADINGS, interval_words, judge_notes, judged_note, zero_notes
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
    """What gold answers, or a judge, say of a run's answers."""

    frame: Frame
    """Of its one arm."""
    measures: dict[str, AnswerMean]

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
        if any(of.interval for of in self.measures.values()):
            rough = "; of so few clusters a rough one" * (one.drawn < FEW_QUERIES)
            notes.append(f"{interval_words()}: of the mean, Student's t over clusters of near-duplicates{rough}")
        return notes


def measured_answers(run: RunFolder, gold: GoldAnswers | None) -> list[AnswerQuality]:
    """Returns the quality of a run's answers: against gold answers, if there are some, then in each kind that is judged.

    Empty if no LLM answers in it.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    frames = [] if gold is None or not answering(run) else [answer_frame(run, gold)]
    return [_quality(frame) for frame in (*frames, *judged_answer_frames(run))]


def in_words(found: Iterable[AnswerQuality]) -> list[tuple[str, str]]:
    """Returns, for a closing table, a row for what was measured by gold answers and in each kind: its name, and the means.

    Behind the means of what is judged stands the number of queries that they are over.
    """
    rows = []
    for one in found:
        if one.warning is not None:
            continue
        if one.frame.gold:
            rows += [(f"{name} of answers", figure(of.mean)) for name, of in one.measures.items()]
        else:
            means = ", ".join(f"{name} {of.mean:.2f}" for name, of in one.measures.items())
            rows.append((f"answers, {one.frame.kind}", f"{means} ({len(one.frame.keys):,} queries)"))
    return rows


def _quality(frame: Frame) -> AnswerQuality:
    if not frame.keys:
        return AnswerQuality(frame, {name: AnswerMean(math.nan, None) for name in frame.measures})
    test = paired_test(frame.values[0], frame.clusters)
    return AnswerQuality(
        frame,
        {name: AnswerMean(float(test.mean[place]), test.interval(place)) for place, name in enumerate(frame.measures)},
    )


def answer_table(found: AnswerQuality) -> RenderableType:
    """Returns a table with a row per measure and the notes below; only a warning for nothing."""
    title = HEADINGS[found.frame.kind]
    if found.warning is not None:
        return Text(f"warning: {title}: {found.warning}")
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76, caption_justify="left", caption_style="")
    table.add_column(title, style="bold", no_wrap=True, ratio=1)
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
        **({} if one.judge is None else {"judged_by": one.judge.model}),
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


def answers_values(found: Iterable[AnswerQuality]) -> dict[str, Any]:
    """Returns `answer_values` under `answers`, and under `judged_answers` those of each kind of judgement."""
    values: dict[str, Any] = {}
    for one in found:
        if one.frame.gold:
            values["answers"] = answer_values(one)
        else:
            values.setdefault("judged_answers", {})[one.frame.kind] = answer_values(one)
    return values
