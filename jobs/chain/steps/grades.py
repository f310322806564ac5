"""Grades of documents: asked alike wherever they are needed, so that one answer serves grading, refining and judging."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jobs.job.steps import GRADE_KEYS
from rewriters.steps.results import StepResult

NONE_KEPT = "none"  # what the LLM says where no sentence helps


def grade_of(result: StepResult) -> int | None:
    """Returns the grade that an answer says; None: it cannot be read."""
    if result.reason is not None:
        return None
    return result.grade if result.grade is not None else result.grades.get(GRADE_KEYS["relevance"])


def numbered_sentences(sentences: Iterable[str]) -> str:
    """Returns the sentences of a document as an LLM is shown them that says which help."""
    return "\n".join(f"[{n}] {' '.join(one.split())}" for n, one in enumerate(sentences, start=1))


def named_sentences(answer: str, sentences: int) -> list[int] | None:
    """Returns the distinct numbers of sentences that an answer names, in order; None: it names others, or says no number."""
    parts = re.findall(r"(\d{1,6})(?:\s*[-–—]\s*(\d{1,6}))?", answer)
    ends = [(int(first), int(last or first)) for first, last in parts]
    if any(last - first > sentences for first, last in ends):
        return None
    numbers = sorted({one for first, last in ends for one in range(first, last + 1)})
    if not numbers:
        return [] if answer.strip(" .").casefold() == NONE_KEPT else None
    return numbers if numbers[0] >= 1 and numbers[-1] <= sentences else None
