"""All that is measured of a run: its lists, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jobs.measure.answers.quality import AnswerQuality, answer_table, answers_values
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_table, evaluation_values


def evaluated_table(lists: Evaluation | None, answers: Sequence[AnswerQuality]) -> RenderableType:
    """Returns the tables of what was measured, one below the other."""
    found: list[RenderableType] = [] if lists is None else [evaluation_table(lists)]
    for one in answers:
        found += [Text("")] * bool(found) + [answer_table(one)]
    return Group(*found)


def evaluated_values(lists: Evaluation | None, answers: Sequence[AnswerQuality]) -> dict[str, Any]:
    """Returns the values of the lists, and of the answers under `answers` and `judged_answers`; JSON-able."""
    return ({} if lists is None else evaluation_values(lists)) | answers_values(answers)
