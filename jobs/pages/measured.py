"""What was measured of a run, with its judged queries: their grades, and the gain of each over the original alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers
from jobs.measure.evaluate import AnswerQuality, Evaluation, answers_values, evaluate, measured_answers
from jobs.measure.frame import Frame
from jobs.measure.measures import title
from jobs.measure.notes import EXPLAINED, HEADINGS, interval_words, table_notes
from jobs.measure.significance import SIGNS
from jobs.pages.comparison import WIDTH, drawn
from jobs.pages.render import Head, Table, difference, interval
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL
from jobs.terminal.formats import figure


@dataclass(frozen=True)
class MeasuredRun:
    """The quality of a run's results and answers, as far as they were measured."""

    lists: Evaluation | None = None
    answers: Sequence[AnswerQuality] = ()
    judgements: Judgements | None = None

    @property
    def frame(self) -> Frame | None:
        """Returns the judged keys of the lists."""
        return None if self.lists is None else self.lists.frame

    @property
    def known(self) -> Evaluation | None:
        """Returns the quality of the results, if at least one query counts."""
        return None if self.lists is None or self.lists.warning is not None else self.lists

    @property
    def leading(self) -> str:
        """Returns the first measure, beside that of the original alone; empty: not measured."""
        if self.known is None:
            return ""
        name, pair = next(iter(self.known.pairs.items()))
        return f"{name} of run {figure(pair.b)}" + ("" if pair.a is None else f", of {ORIGINAL} {figure(pair.a)}")

    @property
    def frames(self) -> list[Frame]:
        """Returns the measured keys of the lists, then those of the answers."""
        return [*([] if self.frame is None else [self.frame]), *(one.frame for one in self.answers)]

    @property
    def warnings(self) -> list[str]:
        """Returns why something was not measured."""
        warnings = [None if self.lists is None else self.lists.warning, *(one.warning for one in self.answers)]
        return [warning for warning in warnings if warning is not None]

    def tables(self, *, wide: bool) -> Iterator[tuple[Table | None, list[str]]]:
        """Yields the table of the lists and those of the answers, each with its notes; None where nothing was measured.

        `wide`: with words where a terminal has signs.
        """
        if self.lists is not None:
            columns = [Head("measure" if wide else ""), Head("results", figure)]
            columns += [Head(self.lists.alone.replace(", ", ",\n", 1), figure), Head("difference", difference)]
            columns += [Head(interval_words(), interval), Head("verdict" if wide else "")]
            rows = []
            for name, pair in self.lists.pairs.items():
                verdict = (pair.verdict or "") if wide else SIGNS.get(pair.verdict, "")
                rows.append([title(name), pair.b, pair.a, pair.difference, drawn(pair), verdict])
            notes = self.lists.notes + table_notes(self.lists.pairs, self.lists.margin)
            yield None if self.known is None else Table(columns, rows), notes
        for one in self.answers:
            heading, notes = HEADINGS[one.frame.kind], [*[EXPLAINED[one.frame.kind]] * wide, *one.notes]
            if one.warning is not None:
                yield None, [f"warning: {heading}: {one.warning}"]
                continue
            columns = [Head("measure" if wide else ""), Head("answers", figure), Head(interval_words(), str.strip)]
            ends = {name: " to ".join(map(figure, pair or ())) or None for name, pair in one.intervals.items()}
            yield Table(columns, [[name, mean, ends[name]] for name, mean in one.means.items()], heading), notes

    def page(self) -> RenderableType:
        """Returns the tables of what was measured, one below the other."""
        parts: list[RenderableType] = []
        for table, notes in self.tables(wide=False):
            parts += [""] * bool(parts)
            parts += [Text("\n".join(notes))] if table is None else [table.terminal(WIDTH), "", Text("\n".join(notes))]
        return Group(*parts)

    def values(self) -> dict[str, Any]:
        """Returns the values of the lists, and those of the answers; JSON-able."""
        return ({} if self.lists is None else self.lists.values()) | answers_values(self.answers)

    @cached_property
    def grades(self) -> dict[str, dict[str, int]]:
        """Returns query_id -> doc_id -> grade, the highest of the query's judgements."""
        grades: dict[str, dict[str, int]] = {}
        if self.frame is not None and self.judgements is not None:
            for key, query_id in zip(self.frame.keys, self.frame.query_ids, strict=True):
                if query_id is not None:
                    own = grades.setdefault(query_id, {})
                    for doc_id, grade in self.judgements.grades[key].items():
                        own[doc_id] = max(grade, own.get(doc_id, grade))
        return grades

    @cached_property
    def by_query(self) -> dict[str, tuple[float, float | None]]:
        """Returns query_id -> the leading measure of its results and of the original alone (None: not measured)."""
        if self.frame is None:
            return {}
        first = self.frame.by_query[:, 0].tolist()
        alone = first[1] if len(first) > 1 else [None] * self.frame.distinct
        return dict(zip(self.grades, zip(first[0], alone, strict=True), strict=False))  # rejected rows stand behind the queries

    @property
    def gains(self) -> list[tuple[str, float]]:
        """Returns (query_id, gain over the original alone), the greatest gain first; empty where it was not measured."""
        gains = [(name, round(results - alone, 9)) for name, (results, alone) in self.by_query.items() if alone is not None]
        return sorted(gains, key=lambda one: (-one[1], one[0]))


UNMEASURED = MeasuredRun()


def measured_run(
    run: RunFolder, judgements: Judgements | None, gold: GoldAnswers | None, measures: Sequence[str] | None = None
) -> MeasuredRun:
    """Measures a run by its config's measures or these."""
    lists = None if judgements is None else evaluate(run, judgements, measures)
    return MeasuredRun(lists, measured_answers(run, gold), judgements)
