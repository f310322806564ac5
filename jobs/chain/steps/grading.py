"""Grades of documents: asked alike wherever they are needed, so that one answer serves grading, refining and judging."""

from __future__ import annotations

from jobs.chain.steps.contexts import beginning
from jobs.job.steps import GRADE_KEYS
from rewriters.steps.reading import StepResult


def document_values(text: str, chars: int | None) -> dict[str, str]:
    """Returns what a prompt that grades a document is filled with; `chars`: its most characters, None: no limit."""
    return {"document": beginning(text, chars)}


def grade_of(result: StepResult) -> int | None:
    """Returns the grade that an answer says; None: it cannot be read."""
    if result.reason is not None:
        return None
    return result.grade if result.grade is not None else result.grades.get(GRADE_KEYS["relevance"])
