"""From the completions of a request to the texts of its strategies: valid ones, and the reasons against the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cluster.http import encodable
from rewriters.adaptive import reason_in
from rewriters.calls import Call
from rewriters.engines import Completion, Request
from rewriters.normalise import normalise
from rewriters.query import Query
from rewriters.reading.ladder import Parsed, Unread, parse, parse_all, parse_texts
from rewriters.reasons import Reason
from rewriters.selection import Choice
from rewriters.strategy import Strategy

Answered = Sequence[tuple[Request, Completion]]


class ReadText(NamedTuple):
    """A text to search: its position, from 1, how it was read, and what was found of it."""

    position: int
    text: str
    parsed_as: str
    flags: tuple[str, ...] = ()


class Answers(NamedTuple):
    """The content of a request's completions for one strategy.

    Attributes:
        texts: Each valid text.
        dropped: The reason against each other text.
        reason: Why there is no text; None if there is one.
        message: The reason of an engine in words.
        raw: The completion, of several the first without a text.
        attempts: Number of sends.
        model: As the engine names it.
        prompt_hash: Of the template.
        stands_for: Why the answers cannot be used for which the original stands in; None: it does not.
    """

    texts: list[ReadText]
    dropped: list[str]
    reason: str | None
    message: str | None
    raw: str | None
    attempts: int
    model: str
    prompt_hash: str
    stands_for: str | None = None


def read_joint(
    call: Call, answered: Answered, query: Query, chosen: Sequence[Strategy], known: Sequence[Strategy]
) -> dict[str, Answers]:
    """Returns the texts of the chosen strategies in the answer to a joint request."""
    if (failed := _failed(call, answered, unreadable=True)) is not None:
        return {strategy.name: failed for strategy in chosen}
    ((request, completion),) = answered
    parsed = parse(
        completion.text or "",
        query.text,
        requested=call.strategies,
        known=known,
        instructions=call.template,
        truncated=completion.finish_reason == "length",
    )
    return {s.name: _of_parsed([parsed[s.name]], s, query, request, completion) for s in chosen}


def read_adaptive(call: Call, answered: Answered, query: Query, choice: Choice) -> tuple[dict[str, Answers], Choice]:
    """Returns the texts of the strategies that the LLM chose, and its choice with its reason.

    A strategy that the answer does not name was not chosen. Where nothing can be read, all strategies fail.
    """
    if (failed := _failed(call, answered, unreadable=True)) is not None:
        return {strategy.name: failed for strategy in call.strategies}, choice
    ((request, completion),) = answered
    text = completion.text or ""
    parsed = parse_all(
        text, query.text, requested=call.strategies, instructions=call.template, truncated=completion.finish_reason == "length"
    )
    reason = reason_in(text)
    if not parsed and reason is None:
        unread = Unread("truncated" if completion.finish_reason == "length" else "unparsable" if text.strip() else "empty")
        return {s.name: _of_parsed([unread], s, query, request, completion) for s in call.strategies}, choice
    named = Choice({s.name: None for s in call.strategies if s.name in parsed}, None, reason)
    return {
        s.name: _of_parsed(parsed[s.name], s, query, request, completion) for s in call.strategies if s.name in parsed
    }, named


def read_own(call: Call, answered: Answered, query: Query, known: Sequence[Strategy]) -> Answers:
    """Returns the texts of a strategy in the answers to its own request."""
    (strategy,) = call.strategies
    if not answered:
        failed = _failed(call, answered)
        assert failed is not None
        return failed
    found: list[Parsed | Unread] = []
    failures: list[Answers] = []
    for one in answered:
        failed = _failed(call, [one])
        if failed is not None:
            failures.append(failed)
            continue
        _, completion = one
        truncated = completion.finish_reason == "length"
        if (reason := _unreadable(completion)) is not None:
            found.append(Unread(reason))
        elif strategy.output == "text" and strategy.marks is not None:
            several = parse_texts(completion.text or "", query.text, strategy, call.template, truncated)
            found.append(next((one for one in several if isinstance(one, Parsed)), several[0]))
        elif strategy.output == "text":
            parsed = parse(
                completion.text or "", query.text,
                requested=call.strategies, known=known, instructions=call.template, truncated=truncated,
            )  # fmt: skip
            found.append(parsed[strategy.name])
        else:
            found += parse_texts(completion.text or "", query.text, strategy, call.template, truncated)
    if not found:
        return failures[0]
    request, completion = answered[0]
    answers = _of_parsed(found, strategy, query, request, completion)
    dropped = answers.dropped + [failed.reason or "empty" for failed in failures]
    if not answers.texts and strategy.fallback == "original":
        texts = [ReadText(1, query.text, "original")]
        return answers._replace(texts=texts, dropped=[], reason=None, stands_for=answers.reason)
    return answers._replace(dropped=dropped)


def _failed(call: Call, answered: Answered, *, unreadable: bool = False) -> Answers | None:
    """Returns the failure of a request without a completion, or with an unreadable one; None if there is one to read."""
    if not answered:
        return Answers([], [], "missing", f"no completion came for request {call.name!r}", None, 0, "", call.prompt_hash)
    request, completion = answered[0]
    ended = None
    if completion.error_reason is None and completion.text is not None:
        ended = _unreadable(completion) if unreadable else None
        if ended is None:
            return None
    reason = ended or completion.error_reason or "empty"
    message = None if ended else completion.error_message or "the engine gave no text"
    return Answers([], [], reason, message, _raw(completion), completion.attempts, completion.model, request.prompt_hash)


def _unreadable(completion: Completion) -> Reason | None:
    """Returns why there is nothing to read in a completion, by how it ended; None if it ended well."""
    if completion.finish_reason == "content_filter":
        return "content_filter"
    if completion.finish_reason == "refusal":
        return "refusal"
    return "cut_reasoning" if completion.finish_reason == "length" and not completion.text else None


def _of_parsed(
    found: Sequence[Parsed | Unread], strategy: Strategy, query: Query, request: Request, completion: Completion
) -> Answers:
    texts: list[ReadText] = []
    dropped: list[str] = []
    seen: set[str] = set()
    for place, one in enumerate(found, start=1):
        if isinstance(one, Unread):
            dropped.append(one.reason)
            continue
        if (same := normalise(one.text)) in seen or len(texts) == strategy.n:
            continue
        seen.add(same)
        position = place if strategy.output == "object" else len(texts) + 1
        texts.append(ReadText(position, _searched(one.text, strategy, query.text), one.parsed_as, one.flags))
    reason = None if texts else dropped[0] if dropped else "empty"
    return Answers(
        texts, dropped if texts else [], reason, None, _raw(completion), completion.attempts, completion.model,
        request.prompt_hash,
    )  # fmt: skip


def _searched(text: str, strategy: Strategy, query: str) -> str:
    """Returns the text with the original before it as often as the strategy says; not again where it begins with it."""
    if not strategy.include_original:
        return text
    original = " ".join(query.split())
    rest = (
        text[len(original) :].strip() if normalise(text).startswith(normalise(original)) and text.startswith(original) else text
    )
    return " ".join([original] * strategy.include_original + ([rest] if rest else []))


def _raw(completion: Completion) -> str | None:
    return None if completion.text is None else encodable(completion.text)
