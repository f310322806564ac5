"""The grading stage: the first results of each arm are graded before they are answered from, and ambiguous ones refined.

Corrective RAG (Yan et al. 2024, arXiv 2401.15884): query and rewrites become one question; each document is graded against it;
of ambiguous ones the sentences that help are kept; where the documents do not suffice, a query to the web is written, which the
next stage asks. What arms have in common is asked once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.run.stage import shard_of
from jobs.chain.arms.corrections import Correction
from jobs.chain.arms.generations import LlmTask
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.chain.search_texts import queries_of
from jobs.chain.stages.counts import with_counts
from jobs.chain.stages.documents import documents_of
from jobs.chain.stages.llm.first_results import Place, Rows, ShownResults
from jobs.chain.stages.llm.paid_before import PaidBefore, answered
from jobs.chain.steps.asked_about import numbered_sentences
from jobs.chain.steps.asking import AskedFor, Asking, ShardAnswers
from jobs.chain.steps.grading import document_values, grade_of
from jobs.chain.tables import ARM_CORRECTION, ARM_GRADE, ASKED
from jobs.counts import GradedDocuments, arm_key
from jobs.job.steps import ANSWER_KEYS
from jobs.tables import error_row, with_appended, with_columns, with_failure
from rewriters.engines import Request
from rewriters.guards.mask import Mask, unmasked
from rewriters.query import Query
from rewriters.reading.words.sentences import split_sentences
from rewriters.steps.reading import MESSAGES, StepResult, read_step
from rewriters.steps.settings import AMBIGUOUS

RERANK = "rerank"  # value of `grade.by`
NONE_KEPT = "none"  # what the LLM says where no sentence helps

DocumentPlace = tuple[int, int, int]
"""Index of an arm, row of the block, and place among the first results, from 0."""


class Grade:
    """A worker of the grading stage, with all engines that it asks."""

    NEEDS = ("shard", "query_id", "query", "context", "values", "rewrites", "documents", "fused", "ranked", "web", "counts")
    ADDS = pa.schema(
        [
            ("grades", pa.list_(ARM_GRADE)),
            ("corrections", pa.list_(ARM_CORRECTION)),
            ("asked", pa.list_(ASKED)),  # requests that later stages do not pay for
        ]
    )

    def __init__(self, work: SharedWork, job: AskedFor) -> None:
        self._work, self._correcting = work, work.correcting()
        tasks = [task for _, of in self._correcting for task in of.tasks.values()]
        most = max((int(one.decoding.get("max_tokens", 0)) for one in tasks), default=0)
        self._asking = Asking("grade", [one.engine for one in tasks], job, most)
        self.start_up = self._asking.start_up
        self._documents = documents_of(work, (number for number, _ in self._correcting))

    def close(self) -> None:
        """Closes the engines."""
        self._asking.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the grades, the questions and the queries to the web, errors and costs."""
        most = {number: of.settings.documents for number, of in self._correcting}
        first = ShownResults(table, self._work).shown(self._documents, most)
        block = _Graded(table, self._work, self._asking, first)
        block.questions()
        block.grades()
        block.strips()
        block.web_queries()
        return block.closed()


class _GradeAsked(NamedTuple):
    """A request of a task for one row."""

    task: LlmTask
    request: Request
    mask: Mask
    key: Key


