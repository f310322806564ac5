"""The answering stage: an LLM answers each query from the first results of each arm; arms with one context share the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.run.stage import shard_of
from jobs.chain.arms.generations import Generation
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.chain.search_texts import queries_of
from jobs.chain.stages.counts import with_counts
from jobs.chain.stages.documents import documents_of
from jobs.chain.stages.llm.first_results import ShownResults, corrected_results
from jobs.chain.stages.users import request_counts
from jobs.chain.steps.asking import AskedFor, Asking
from jobs.chain.steps.contexts import Context, FoundText, citations, context_of, token_counter
from jobs.chain.tables import ARM_ANSWER
from jobs.tables import WRONG_CITATION, error_row, with_appended, with_columns, with_failure
from rewriters.engines import Request
from rewriters.guards.mask import Mask, unmasked
from rewriters.query import Query
from rewriters.steps.reading import StepResult, read_step


class _AnswerAsked(NamedTuple):
    """What an arm asks of one query."""

    request: Request
    context: Context
    documents: Sequence[FoundText]
    mask: Mask
    key: Key


class Generate:
    """A worker of the answering stage, with all engines that answer."""

    # and `grades` and `corrections`, where results are graded
    NEEDS = ("shard", "query_id", "query", "context", "values", "documents", "fused", "ranked", "web", "counts")
    ADDS = pa.schema([("answers", pa.list_(ARM_ANSWER))])

    def __init__(
        self,
        work: SharedWork,
        job: AskedFor,
    ) -> None:
        self._work = work
        answering = [of for _, of in work.generating("generation")]
        most = max(int(one.decoding.get("max_tokens", 0)) for one in answering)
        engines = [one.engine for one in answering]
        self._asking = Asking("answer", engines, job, most)
        self.start_up = self._asking.start_up
        self._counters = [token_counter(one) for one in work.generations]
        self._documents = documents_of(work, (number for number, _ in work.generating("generation")))

    def close(self) -> None:
        """Closes the engines."""
        self._asking.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the answers of all arms, errors and costs."""
        asked = self._asked(table)
        answers = self._asking.open(shard_of(table))
        answers.add(one.request for of in asked.values() for one in of)
        answers.close()
        results: dict[tuple[Key, str], StepResult] = {}
        rows: list[list[dict[str, Any]]] = [[] for _ in range(table.num_rows)]
        errors: list[dict[tuple[Any, ...], dict[str, object]]] = [{} for _ in rows]
        requests: list[dict[Key, Request]] = [{} for _ in rows]
        counts: Counter[str] = Counter()
        needed: dict[str, dict[Key, set[str]]] = {}
        for number, of_arm in asked.items():
            arm, of = self._work.answers[number].arm, self._generation(number)
            for row, one in enumerate(of_arm):
                made = answers.made[one.key].completion
                if (one.key, of.key) not in results:
                    results[one.key, of.key] = read_step(of.step, made, one.request.query)
                requests[row].setdefault(one.key, replace(one.request, name=of.name))
                result = results[one.key, of.key]
                needed.setdefault(f"{of.name}@{made.model}", {}).setdefault(one.key, set()).add(arm)
                if result.text is None:
                    error = _error(of, result, made.text, made.attempts)
                    errors[row][error["component"], error["reason"], error["raw"]] = error
                    continue
                text = unmasked(result.text, one.mask.values)
                cited = citations(text, one.context.documents)
                if cited.wrong:
                    note = _wrong_citation(of, cited.wrong, len(one.context.documents), text)
                    errors[row][note["component"], note["reason"], note["raw"]] = note
                rows[row].append(_answer(number, one, made.model, text, result.cut, cited.doc_ids))
                counts["answers_cut"] += result.cut
        if self._work.only is None:
            counts.update(request_counts("answers", needed, answers.is_reused))
        found = pa.array(rows, pa.list_(ARM_ANSWER))
        table = with_appended(with_columns(table, self.ADDS, [found]), "errors", [list(of.values()) for of in errors])
        table = with_appended(table, "costs", [answers.costs(of) for of in requests])
        return with_counts(table, +counts)

    def _asked(self, table: pa.Table) -> dict[int, list[_AnswerAsked]]:
        """Returns, by index of the answers that are generated, what is asked of each query."""
        work, corrected = self._work, dict(self._work.correcting())
        most = {
            number: corrected[number].settings.documents if number in corrected else of.settings.documents
            for number, of in work.generating("generation")
        }
        first, queries = ShownResults(table, work).shown(self._documents, most), queries_of(table)
        kept = {
            number: corrected_results(table, number, rows) if number in corrected else rows for number, rows in first.items()
        }
        return {
            number: [
                self._ask(number, query, of[: self._generation(number).settings.documents])
                for query, of in zip(queries, rows, strict=True)
            ]
            for number, rows in kept.items()
        }

    def _ask(self, number: int, query: Query, documents: Sequence[FoundText]) -> _AnswerAsked:
        of, mask = self._generation(number), Mask(self._generation(number).mask)
        context = context_of(of, documents, self._counters[self._work.answers[number].generation or 0])
        request = of.step.request(query, {"documents": context.text}, mask, of.decoding, of.engine.key)
        return _AnswerAsked(request, context, documents[: len(context.documents)], mask, self._asking.key(request))

    def _generation(self, number: int) -> Generation:
        place = self._work.answers[number].generation
        assert place is not None
        return self._work.generations[place]


def _answer(number: int, asked: _AnswerAsked, model: str, text: str, cut: bool, cited: Sequence[str]) -> dict[str, Any]:
    context = asked.context
    documents = [
        {"doc_id": doc_id, "label": label or None} for doc_id, label in zip(context.documents, context.labels, strict=True)
    ]
    return {
        "answer": number, "text": text, "cut": cut, "cited": list(cited), "documents": documents,
        "texts": [one.text for one in asked.documents], "places": [one.place for one in asked.documents],
        "left_out": context.left_out, "cut_documents": context.cut, "model": model, "prompt_hash": asked.request.prompt_hash,
    }  # fmt: skip


def _error(of: Generation, result: StepResult, raw: str | None, attempts: int) -> dict[str, object]:
    return error_row("answer", of.name, result.reason, str(result.message), raw, attempts)


def _wrong_citation(of: Generation, wrong: Sequence[int], shown: int, text: str) -> dict[str, object]:
    numbers = ", ".join(map(str, wrong))
    message = f"the answer cites {numbers}, and its context has {shown} documents"
    return error_row("answer", of.name, WRONG_CITATION, message, text)


def without_answers(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which the stage failed, without answers and with a row in errors."""
    table = with_failure(table, "answer", error)
    return with_columns(table, Generate.ADDS, [pa.array([[]] * table.num_rows, pa.list_(ARM_ANSWER))])
