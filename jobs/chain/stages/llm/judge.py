"""The judging stage: an LLM grades the first results and the answers of all arms; each text once, whichever arms have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.run.stage import heartbeat, shard_of
from jobs.chain.arms.judging import ACCURACY, CRITERIA, RELEVANCE, Judging
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.chain.search_texts import queries_of
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.counts import with_counts
from jobs.chain.stages.documents import Corpora, documents_of
from jobs.chain.stages.llm.paid_before import PaidBefore
from jobs.chain.stages.stored_rows import Rankings
from jobs.chain.steps.asking import AskedFor, Asking, ShardAnswers
from jobs.chain.steps.contexts import NO_DOCUMENTS, beginning
from jobs.chain.web.texts import document_pages
from jobs.counts import WITHOUT_GOLD
from jobs.job.steps import GRADE_KEYS
from jobs.llm_tables import JUDGEMENT
from jobs.tables import error_row, with_appended, with_columns, with_failure
from rewriters.engines import Request
from rewriters.guards.mask import Mask
from rewriters.query import Query
from rewriters.steps.reading import StepResult, read_step
from rewriters.strategy import render

Row = dict[str, Any]
NO_GOLD = "(none is known)"
Needed = dict[str, dict[Key, set[str]]]
"""Component -> the requests of it -> the arms that need their answers."""


class _JudgementAsked(NamedTuple):
    """What the judge is asked about one thing, which some arms have."""

    judging: Judging
    doc_id: str | None
    arm: str | None
    arms: Collection[str]
    text: str
    request: Request
    key: Key


class _Judged(NamedTuple):
    """What the judge said of a block, row by row."""

    judgements: list[list[Row]]
    errors: list[list[Row]]
    requests: list[dict[Key, Request]]
    needed: Needed


class Judge:
    """A worker of the judging stage, with the engine that judges."""

    NEEDS = ("shard", "query_id", "query", "context", "values", "documents", "fused", "ranked", "web", "counts")
    ADDS = pa.schema([("judgements", pa.list_(JUDGEMENT))])

    def __init__(
        self,
        work: SharedWork,
        job: AskedFor,
        gold: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self._work, self._gold = work, gold
        most = max(int(one.decoding.get("max_tokens", 0)) for one in work.judging)
        self._asking = Asking("judge", [one.engine for one in work.judging], job, most)
        self.start_up = self._asking.start_up
        shown = any(one.documents for one in work.judging)
        self._documents = documents_of(work, range(len(work.answers)) if shown else ())

    def close(self) -> None:
        """Closes the engine."""
        self._asking.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the judgements, errors, counts and costs."""
        queries = queries_of(table)
        answers = self._asking.open(shard_of(table))
        judged = self._judge(table, queries, answers)
        answers.close()
        judgements = pa.array(judged.judgements, pa.list_(JUDGEMENT))
        table = with_appended(with_columns(table, self.ADDS, [judgements]), "errors", judged.errors)
        paid = PaidBefore(table)
        spent = [answers.costs(of, paid.of_row(row)) for row, of in enumerate(judged.requests)]
        table = with_appended(table, "costs", spent)
        counts: Counter[str] = Counter()
        if ACCURACY in (one.kind for one in self._work.judging):
            answered = table.column("answers").to_pylist()
            with_answers = [one for one, of in zip(queries, answered, strict=True) if of]
            counts[WITHOUT_GOLD] = sum(one.query_id not in self._gold for one in with_answers)
        if self._work.only is None:
            counts.update(paid.counts("judgements", judged.needed, answers.is_reused))
        return with_counts(table, {name: count for name, count in counts.items() if count})

    def _judge(self, table: pa.Table, queries: list[Query], answers: ShardAnswers) -> _Judged:
        asked: list[list[_JudgementAsked]] = [[] for _ in queries]
        for judging in self._work.judging:
            things = self._of_documents if judging.kind == RELEVANCE else self._of_answers
            for row, one in things(judging, table, queries):
                asked[row].append(one)
        answers.add(one.request for of in asked for one in of)
        found = _Judged([[] for _ in queries], [[] for _ in queries], [{} for _ in queries], {})
        results: dict[Key, StepResult] = {}
        for row, of_query in enumerate(asked):
            for one in of_query:
                made = answers.made[one.key].completion
                if one.key not in results:
                    results[one.key] = read_step(one.judging.step, made, one.request.query)
                result = results[one.key]
                name = one.judging.name
                found.requests[row][one.key] = replace(one.request, name=name)
                found.needed.setdefault(f"{name}@{made.model}", {}).setdefault(one.key, set()).update(one.arms)
                if result.text is None:
                    message = f"{_named(one)}: {result.message}"
                    found.errors[row].append(error_row("judge", name, str(result.reason), message, made.text, made.attempts))
                    continue
                found.judgements[row] += _judgements(one, result, made.model)
        return found

    def _of_documents(self, judging: Judging, table: pa.Table, queries: list[Query]) -> Iterator[tuple[int, _JudgementAsked]]:
        """Yields the row and what is asked of each document that is among the first results of any arm.

        A page of the web is judged once for all arms, by the text that it has in the first of them.
        """
        work = self._work
        block = Candidates(table, len(work.answers), len(work.rerankers))
        ranked, doc_ids = Rankings(table, block, work), block.doc_ids.to_pylist()
        pages, of_page = document_pages(table), dict[tuple[int, str], str]()
        wanted: dict[Corpora, dict[tuple[int, str], list[str]]] = {key: {} for key in self._documents}
        for number, answer in enumerate(work.answers):
            first = ranked.first(number, judging.documents)
            for row, place in zip(first.row.tolist(), first.document.tolist(), strict=True):
                wanted[answer.documents].setdefault((row, doc_ids[place]), []).append(answer.arm)
                if place in pages:
                    of_page.setdefault((row, doc_ids[place]), pages[place][0])
        told: dict[tuple[int, str, str], set[str]] = {}  # row, doc_id and text, which two indexes may have -> arms
        for key, pairs_of in wanted.items():
            ids = list(dict.fromkeys(pair[1] for pair in pairs_of if pair not in of_page))
            texts = dict(zip(ids, self._documents[key].texts(ids, heartbeat), strict=True))
            for (row, doc_id), arms in sorted(pairs_of.items()):
                text = of_page[row, doc_id] if (row, doc_id) in of_page else texts[doc_id]
                told.setdefault((row, doc_id, beginning(text, judging.document_chars)), set()).update(arms)
        for (row, doc_id, text), of_arms in told.items():
            values, mask = {"document": text}, Mask(judging.mask)
            yield row, self._asked(judging, queries[row], values, of_arms, text, mask, doc_id=doc_id)

    def _of_answers(self, judging: Judging, table: pa.Table, queries: list[Query]) -> Iterator[tuple[int, _JudgementAsked]]:
        """Yields the row and what is asked of each arm's answer; equal ones are one request."""
        answers = table.column("answers").to_pylist()
        for row, of_query in enumerate(answers):
            for one in of_query:
                answer = self._work.answers[one["answer"]]
                mask = Mask(judging.mask)
                mask(queries[row].text)  # first, so that the others have the placeholders of the query
                values = {"answer": mask(one["text"])}
                if judging.kind == CRITERIA:  # masked as the answer is, which is compared with it
                    values["documents"] = mask(_numbered(judging, list(zip(one["texts"], one["places"], strict=True))))
                else:
                    gold = self._gold.get(queries[row].query_id, ())
                    values["gold"] = mask("\n".join(f"- {known}" for known in gold)) or NO_GOLD
                yield row, self._asked(judging, queries[row], values, [answer.arm], one["text"], mask, arm=answer.arm)

    def _asked(
        self,
        judging: Judging,
        query: Query,
        values: Mapping[str, str],
        arms: Collection[str],
        text: str,
        mask: Mask,
        doc_id: str | None = None,
        arm: str | None = None,
    ) -> _JudgementAsked:
        """Returns what is asked about one text, which some arms have."""
        request = judging.step.request(query, values, mask, judging.decoding, judging.engine.key)
        return _JudgementAsked(judging, doc_id, arm, arms, text, request, self._asking.key(request))


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


def without_judgements(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which the stage failed, without judgements and with a row in errors."""
    table = with_failure(table, "judge", error)
    return with_columns(table, Judge.ADDS, [pa.array([[]] * table.num_rows, pa.list_(JUDGEMENT))])
