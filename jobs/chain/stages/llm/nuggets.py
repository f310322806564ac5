"""Nuggets of the judging stage: facts that a good answer has, made from relevant documents and found in the arms' answers.

As AutoNuggetizer does (Pradeep et al. 2024, arXiv 2411.09607): a list grows by some documents at a time, then each nugget is
vital or okay, then each is found in an answer wholly, in part or not at all. Here what cannot be read is an error row, and
neither a label nor a nugget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from jobs.chain.arms.judging import Judging, NuggetJudging
from jobs.chain.journal import Key
from jobs.chain.steps.asking import ShardAnswers
from jobs.chain.steps.replays import outcome_of_reason
from jobs.tables import error_row
from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.normalise import normalise
from rewriters.outcome.retries import Outcome
from rewriters.query import Query
from rewriters.steps.reading import MESSAGES, StepResult, read_step
from rewriters.strategy import render

Row = dict[str, Any]
Needed = dict[str, dict[Key, set[str]]]
"""Component -> the requests of it -> the arms that need their answers."""
OKAY, VITAL = "okay", "vital"
IMPORTANCE = (OKAY, VITAL)  # by label
ASSIGNMENTS = ("not_support", "partial_support", "support")  # likewise
NO_NUGGETS = "(none)"
Item = TypeVar("Item")


class JudgedText(NamedTuple):
    """A document as the judge has seen it, or an answer; `name` is its doc_id or its arm."""

    name: str
    text: str


class FoundNuggets(NamedTuple):
    """What was made and found for the queries of a block, row by row."""

    nuggets: list[list[Row]]
    assignments: list[list[Row]]
    errors: list[list[Row]]
    requests: list[dict[Key, Request]]
    needed: Needed


class _NuggetsAsked(NamedTuple):
    row: int
    judging: Judging
    values: Mapping[str, str]
    arms: Iterable[str]
    about: str
    labels: int = 0
    """As many are needed; 0: texts are asked for."""
    answer: str | None = None
    sample: int = 0
    first: int = 1
    """The number of the first nugget."""


class NuggetJudge:
    """Makes nuggets and finds them, by the answers of a shard."""

    def __init__(self, judging: NuggetJudging, arms: Sequence[str], key: Callable[[Request], Key]) -> None:
        """Asks nothing yet.

        Args:
            judging: How nuggets are made and found.
            arms: That answer: the nuggets of a query are made for all of them, whichever have answered it.
            key: Returns what a request's completion is known by.
        """
        self._judging, self._arms, self._key = judging, arms, key

    def __call__(
        self,
        answers: ShardAnswers,
        queries: Sequence[Query],
        documents: Sequence[Sequence[JudgedText]],
        answered: Sequence[Sequence[JudgedText]],
    ) -> FoundNuggets:
        """Returns the nuggets of queries, and those that their answers say.

        Args:
            answers: Of the shard, not closed yet.
            queries: Of the block.
            documents: Of each query, those that nuggets are made from.
            answered: Of each query, the answers of the arms.
        """
        nuggets, assignments, errors = ([list[Row]() for _ in queries] for _ in range(3))
        found = FoundNuggets(nuggets, assignments, errors, [{} for _ in queries], {})
        texts = self._create(found, answers, queries, documents)
        labelled = self._label(found, answers, queries, texts)
        for row, of in enumerate(labelled):
            ranked = sorted(of, key=lambda one: one[1] != VITAL)
            from_documents = {"documents": [one.name for one in documents[row]]}
            found.nuggets[row] += [
                {"nugget": number, "text": text, "importance": importance, "model": model,
                 "prompt_hash": self._judging.create.step.prompt_hash} | from_documents
                for number, (text, importance, model) in enumerate(ranked, start=1)
            ]  # fmt: skip
        self._assign(found, answers, queries, answered)
        return found

    def _create(
        self,
        found: FoundNuggets,
        answers: ShardAnswers,
        queries: Sequence[Query],
        documents: Sequence[Sequence[JudgedText]],
    ) -> list[list[str]]:
        """Returns the texts of each query's nuggets: those of the last list that could be read."""
        judging, most = self._judging.create, self._judging.settings.most
        texts: list[list[str]] = [[] for _ in queries]
        size = self._judging.settings.documents_at_once
        for begin in range(0, max(map(len, documents), default=0), size):
            asked = [
                _NuggetsAsked(
                    row, judging,
                    {"documents": _shown(judging, part), "nuggets": _numbered(texts[row]), "most": str(most)},
                    self._arms, "the nuggets of the query",
                )
                for row, of in enumerate(documents) if (part := of[begin : begin + size])
            ]  # fmt: skip
            for one, result, _ in self._ask(found, answers, queries, asked):
                texts[one.row] = _distinct(result.texts)[:most]
        return texts

    def _label(
        self,
        found: FoundNuggets,
        answers: ShardAnswers,
        queries: Sequence[Query],
        texts: Sequence[Sequence[str]],
    ) -> list[list[tuple[str, str, str]]]:
        """Returns (text, importance, model) of each query's nuggets; of one of which some have no label none."""
        judging, size, about = self._judging.importance, self._judging.settings.nuggets_at_once, "the importance of its nuggets"
        asked = [
            _NuggetsAsked(row, judging, {"nuggets": _numbered(part)}, self._arms, about, len(part))
            for row, of in enumerate(texts)
            for part in _parts(of, size)
        ]
        labels: list[list[tuple[str, str]]] = [[] for _ in queries]
        for one, result, model in self._ask(found, answers, queries, asked):
            labels[one.row] += [(IMPORTANCE[label], model) for label in result.labels]
        return [
            [(text, *label) for text, label in zip(of, known, strict=True)] if len(known) == len(of) else []
            for of, known in zip(texts, labels, strict=True)
        ]

    def _assign(
        self,
        found: FoundNuggets,
        answers: ShardAnswers,
        queries: Sequence[Query],
        answered: Sequence[Sequence[JudgedText]],
    ) -> None:
        """Finds the nuggets of each query in its answers."""
        judging, size = self._judging.support, self._judging.settings.nuggets_at_once
        asked = []
        for row, of in enumerate(answered):
            texts = [one["text"] for one in found.nuggets[row]]
            for answer in of:
                for sample in range(judging.samples):
                    for number, part in enumerate(_parts(texts, size)):
                        values, about = {"nuggets": _numbered(part)}, f"the nuggets in the answer of {answer.name}"
                        told = len(part), answer.text, sample, 1 + number * size
                        asked.append(_NuggetsAsked(row, judging, values, [answer.name], about, *told))
        for one, result, model in self._ask(found, answers, queries, asked):
            (arm,) = one.arms
            found.assignments[one.row] += [
                {"arm": arm, "nugget": number, "assignment": ASSIGNMENTS[label], "sample": one.sample, "model": model,
                 "prompt_hash": judging.step.prompt_hash}
                for number, label in enumerate(result.labels, start=one.first)
            ]  # fmt: skip

    def _ask(
        self, found: FoundNuggets, answers: ShardAnswers, queries: Sequence[Query], asked: Sequence[_NuggetsAsked]
    ) -> Iterator[tuple[_NuggetsAsked, StepResult, str]]:
        """Yields what was asked with its result and model, of results that can be read; the others are errors."""
        requests = [self._request(queries[one.row], one) for one in asked]
        answers.add_steps((request, partial(_outcome, one, request)) for one, request in zip(asked, requests, strict=True))
        for one, request in zip(asked, requests, strict=True):
            key = self._key(request)
            made = answers.made[key].completion
            found.requests[one.row][key] = request
            found.needed.setdefault(f"{request.name}@{made.model}", {}).setdefault(key, set()).update(one.arms)
            result = _read(one, request, made)
            if result.text is None:
                found.errors[one.row].append(judge_error(one.judging.step.name, one.about, result, made))
            else:
                yield one, result, made.model

    def _request(self, query: Query, asked: _NuggetsAsked) -> Request:
        judging, mask = asked.judging, Mask(asked.judging.mask)
        mask(query.text)  # first, so that the answer has the placeholders of the query
        values = dict(asked.values) | ({} if asked.answer is None else {"answer": mask(asked.answer)})
        return judging.step.request(query, values, mask, judging.decoding, judging.engine.key, asked.sample)


def _read(asked: _NuggetsAsked, request: Request, made: Completion) -> StepResult:
    """Returns the result of a request: none where it has not a label for each nugget."""
    result = read_step(asked.judging.step, made, request.query)
    if result.text is not None and len(result.labels) != asked.labels:
        return StepResult(None, reason="unparsable", message=MESSAGES["unparsable"])
    return result


def _outcome(asked: _NuggetsAsked, request: Request, made: Completion) -> Outcome:
    return outcome_of_reason(_read(asked, request, made).reason)


def judge_error(component: str, about: str, result: StepResult, made: Completion) -> Row:
    """Returns the row in errors of a judgement that there is none of; `about` says of what."""
    return error_row("judge", component, str(result.reason), f"{about}: {result.message}", made.text, made.attempts)


def _parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1)) or NO_NUGGETS


def _shown(judging: Judging, documents: Sequence[JudgedText]) -> str:
    return "\n\n".join(
        render(judging.step.document, {"number": str(number), "source": "", "label": "", "text": one.text})
        for number, one in enumerate(documents, start=1)
    )


def _distinct(texts: Iterable[str]) -> list[str]:
    """Returns texts in one line each, without those that say the same in normal form."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(normalise(text), " ".join(text.split()))
    return list(found.values())
