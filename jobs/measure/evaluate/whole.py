"""All that is measured of a run: its lists, and its answers."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jobs.measure.answers.quality import AnswerQuality, answer_table, answer_values
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_table, evaluation_values


def evaluated_table(lists: Evaluation | None, answers: AnswerQuality | None) -> RenderableType:
    """Returns the tables of what was measured, one below the other."""
    found: list[RenderableType] = [] if lists is None else [evaluation_table(lists)]
    if answers is not None:
        found += [Text("")] * bool(found) + [answer_table(answers)]
    return Group(*found)


def evaluated_values(lists: Evaluation | None, answers: AnswerQuality | None) -> dict[str, Any]:
    """Returns the values of the lists, and under `answers` those of the answers; JSON-able."""
    values = {} if lists is None else evaluation_values(lists)
    return values if answers is None else values | {"answers": answer_values(answers)}
