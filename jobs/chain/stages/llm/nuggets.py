"""Nuggets of the judging stage: facts that a good answer has, made from relevant documents and found in the arms' answers.

As AutoNuggetizer does (Pradeep et al. 2024, arXiv 2411.09607): a list grows by some documents at a time, then each nugget is
vital or okay, then each is found in an answer wholly, in part or not at all. Here what cannot be read is an error row, and
neither a label nor a nugget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from jobs.chain.arms.judging import Judging, NuggetJudging
from jobs.chain.journal import Key
from jobs.chain.steps.asking import ShardAnswers
from jobs.tables import error_row
from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask, unmasked
from rewriters.normalise import normalise
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
EMPTIED = "the list has no nugget, and before these documents it had some"
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
    left_out: list[int]
    """Of each query, nuggets beyond the most that it may have."""


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
    before: int = 0
    """Nuggets that the list has; a list that has none any more is no answer."""


class _NuggetsAnswered(NamedTuple):
    asked: _NuggetsAsked
    result: StepResult
    model: str
    mask: Mask
    """With which it was asked."""


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
        found = FoundNuggets(nuggets, assignments, errors, [{} for _ in queries], {}, [0] * len(queries))
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
        """Returns the texts of each query's nuggets: those of the last list that could be read.

        Documents with one text are shown once.
        """
        judging, most = self._judging.create, self._judging.settings.most
        texts: list[list[str]] = [[] for _ in queries]
        shown = [_once(of) for of in documents]
        size = self._judging.settings.documents_at_once
        for begin in range(0, max(map(len, shown), default=0), size):
            asked = [
                _NuggetsAsked(
                    row, judging,
                    {"documents": _shown(judging, part), "nuggets": _numbered(texts[row]), "most": str(most)},
                    self._arms, "the nuggets of the query", before=len(texts[row]),
                )
                for row, of in enumerate(shown) if (part := of[begin : begin + size])
            ]  # fmt: skip
            for one in self._ask(found, answers, queries, asked):
                listed = _distinct(unmasked(text, one.mask.values) for text in one.result.texts)
                texts[one.asked.row] = listed[:most]
                found.left_out[one.asked.row] += len(listed[most:])
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
        for one in self._ask(found, answers, queries, asked):
            labels[one.asked.row] += [(IMPORTANCE[label], one.model) for label in one.result.labels]
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
        for one in self._ask(found, answers, queries, asked):
            (arm,) = one.asked.arms
            found.assignments[one.asked.row] += [
                {"arm": arm, "nugget": number, "assignment": ASSIGNMENTS[label], "sample": one.asked.sample, "model": one.model,
                 "prompt_hash": judging.step.prompt_hash}
                for number, label in enumerate(one.result.labels, start=one.asked.first)
            ]  # fmt: skip

    def _ask(
        self, found: FoundNuggets, answers: ShardAnswers, queries: Sequence[Query], asked: Sequence[_NuggetsAsked]
    ) -> Iterator[_NuggetsAnswered]:
        """Yields what was asked with its result and model, of results that can be read; the others are errors."""
        masks = [Mask(one.judging.mask) for one in asked]
        requests = [self._request(queries[one.row], one, mask) for one, mask in zip(asked, masks, strict=True)]
        answers.add(requests)
        for one, request, mask in zip(asked, requests, masks, strict=True):
            key, name = self._key(request), one.judging.name
            made = answers.made[key].completion
            found.requests[one.row][key] = replace(request, name=name)
            found.needed.setdefault(f"{name}@{made.model}", {}).setdefault(key, set()).update(one.arms)
            result = _read(one, request, made)
            if result.text is None:
                found.errors[one.row].append(judge_error(name, one.about, result, made))
            else:
                yield _NuggetsAnswered(one, result, made.model, mask)

    def _request(self, query: Query, asked: _NuggetsAsked, mask: Mask) -> Request:
        """Returns a request; what is masked in the query is masked in the answer, and in nuggets that it is compared with."""
        judging = asked.judging
        mask(query.text)  # first, so that the others have the placeholders of the query
        values = dict(asked.values) | ({} if asked.answer is None else {"answer": mask(asked.answer)})
        values["nuggets"] = mask(values["nuggets"])
        return judging.step.request(query, values, mask, judging.decoding, judging.engine.key, asked.sample)


def _read(asked: _NuggetsAsked, request: Request, made: Completion) -> StepResult:
    """Returns the result of a request: none where it has not a label for each nugget, or no nugget of a list that had some."""
    result = read_step(asked.judging.step, made, request.query)
    if result.text is not None and len(result.labels) != asked.labels:
        return StepResult(None, reason="unparsable", message=MESSAGES["unparsable"])
    if result.text is not None and asked.before and not result.texts:
        return StepResult(None, reason="unparsable", message=EMPTIED)
    return result


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


def _once(documents: Iterable[JudgedText]) -> list[JudgedText]:
    """Returns documents, of several with one text the first."""
    found: dict[str, JudgedText] = {}
    for one in documents:
        found.setdefault(one.text, one)
    return list(found.values())


def _distinct(texts: Iterable[str]) -> list[str]:
    """Returns texts in one line each, without those that say the same in normal form."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(normalise(text), " ".join(text.split()))
    return list(found.values())
