"""The tokens of what LLMs are asked after retrieval (rounds, grades, answers, judgements), at most, where no run has told them.

How many requests there may be, how many documents one shows and how long an answer may be are settings; how long documents are
is told by some of the index. What an LLM has written before, such as the answer that is judged, counts as long as it may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.costs import Totals
from cluster.errors import ClusterError, RetrieverError
from jobs.chain.arms.requests import most_requests
from jobs.chain.steps.contexts import beginning
from jobs.config.config import Config
from jobs.job.opening import open_documents
from jobs.job.prepare import Prepared
from jobs.job.steps import ReadyStep
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.steps.settings import DocumentStepSettings, LabelGradeSettings
from rewriters.strategy import render

DOCUMENTS = 100  # of each index, whose lengths stand for those of all


class _StepRequests(NamedTuple):
    """What is asked of each query, at most."""

    stage: str
    step: ReadyStep
    requests: int
    documents: int = 0
    """That a request shows."""
    document_chars: int | None = None
    """The most characters of one."""
    context_tokens: int | None = None
    """The most tokens of them together."""
    written: int = 0
    """Tokens of what LLMs have written before."""


@dataclass(frozen=True)
class LaterTokens:
    """Sums over the remaining queries."""

    by_stage: Totals
    """Value of `costs.stage` -> `@model` -> prompt_tokens and completion_tokens."""
    basis: str
    prompt_tokens: dict[str, int] = field(default_factory=dict)
    completion_tokens: dict[str, int] = field(default_factory=dict)


def later_tokens(prepared: Prepared, left: int, texts: Sequence[str]) -> LaterTokens | None:
    """Returns the tokens of what LLMs are asked after retrieval, at most.

    None where nothing is asked, recordings answer, or the lengths of documents are not known: the web alone is searched, or an
    index is away.

    Args:
        prepared: The job.
        left: Queries that remain.
        texts: Of some queries.
    """
    asked = [one for one in _asked(prepared) if not one.step.engine.is_recorded]
    if not asked or not texts:
        return None
    documents = _documents(prepared) if any(one.documents for one in asked) else []
    if documents is None:
        return None
    found: Totals = {}
    counters = {one.step.engine.counted_by: TokenCounter(one.step.engine.counted_by) for one in asked}
    sources = dict.fromkeys(one.source for one in counters.values())
    for one in asked:
        decoding = one.step.decoding
        prompt = _prompt_tokens(one, counters[one.step.engine.counted_by], documents, texts)
        sums = found.setdefault(one.stage, {}).setdefault(f"x@{one.step.engine.shown}", {})
        for name, tokens in (("prompt_tokens", prompt), ("completion_tokens", int(decoding.get("max_tokens") or 0))):
            sums[name] = sums.get(name, 0) + round(left * one.requests * tokens)
    shown = f"documents as long as {len(documents):,} of the index on average, " if documents else ""
    basis = f"later steps: {shown}answers and lists as long as they may be ({'; '.join(sources)})"
    of_stages = {
        name: {stage: int(sum(of[name] for of in models.values())) for stage, models in found.items()}
        for name in ("prompt_tokens", "completion_tokens")
    }
    return LaterTokens(found, basis, **of_stages)


def any_paid(prepared: Prepared) -> bool:
    """Returns whether an LLM that is no recording is asked after retrieval."""
    return any(not one.step.engine.is_recorded for one in _asked(prepared))


def _asked(prepared: Prepared) -> Iterator[_StepRequests]:
    config, of_results = prepared.config, prepared.steps.of_results
    for key, step in of_results.items():
        settings, stage = config.steps[key], "grade" if key == "web" else key.partition(".")[0]
        if isinstance(settings, DocumentStepSettings):
            shown = _answered_from(config) if key == "answer" else min(settings.documents, config.results)
            rounds = config.iterate.rounds if key == "iterate" and config.iterate is not None else 1
            tried = rounds * _most(step) if key == "iterate" else 0
            yield _StepRequests(stage, step, rounds, shown, settings.document_chars, settings.context_tokens, tried)
        elif isinstance(settings, LabelGradeSettings) and config.iterate is not None:
            graded = config.iterate.rounds * min(config.iterate.documents, config.results)
            yield _StepRequests(stage, step, graded, 1, settings.document_chars)
        elif key in ("grade", "grade.strips") and config.grade is not None:
            graded = min(config.grade.documents, config.results)
            yield _StepRequests(stage, step, graded, 1, config.grade.document_chars if key == "grade" else None)
        elif key == "grade.question":
            rewritten = sum(int(one.decoding.get("max_tokens") or 0) for one in most_requests(prepared.rewriting))
            yield _StepRequests(stage, step, 1, written=rewritten)
        else:
            yield _StepRequests(stage, step, 1, written=_most(of_results.get("grade.question")))
    yield from _judged(config, prepared.steps.judge, _most(of_results.get("answer")))


def _answered_from(config: Config) -> int:
    """Returns the most documents that an answer is made from: results, those that are graded, and hits of the web."""
    if config.answer is None:
        return 0
    found = config.results if config.grade is None else min(config.grade.documents, config.results)
    return min(config.answer.documents, found + (0 if config.web is None else config.web.documents))


def _judged(config: Config, steps: Mapping[str, ReadyStep], answer: int) -> Iterator[_StepRequests]:
    """Yields what the judge is asked of each query; `answer`: the most tokens of an answer."""
    judge = config.judge
    if judge is None:
        return
    relevance = judge.relevance
    judged = 0 if relevance is None else min(relevance.documents, config.results)
    if relevance is not None:
        yield _StepRequests("judge", steps["relevance"], judged, 1, relevance.document_chars)
    if judge.accuracy is not None:
        yield _StepRequests("judge", steps["accuracy"], 1, written=answer)
    if judge.criteria is not None:
        yield _StepRequests("judge", steps["criteria"], 1, _answered_from(config), written=answer)


def _most(step: ReadyStep | None) -> int:
    return 0 if step is None else int(step.decoding.get("max_tokens") or 0)


def _documents(prepared: Prepared) -> list[str] | None:
    """Returns the texts of some documents of each index; None: there is none, or one is away."""
    retrieve = prepared.config.retrieve
    name = retrieve.text_retriever
    with suppress(RetrieverError, ClusterError, OSError):
        settings = retrieve.retrievers[name].at(prepared.indexes.get(name, {}))
        return open_documents(name, settings, cached_only=True).some(DOCUMENTS) or None
    return None


def _prompt_tokens(one: _StepRequests, counter: TokenCounter, documents: Sequence[str], texts: Sequence[str]) -> float:
    step = one.step.step
    empty = dict.fromkeys(step.variables, "")
    prompts = sum(counter.count(render(step.prompt, empty | {"query": text} if "query" in empty else empty)) for text in texts)
    tokens = counter.count(step.system) + prompts / len(texts) + one.written
    if one.documents and documents:
        place = {"number": "1", "source": "", "label": ""}
        cut = [beginning(text, one.document_chars) for text in documents]
        lengths = [counter.count(render(step.document, place | {"text": text})) for text in cut]
        shown = one.documents * sum(lengths) / len(lengths)
        tokens += shown if one.context_tokens is None else min(shown, one.context_tokens)
    return tokens
