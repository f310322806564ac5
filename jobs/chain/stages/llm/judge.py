"""The judging stage: an LLM grades the first results and the answers of all arms; each text once, whichever arms have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.run.stage import heartbeat, shard_of
from jobs.chain.arms.judging import CRITERIA, RELEVANCE, Judging
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.chain.search_texts import queries_of
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.documents import Corpora, documents_of
from jobs.chain.stages.stored_rows import Rankings
from jobs.chain.steps.asking import AskedFor, Asking
from jobs.chain.steps.contexts import NO_DOCUMENTS, beginning
from jobs.chain.web.texts import document_pages
from jobs.job.steps import GRADE_KEYS
from jobs.llm_tables import JUDGEMENT
from jobs.tables import with_appended, with_columns, with_failure
from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.query import Query
from rewriters.steps.reading import StepResult, read_step
from rewriters.strategy import render

Row = dict[str, Any]
NO_GOLD = "(none is known)"


class _JudgementAsked(NamedTuple):
    """What the judge is asked about one thing."""

    judging: Judging
    doc_id: str | None
    arm: str | None
    request: Request
    key: Key


class Judge:
    """A worker of the judging stage, with the engine that judges."""

    NEEDS = ("shard", "query_id", "query", "context", "values", "documents", "fused", "ranked", "web")
    ADDS = pa.schema([("judgements", pa.list_(JUDGEMENT))])

    def __init__(
        self,
        work: SharedWork,
        job: AskedFor,
        gold: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Starts the engine and opens the documents.

        Args:
            work: Of all arms.
            job: For which is asked.
            gold: query_id -> gold answers, of the queries that have some.
        """
        self._work, self._gold = work, gold
        most = max(int(one.decoding.get("max_tokens", 0)) for one in work.judging)
        engines = [one.engine for one in work.judging]
        self._asking = Asking("judge", engines, job, most)
        self.start_up = self._asking.start_up
        shown = any(one.documents for one in work.judging)
        self._documents = documents_of(work, range(len(work.answers)) if shown else ())

    def close(self) -> None:
        """Closes the engine."""
        self._asking.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the judgements, errors and costs."""
        queries = queries_of(table)
        asked: list[list[_JudgementAsked]] = [[] for _ in queries]
        for judging in self._work.judging:
            things = self._of_documents if judging.kind == RELEVANCE else self._of_answers
            for row, one in things(judging, table, queries):
                asked[row].append(one)
        answers = self._asking.open(shard_of(table))
        answers.add(one.request for of in asked for one in of)
        answers.close()
        rows: list[list[Row]] = [[] for _ in queries]
        errors: list[list[Row]] = [[] for _ in queries]
        results: dict[Key, StepResult] = {}
        for row, of_query in enumerate(asked):
            for one in of_query:
                made = answers.made[one.key].completion
                if one.key not in results:
                    results[one.key] = read_step(one.judging.step, made, one.request.query)
                if results[one.key].text is None:
                    errors[row].append(_error(one, results[one.key], made))
                else:
                    rows[row] += _judgements(one, results[one.key], made.model)
        table = with_columns(table, self.ADDS, [pa.array(rows, pa.list_(JUDGEMENT))])
        paid = table.column("asked").to_pylist() if "asked" in table.column_names else [()] * len(queries)
        spent = [answers.costs({one.key: one.request for one in of}, known) for of, known in zip(asked, paid, strict=True)]
        return with_appended(with_appended(table, "errors", errors), "costs", spent)

    def _of_documents(self, judging: Judging, table: pa.Table, queries: list[Query]) -> Iterator[tuple[int, _JudgementAsked]]:
        """Yields the row and what is asked of each document that is among the first results of any arm.

        A page of the web is judged once for all arms, by the text that it has in the first of them.
        """
        work = self._work
        block = Candidates(table, len(work.answers), len(work.rerankers))
        ranked, doc_ids = Rankings(table, block, work), block.doc_ids.to_pylist()
        pages, of_page = document_pages(table), dict[tuple[int, str], str]()
        wanted: dict[Corpora, dict[tuple[int, str], None]] = {key: {} for key in self._documents}
        for number, answer in enumerate(work.answers):
            first = ranked.first(number, judging.documents)
            for row, place in zip(first.row.tolist(), first.document.tolist(), strict=True):
                wanted[answer.documents][row, doc_ids[place]] = None
                if place in pages:
                    of_page.setdefault((row, doc_ids[place]), pages[place][0])
        told = set[tuple[int, str, Key]]()
        for key, pairs_of in wanted.items():
            ids = list(dict.fromkeys(pair[1] for pair in pairs_of if pair not in of_page))
            texts = dict(zip(ids, self._documents[key].texts(ids, heartbeat), strict=True))
            for row, doc_id in sorted(pairs_of):
                text = of_page[row, doc_id] if (row, doc_id) in of_page else texts[doc_id]
                text = beginning(text, judging.document_chars)
                for asked in self._asked(judging, queries[row], {"document": text}, doc_id=doc_id):
                    if (row, doc_id, asked.key) not in told:  # two indexes have the document
                        told.add((row, doc_id, asked.key))
                        yield row, asked

    def _of_answers(self, judging: Judging, table: pa.Table, queries: list[Query]) -> Iterator[tuple[int, _JudgementAsked]]:
        """Yields the row and what is asked of each arm's answer; equal ones are one request."""
        answers = table.column("answers").to_pylist()
        for row, of_query in enumerate(answers):
            for one in of_query:
                answer = self._work.answers[one["answer"]]
                mask = Mask(judging.mask)
                mask(queries[row].text)  # first, so that the answer has the placeholders of the query
                values = {"answer": mask(one["text"])}
                if judging.kind == CRITERIA:
                    values["documents"] = _numbered(judging, list(zip(one["texts"], one["places"], strict=True)))
                else:
                    gold = self._gold.get(queries[row].query_id, ())
                    values["gold"] = "\n".join(f"- {known}" for known in gold) or NO_GOLD
                yield from ((row, asked) for asked in self._asked(judging, queries[row], values, arm=answer.arm))

    def _asked(
        self, judging: Judging, query: Query, values: Mapping[str, str], doc_id: str | None = None, arm: str | None = None
    ) -> Iterator[_JudgementAsked]:
        """Yields what is asked about one thing, once for each sample."""
        for sample in range(judging.samples):
            mask = Mask(judging.mask)
            request = judging.step.request(query, values, mask, judging.decoding, judging.engine.key, sample)
            yield _JudgementAsked(judging, doc_id, arm, request, self._asking.key(request))


