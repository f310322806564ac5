"""The judging stage: an LLM grades the first results of all arms; each document of a query once, whichever arms have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.costs import Prices
from cluster.run.stage import heartbeat, shard_of
from jobs.chain.arms.corpora import Corpus
from jobs.chain.arms.judging import Judging
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.documents import planned_documents
from jobs.chain.stages.stored_rows import Rankings
from jobs.chain.steps.asking import Asking
from jobs.chain.store.files import StoreFiles
from jobs.job.steps import GRADE_KEYS
from jobs.tables import JUDGEMENT, with_appended, with_columns, with_failure
from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.query import Query
from rewriters.steps.reading import StepResult, read_step

Row = dict[str, Any]


class _JudgementAsked(NamedTuple):
    """What the judge is asked about one thing."""

    judging: Judging
    doc_id: str
    request: Request
    key: Key


class Judge:
    """A worker of the judging stage, with the engine that judges."""

    NEEDS = ("shard", "query_id", "query", "context", "documents", "fused", "ranked")
    ADDS = pa.schema([("judgements", pa.list_(JUDGEMENT))])

    def __init__(
        self,
        work: SharedWork,
        run: str,
        store: StoreFiles,
        start: int,
        gpus: float = 0.0,
        prices: Prices | None = None,
        unsaved_seconds: float = 30.0,
    ) -> None:
        """Starts the engine and opens the documents.

        Args:
            work: Of all arms.
            run: The job's folder.
            store: Has completions of other jobs.
            start: The number of this start of the job, from 1.
            gpus: The number of accelerators of the worker.
            prices: Of the job, if it has a budget.
            unsaved_seconds: The config's `limits.unsaved_seconds`.
        """
        self._work = work
        most = max(int(one.decoding.get("max_tokens", 0)) for one in work.judging)
        engines = [one.engine for one in work.judging]
        self._asking = Asking("judge", engines, run, store, start, gpus, prices, unsaved_seconds, most)
        self.start_up = self._asking.start_up
        judged = work.answers if any(one.documents for one in work.judging) else ()
        self._documents = {of: planned_documents(of, work.retrievers) for of in dict.fromkeys(one.documents for one in judged)}

    def close(self) -> None:
        """Closes the engine."""
        self._asking.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the judgements, errors and costs."""
        columns = (table.column(name).to_pylist() for name in ("query_id", "query", "context"))
        queries = [Query(*values) for values in zip(*columns, strict=True)]
        asked: list[list[_JudgementAsked]] = [[] for _ in queries]
        for judging in self._work.judging:
            for row, one in self._of_documents(judging, table, queries):
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
        spent = [answers.costs({one.key: one.request for one in of}) for of in asked]
        return with_appended(with_appended(table, "errors", errors), "costs", spent)

    def _of_documents(self, judging: Judging, table: pa.Table, queries: list[Query]) -> Iterator[tuple[int, _JudgementAsked]]:
        """Yields the row and what is asked of each document that is among the first results of any arm."""
        work = self._work
        block = Candidates(table, len(work.answers), len(work.rerankers))
        ranked, doc_ids = Rankings(table, block, work), block.doc_ids.to_pylist()
        wanted: dict[tuple[Corpus, ...], dict[tuple[int, str], None]] = {key: {} for key in self._documents}
        for number, answer in enumerate(work.answers):
            first = ranked.first(number, judging.documents)
            pairs = zip(first.row.tolist(), (doc_ids[place] for place in first.document.tolist()), strict=True)
            wanted[answer.documents] |= dict.fromkeys(pairs)
        told = set[tuple[int, str, Key]]()
        for key, pairs_of in wanted.items():
            ids = list(dict.fromkeys(doc_id for _, doc_id in pairs_of))
            texts = dict(zip(ids, self._documents[key].texts(ids, heartbeat), strict=True))
            for row, doc_id in sorted(pairs_of):
                text = texts[doc_id]
                if judging.document_chars is not None and len(text) > judging.document_chars:
                    text = text[: judging.document_chars].rstrip() + " ..."
                for asked in self._asked(judging, queries[row], doc_id, {"document": text}):
                    if (row, doc_id, asked.key) not in told:  # two indexes have the document
                        told.add((row, doc_id, asked.key))
                        yield row, asked

    def _asked(self, judging: Judging, query: Query, doc_id: str, values: Mapping[str, str]) -> Iterator[_JudgementAsked]:
        """Yields what is asked about one thing, once for each sample."""
        for sample in range(judging.samples):
            mask = Mask(judging.mask)
            request = judging.step.request(query, values, mask, judging.decoding, judging.engine.key, sample)
            yield _JudgementAsked(judging, doc_id, request, self._asking.key(request))


def _judgements(asked: _JudgementAsked, result: StepResult, model: str) -> list[Row]:
    kind = asked.judging.kind
    grades = {kind: result.grade} if result.grade is not None else {kind: result.grades[GRADE_KEYS[kind]]}
    return [
        {
            "kind": name, "doc_id": asked.doc_id, "grade": grade, "sample": asked.request.sample, "model": model,
            "prompt_hash": asked.request.prompt_hash,
        }
        for name, grade in grades.items()
    ]  # fmt: skip


def _error(asked: _JudgementAsked, result: StepResult, made: Completion) -> Row:
    return {
        "stage": "judge", "component": asked.judging.step.name, "reason": result.reason,
        "message": f"document {asked.doc_id!r}: {result.message}", "raw": made.text, "attempts": made.attempts,
    }  # fmt: skip


def without_judgements(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which the stage failed, without judgements and with a row in errors; RetrieverErrors are raised."""
    table = with_failure(table, "judge", error)
    return with_columns(table, Judge.ADDS, [pa.array([[]] * table.num_rows, pa.list_(JUDGEMENT))])
