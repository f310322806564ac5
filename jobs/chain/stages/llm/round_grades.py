"""Grades of the documents that a refined query is written from, of arms whose LLM is shown documents by grade."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from jobs.chain.arms.generations import LlmTask
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.chain.stages.llm.first_results import Place
from jobs.chain.stages.llm.round_state import RoundState
from jobs.chain.steps.asking import ShardAnswers
from jobs.chain.steps.contexts import FoundText
from jobs.chain.steps.grading import document_values, grade_of
from jobs.tables import error_row
from rewriters.engines import Request
from rewriters.guards.mask import Mask
from rewriters.steps.reading import read_step

Shown = Mapping[Place, list[FoundText]]


class _RoundGradeAsked(NamedTuple):
    """The grade of one document that is asked for."""

    task: LlmTask
    request: Request
    key: Key


class RoundGrades:
    """Asks an LLM for grades; a document that the query has a grade of is not graded again."""

    def __init__(self, work: SharedWork, key: Callable[[Request], Key]) -> None:
        """Asks nothing yet; `key` returns what an answer is known by."""
        self._work, self._key = work, key
        self._graded = {arm: of for arm, of in work.generating("iteration") if of.grading is not None}

    def __call__(self, shown: Shown, answers: ShardAnswers, state: RoundState) -> Shown:
        """Returns documents with their grades, where the arm's are graded; what cannot be read is an error, and no grade."""
        asked: dict[tuple[Place, int], _RoundGradeAsked] = {}
        for (arm, row), documents in shown.items():
            if arm not in self._graded or (task := self._graded[arm].grading) is None:
                continue
            for number, one in enumerate(documents):
                values = document_values(one.text, self._graded[arm].document_chars)
                request = task.step.request(state.queries[row], values, Mask(task.mask), task.decoding, task.engine.key)
                asked[(arm, row), number] = _RoundGradeAsked(task, request, self._key(request))
        answers.add(one.request for one in asked.values())
        found = {place: list(documents) for place, documents in shown.items()}
        for (place, number), (task, request, key) in asked.items():
            made, (arm, row) = answers.made[key].completion, place
            state.requests[row].setdefault(key, replace(request, name=task.name))
            state.needed.setdefault(f"{task.name}@{made.model}", {}).setdefault(key, set()).add(self._work.answers[arm].arm)
            result = read_step(task.step, made, request.query)
            grade, document = grade_of(result), found[place][number]
            if grade is not None:
                found[place][number] = document._replace(grade=float(grade))
                continue
            words = f"document {document.doc_id!r}: {result.message}"
            state.note(row, error_row("iterate", task.name, result.reason, words, made.text, made.attempts))
        return found