def _judgements(asked: _JudgementAsked, result: StepResult, model: str) -> list[Row]:
    kind = asked.judging.kind
    if result.grade is not None:
        grades = {kind: result.grade}
    elif kind in GRADE_KEYS:
        grades = {kind: result.grades[GRADE_KEYS[kind]]}
    else:
        grades = {f"{kind}/{name}": grade for name, grade in result.grades.items()}
    return [
        {
            "kind": name, "doc_id": asked.doc_id, "arm": asked.arm, "grade": grade, "sample": asked.request.sample,
            "model": model, "prompt_hash": asked.request.prompt_hash,
        }
        for name, grade in grades.items()
    ]  # fmt: skip


def _numbered(judging: Judging, documents: Sequence[tuple[str, str]]) -> str:
    """Returns documents as the judge is shown them, each a text with its place."""
    shown = [
        render(judging.step.document, {
            "number": str(number), "source": f" (source: {place})" if place else "", "label": "", "text": text,
        })
        for number, (text, place) in enumerate(documents, start=1)
    ]  # fmt: skip
    return "\n\n".join(shown) or NO_DOCUMENTS


def _named(asked: _JudgementAsked) -> str:
    return f"document {asked.doc_id!r}" if asked.doc_id is not None else f"the answer of {asked.arm}"


def _error(asked: _JudgementAsked, result: StepResult, made: Completion) -> Row:
    return {
        "stage": "judge", "component": asked.judging.step.name, "reason": result.reason,
        "message": f"{_named(asked)}: {result.message}", "raw": made.text, "attempts": made.attempts,
    }  # fmt: skip


def without_judgements(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which the stage failed, without judgements and with a row in errors; RetrieverErrors are raised."""
    table = with_failure(table, "judge", error)
    return with_columns(table, Judge.ADDS, [pa.array([[]] * table.num_rows, pa.list_(JUDGEMENT))])
