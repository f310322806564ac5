"""The grading stage: the first results of each arm are graded before they are answered from, and ambiguous ones refined.

Corrective RAG (Yan et al. 2024, arXiv 2401.15884): query and rewrites become one question; each document is graded against it;
of ambiguous ones the sentences that help are kept; where the documents do not suffice, a query to the web is written, which the
next stage asks.
"""

import re
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import pyarrow as pa

from jobs.chain.arms.shared_work import Answer
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.block import Ask, LlmBlock, Reply, Step
from jobs.chain.stages.llm.first_results import Rows, ShownResults
from jobs.chain.stages.llm.stage import LlmStage
from jobs.chain.steps.contexts import beginning
from jobs.chain.tables import ARM_CORRECTION, ARM_GRADE
from jobs.counts import GRADED_DOCUMENTS
from jobs.job.steps import ANSWER_KEYS, GRADE_KEYS
from rewriters.guards.mask import Mask, unmasked
from rewriters.query import Query
from rewriters.reading.words.sentences import split_sentences
from rewriters.steps.results import MESSAGES, StepResult
from rewriters.steps.settings import AMBIGUOUS, RELEVANT, GradeSettings

RERANK = "rerank"  # value of `grade.by`
NONE_KEPT = "none"  # what the LLM says where no sentence helps
Graded = tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]
"""The grades of the first results of each query, best first, and what was made of them."""


class Grade(LlmStage):
    """A worker of the grading stage."""

    STAGE = "grade"
    NEEDS = ("shard", "query_id", "query", "context", "values", "rewrites", "documents", "fused", "web", "counts")
    ADDS = pa.schema([("grades", pa.list_(ARM_GRADE)), ("corrections", pa.list_(ARM_CORRECTION))])

    def rows(self, block: LlmBlock) -> tuple[Any, ...]:
        """Returns the grades, and the questions and queries to the web."""
        most = {number: arm.grade.documents for number, arm in self._arms.items() if arm.grade is not None}
        first = ShownResults(block.table, self._work).shown(self._documents, most)
        rewrites = block.table.column("rewrites").to_pylist()
        steps = {
            number: grade(arm, block, first[number], [self._work.texts_of(number, of_row) for of_row in rewrites])
            for number, arm in self._arms.items()
        }
        grades, corrections = ([list[dict[str, Any]]() for _ in block.queries] for _ in range(2))
        for number, graded in block.run(steps).items():
            for row, (of_row, correction) in enumerate(zip(*graded, strict=True)):
                grades[row] += [one | {"answer": number} for one in of_row]
                corrections[row].append(correction | {"answer": number})
                for document in of_row:
                    block.count(number, GRADED_DOCUMENTS.key(document.get("verdict") or "ungraded"))
        return grades, corrections