class _Graded:
    """What is known of a block while it is graded."""

    def __init__(self, table: pa.Table, work: SharedWork, asking: Asking, first: Mapping[int, Rows]) -> None:
        self._table, self._work, self._asking, self._first = table, work, asking, first
        self._correcting = dict(work.correcting())
        self._queries = queries_of(table)
        self._texts = {one.query_id: one.text for one in self._queries}
        self._answers: ShardAnswers = asking.open(shard_of(table))
        self._results: dict[tuple[Key, str], StepResult] = {}
        self._requests: list[dict[Key, Request]] = [{} for _ in self._queries]
        self._errors: list[dict[tuple[Any, ...], dict[str, Any]]] = [{} for _ in self._queries]
        self._needed: dict[str, dict[Key, set[str]]] = {}
        self._grades: dict[DocumentPlace, dict[str, Any]] = {}
        self._corrections: dict[Place, dict[str, Any]] = {
            (number, row): {"answer": number} for number in first for row in range(table.num_rows)
        }

    def questions(self) -> None:
        """Makes one question of each query and its rewrites in an arm; a query without any is its own."""
        asked = {}
        rewrites = self._table.column("rewrites").to_pylist()
        for (number, row), _ in self._corrections.items():
            task, answer = self._correcting[number].tasks.get("grade.question"), self._work.answers[number]
            reading = self._work.readings[self._work.searches[answer.search].reading]
            texts = [
                one["text"] for one in rewrites[row]
                if reading.engines and one["arm"] == reading.name and one["strategy"] in answer.strategies
            ]  # fmt: skip
            if task is not None and texts:
                mask = Mask(task.mask)
                mask(self._queries[row].text)  # first, so that the rewrites have its placeholders
                values = {"rewrites": "\n".join(f"- {' '.join(mask(text).split())}" for text in texts)}
                asked[number, row] = self._ask(task, self._queries[row], values, mask)
        for (number, row), (one, result) in self._answered(asked).items():
            if (said := self._said(one, result, row, "grade.question")) is not None:
                question = " ".join(unmasked(said, one.mask.values).split())
                self._corrections[number, row] |= {"question": question, "question_model": self._made(one).model}

    def grades(self) -> None:
        """Grades the first results of each arm."""
        asked = {}
        for number, of in self._correcting.items():
            for row, documents in enumerate(self._first[number]):
                for place, document in enumerate(documents):
                    at = number, row, place
                    self._grades[at] = {"answer": number, "rank": place + 1, "doc_id": document.doc_id}
                    if of.settings.by == RERANK:
                        self._set_grade(at, document.reranked)
                        continue
                    task = of.tasks["grade"]
                    values = document_values(document.text, of.settings.document_chars)
                    asked[at] = self._ask(task, self._against(of, number, row), values, Mask(task.mask))
        for at, (one, result) in self._answered(asked).items():
            if (grade := grade_of(result)) is None:
                self._note(at[1], one, result, f"document {self._grades[at]['doc_id']!r}: ")
                continue
            self._set_grade(at, float(grade))
            self._grades[at] |= {"model": self._made(one).model, "prompt_hash": one.request.prompt_hash}

    def strips(self) -> None:
        """Keeps of each ambiguous document the sentences that help; one that cannot be refined stays whole."""
        asked, sentences = {}, dict[DocumentPlace, list[str]]()
        for at, graded in self._grades.items():
            number, row, place = at
            of = self._correcting[number]
            task = of.tasks.get("grade.strips")
            if task is None or graded.get("verdict") != AMBIGUOUS:
                continue
            sentences[at] = split_sentences(self._first[number][row][place].text)
            shown = {"document": numbered_sentences(sentences[at])}
            asked[at] = self._ask(task, self._against(of, number, row), shown, Mask(task.mask))
        for at, (one, result) in self._answered(asked).items():
            said = self._said(one, result, at[1], "grade.strips")
            if said is None:
                continue
            kept = _strips(result, len(sentences[at]))
            if kept is None:
                unreadable = result._replace(reason="unparsable", message=MESSAGES["unparsable"])
                self._note(at[1], one, unreadable, f"document {self._grades[at]['doc_id']!r}: ")
                continue
            self._grades[at]["strips"] = " ".join(sentences[at][n - 1] for n in kept)

    def web_queries(self) -> None:
        """Writes the query to the web where the verdicts ask for it."""
        verdicts: dict[Place, list[str]] = {at: [] for at in self._corrections}
        for (number, row, _), graded in self._grades.items():
            verdicts[number, row].append(graded.get("verdict") or "")
        asked = {}
        for (number, row), of_row in verdicts.items():
            of = self._correcting[number]
            if of.asks_web(of_row):
                task, question = of.tasks["web"], self._question(number, row)
                asked[number, row] = self._ask(task, question, {}, Mask(task.mask))
        for (number, row), (one, result) in self._answered(asked).items():
            if (said := self._said(one, result, row, "web")) is not None:
                text = " ".join(unmasked(said, one.mask.values).split())
                self._corrections[number, row] |= {"web_query": text, "web_model": self._made(one).model}

    def closed(self) -> pa.Table:
        """Returns the block; nothing is asked after it."""
        self._answers.close()
        grades: list[list[dict[str, Any]]] = [[] for _ in self._queries]
        counts: Counter[str] = Counter()
        for (number, row, _), one in self._grades.items():
            grades[row].append(one)
            key = GradedDocuments(one.get("verdict") or "ungraded").key
            counts[key if self._work.only is not None else arm_key(self._work.answers[number].arm, key)] += 1
        corrections: list[list[dict[str, Any]]] = [[] for _ in self._queries]
        for (_, row), one in self._corrections.items():
            corrections[row].append(one)
        paid = PaidBefore(self._table)
        if self._work.only is None:
            counts.update(paid.counts("grades", self._needed, self._answers.is_reused))
        asked = answered(list(self._texts), "grades", self._needed, self._answers.made)
        columns = [pa.array(grades, pa.list_(ARM_GRADE)), pa.array(corrections, pa.list_(ARM_CORRECTION)), asked]
        spent = [self._answers.costs(of, paid.of_row(row)) for row, of in enumerate(self._requests)]
        table = with_columns(self._table, Grade.ADDS, columns)
        table = with_appended(table, "errors", [list(of.values()) for of in self._errors])
        return with_counts(with_appended(table, "costs", spent), counts)

    def _question(self, number: int, row: int) -> Query:
        """Returns the question of a query in an arm, or the query where there is none."""
        question = self._corrections[number, row].get("question")
        return self._queries[row] if question is None else self._queries[row]._replace(text=question)

    def _against(self, of: Correction, number: int, row: int) -> Query:
        return self._question(number, row) if of.settings.against_question else self._queries[row]

    def _ask(self, task: LlmTask, query: Query, values: Mapping[str, str], mask: Mask) -> _GradeAsked:
        """Returns the request for a query, or for a question in its place, which no query_id tells from others."""
        if query.text != self._texts[query.query_id]:
            values = {**values, "question": query.text}
            mask(self._texts[query.query_id])  # first, so that what is masked in the query is in the question, too
        request = task.step.request(query, values, mask, task.decoding, task.engine.key)
        return _GradeAsked(task, request, mask, self._asking.key(request))

    def _answered(self, asked: Mapping[Any, _GradeAsked]) -> dict[Any, tuple[_GradeAsked, StepResult]]:
        """Returns what was answered, each request once; places begin with the arm and the row."""
        self._answers.add(one.request for one in asked.values())
        for (number, row, *_), one in asked.items():
            made = self._made(one)
            if (one.key, one.task.key) not in self._results:  # another prompt file may name other grades in the same words
                self._results[one.key, one.task.key] = read_step(one.task.step, made, one.request.query)
            self._requests[row].setdefault(one.key, replace(one.request, name=one.task.name))
            of = self._needed.setdefault(f"{one.task.name}@{made.model}", {})
            of.setdefault(one.key, set()).add(self._work.answers[number].arm)
        return {place: (one, self._results[one.key, one.task.key]) for place, one in asked.items()}

    def _made(self, one: _GradeAsked) -> Any:
        return self._answers.made[one.key].completion

    def _said(self, one: _GradeAsked, result: StepResult, row: int, key: str) -> str | None:
        """Returns the value of an object; None, with a row in errors: there is none."""
        if result.reason is not None:
            self._note(row, one, result)
            return None
        return result.fields[ANSWER_KEYS[key]]

    def _note(self, row: int, one: _GradeAsked, result: StepResult, what: str = "") -> None:
        made = self._made(one)
        error = error_row("grade", one.task.name, str(result.reason), f"{what}{result.message}", made.text, made.attempts)
        self._errors[row][error["component"], error["reason"], error["message"], error["raw"]] = error

    def _set_grade(self, at: DocumentPlace, grade: float | None) -> None:
        if grade is not None and not isnan(grade):  # else the reranker has failed on the query, and said so
            verdict = self._correcting[at[0]].settings.verdict(grade)
            self._grades[at] |= {"grade": grade, "verdict": verdict}


def _strips(result: StepResult, sentences: int) -> list[int] | None:
    """Returns the sentences that a result keeps; None: it names others, or says no number."""
    return named_sentences(result.fields[ANSWER_KEYS["grade.strips"]], sentences)


def named_sentences(said: str, sentences: int) -> list[int] | None:
    """Returns the distinct numbers of sentences that an answer names, in order; None: it names others, or says no number."""
    parts = re.findall(r"(\d{1,6})(?:\s*[-–—]\s*(\d{1,6}))?", said)
    ends = [(int(first), int(last or first)) for first, last in parts]
    if any(last - first > sentences for first, last in ends):
        return None
    numbers = sorted({one for first, last in ends for one in range(first, last + 1)})
    if not numbers:
        return [] if said.strip(" .").casefold() == NONE_KEPT else None
    return numbers if numbers[0] >= 1 and numbers[-1] <= sentences else None


def without_grades(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which the stage failed, ungraded and with a row in errors."""
    table = with_failure(table, "grade", error)
    return with_columns(table, Grade.ADDS, (pa.array([[]] * table.num_rows, field.type) for field in Grade.ADDS))