def grade(arm: Answer, block: LlmBlock, results: Rows, rewrites: Sequence[Sequence[str]]) -> Step[Graded]:
    """Grades first results, keeps what helps of ambiguous ones, and writes a query to the web where they do not suffice.

    Args:
        arm: With what is asked of LLMs, and how its results are graded.
        block: The queries.
        results: Of each query, best first.
        rewrites: The texts of each query in the arm.
    """
    settings = arm.grade
    assert settings is not None
    corrections: list[dict[str, Any]] = [{} for _ in block.queries]
    if "grade.question" in arm.tasks:
        asks = [_question(arm.tasks["grade.question"], block, row, texts) for row, texts in enumerate(rewrites) if texts]
        for ask, text, model in _said(block, "grade.question", asks, (yield asks)):
            corrections[ask.row] |= {"question": text, "question_model": model}
    questions = [
        query._replace(text=fix.get("question", query.text)) for query, fix in zip(block.queries, corrections, strict=True)
    ]
    against = questions if settings.question is not None and settings.against != "query" else block.queries
    grades: list[list[dict[str, Any]]] = [
        [{"rank": rank, "doc_id": one.doc_id} for rank, one in enumerate(of_row, start=1)] for of_row in results
    ]
    places = [(row, place) for row, of_row in enumerate(results) for place in range(len(of_row))]
    if settings.by == RERANK:
        for row, at in places:
            _set_grade(settings, grades[row][at], results[row][at].reranked)
    else:
        shown = [beginning(results[row][place].text, settings.document_chars) for row, place in places]
        asks = [
            _about(block, arm.tasks["grade"], row, against[row], {"document": text}).about(results[row][at].doc_id)
            for (row, at), text in zip(places, shown, strict=True)
        ]
        for (row, at), ask, reply in zip(places, asks, (yield asks), strict=True):
            if (number := grade_of(reply.result)) is None:
                block.note(ask, reply, f"document {grades[row][at]['doc_id']!r}: ")
                continue
            _set_grade(settings, grades[row][at], float(number))
            grades[row][at] |= {"model": reply.completion.model, "prompt_hash": ask.request.prompt_hash}
    if "grade.strips" in arm.tasks:
        places = [(row, place) for row, place in places if grades[row][place].get("verdict") == AMBIGUOUS]
        sentences = [split_sentences(results[row][place].text) for row, place in places]
        shown = ["\n".join(f"[{n}] {' '.join(one.split())}" for n, one in enumerate(of, start=1)) for of in sentences]
        asks = [
            _about(block, arm.tasks["grade.strips"], row, against[row], {"document": text}).about(results[row][at].doc_id)
            for (row, at), text in zip(places, shown, strict=True)
        ]
        for (row, at), sentences_of, ask, reply in zip(places, sentences, asks, (yield asks), strict=True):
            for _, text, _ in _said(block, "grade.strips", [ask], [reply]):
                if (kept := named_sentences(text, len(sentences_of))) is None:
                    named = f"document {grades[row][at]['doc_id']!r}: "
                    block.note(ask, reply, named, reason="unparsable", message=MESSAGES["unparsable"])
                else:
                    grades[row][at]["strips"] = " ".join(sentences_of[number - 1] for number in kept)
    verdicts = [[one.get("verdict") or "" for one in of_row] for of_row in grades]
    if arm.web is not None:
        is_any = arm.web.when == "any"
        rows = [row for row, of_row in enumerate(verdicts) if RELEVANT not in of_row or (is_any and {*of_row} != {RELEVANT})]
        asks = [_about(block, arm.tasks["web"], row, questions[row], {}) for row in rows]
        for ask, text, model in _said(block, "web", asks, (yield asks)):
            corrections[ask.row] |= {"web_query": text, "web_model": model}
    return grades, corrections


def _question(task: LlmTask, block: LlmBlock, row: int, texts: Sequence[str]) -> Ask:
    """Asks for one question that says what a query and its rewrites ask."""
    mask = Mask(task.mask)
    mask(block.queries[row].text)  # first, so that the rewrites have its placeholders
    return block.ask(task, row, {"rewrites": "\n".join(f"- {' '.join(mask(text).split())}" for text in texts)}, mask)


def _about(block: LlmBlock, task: LlmTask, row: int, query: Query, values: dict[str, str]) -> Ask:
    """Asks about a query, or about a question in its place, which no query_id tells from others."""
    mask, original = Mask(task.mask), block.queries[row].text
    if query.text != original:
        values = {**values, "question": query.text}
        mask(original)  # first, so that what is masked in the query is in the question, too
    return block.ask(task, row, values, mask, query)


def _said(block: LlmBlock, key: str, asks: Sequence[Ask], replies: Sequence[Reply]) -> Iterator[tuple[Ask, str, str]]:
    """Yields each request whose reply has a value, with the value in one line, and the model; notes the others."""
    for ask, reply in zip(asks, replies, strict=True):
        if reply.result.reason is not None:
            block.note(ask, reply)
        else:
            text = " ".join(unmasked(reply.result.fields[ANSWER_KEYS[key]], ask.mask.values).split())
            yield ask, text, reply.completion.model


def _set_grade(settings: GradeSettings, graded: dict[str, Any], grade: float | None) -> None:
    if grade is not None and not isnan(grade):  # else the reranker has failed on the query, and said so
        graded |= {"grade": grade, "verdict": settings.verdict(grade)}


def grade_of(result: StepResult) -> int | None:
    """Returns the grade that an answer says; None: it cannot be read."""
    if result.reason is not None:
        return None
    return result.grade if result.grade is not None else result.grades.get(GRADE_KEYS["relevance"])


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
