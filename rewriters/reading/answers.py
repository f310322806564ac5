"""From the completions of a request to the texts of its strategies: valid ones, and the reasons against the others."""

from collections.abc import Sequence
from typing import NamedTuple

from rewriters.adaptive import reason_in
from rewriters.calls import Call
from rewriters.engines import Completion
from rewriters.normalise import normalise
from rewriters.pool import labelled
from rewriters.query import Query
from rewriters.reading.answer import LlmAnswer
from rewriters.reading.ladder import Parsed, parse, parse_all, parse_texts, prepared
from rewriters.reasons import Reason
from rewriters.selection import Choice
from rewriters.strategy import Strategy


class Answers(NamedTuple):
    """The content of a request's completions for one strategy."""

    texts: list[Parsed]  # each valid text
    dropped: list[str]  # the reason against each other text
    reason: str | None  # why there is no text; None if there is one
    completion: Completion | None = None  # of several the first without a text, else the first; None: none came
    message: str | None = None  # the reason of an engine in words
    stands_for: str | None = None  # why the answers cannot be used for which the original stands in; None: it does not


def read_call(call: Call, answered: Sequence[Completion], query: Query, choice: Choice) -> tuple[dict[str, Answers], Choice]:
    """Returns the texts of the chosen strategies in the answers to a request, and the choice: an adaptive one is the LLM's.

    A strategy that an adaptive answer does not name was not chosen. Where nothing can be read, all strategies fail.
    """
    if call.kind == "own":
        return {call.name: _read_own(call, answered, query)}, choice
    chosen = [strategy for strategy in call.strategies if strategy.name in choice.texts]
    failed = _failed(answered[0]) if answered else _missing(call)
    if failed is not None:
        return {strategy.name: failed for strategy in chosen}, choice
    (completion,) = answered
    unread = _ended(completion)
    if unread is None and call.kind == "adaptive":
        parsed, reason = parse_all(_prepared(call, completion, query)), reason_in(completion.text or "")
        if parsed or reason is not None:
            named = [strategy for strategy in call.strategies if strategy.name in parsed]
            texts = {s.name: _of_parsed(parsed[s.name], s, query, completion) for s in named}
            return texts, Choice(dict.fromkeys(texts), None, reason)
        cut, blank = completion.finish_reason == "length", not (completion.text or "").strip()
        unread = "truncated" if cut else "empty" if blank else "unparsable"
    if unread is not None:
        return {strategy.name: Answers([], [], unread, completion) for strategy in chosen}, choice
    outcomes = parse(_prepared(call, completion, query, labelled()))
    return {s.name: _of_parsed([outcomes[s.name]], s, query, completion) for s in chosen}, choice


def _read_own(call: Call, answered: Sequence[Completion], query: Query) -> Answers:
    (strategy,) = call.strategies
    parsed: list[Parsed | Reason] = []
    failures: list[Answers] = []
    for completion in answered:
        if (failed := _failed(completion)) is not None:
            failures.append(failed)
        elif (ended := _ended(completion)) is not None:
            parsed.append(ended)
        elif strategy.output == "text" and strategy.marks is None:
            parsed.append(parse(_prepared(call, completion, query, labelled()))[strategy.name])
        else:
            several = parse_texts(_prepared(call, completion, query))
            first = next((one for one in several if isinstance(one, Parsed)), several[0])
            parsed += [first] if strategy.output == "text" else several
    if not parsed:
        return failures[0] if failures else _missing(call)
    answers = _of_parsed(parsed, strategy, query, answered[0])
    if not answers.texts and strategy.fallback == "original":
        return answers._replace(texts=[Parsed(query.text, "original")], dropped=[], reason=None, stands_for=answers.reason)
    return answers._replace(dropped=answers.dropped + [failed.reason or "empty" for failed in failures])


def _prepared(call: Call, completion: Completion, query: Query, known: Sequence[Strategy] = ()) -> LlmAnswer:
    truncated = completion.finish_reason == "length"
    return prepared(completion.text or "", query.text, call.strategies, known, call.template, truncated)


def _missing(call: Call) -> Answers:
    return Answers([], [], "missing", message=f"no completion came for request {call.name!r}")


def _failed(completion: Completion) -> Answers | None:
    """Returns the failure of an answer without a text; None: it has one."""
    if completion.error_reason is None and completion.text is not None:
        return None
    message = completion.error_message or "the engine gave no text"
    return Answers([], [], completion.error_reason or "empty", completion, message)


def _ended(completion: Completion) -> Reason | None:
    """Returns the reason why a completion has nothing to read, by its end; None if it ended well."""
    if completion.finish_reason == "content_filter":
        return "content_filter"
    if completion.finish_reason == "refusal":
        return "refusal"
    return "cut_reasoning" if completion.finish_reason == "length" and not completion.text else None


def _of_parsed(parsed: Sequence[Parsed | Reason], strategy: Strategy, query: Query, completion: Completion) -> Answers:
    texts: list[Parsed] = []
    dropped: list[str] = []
    seen: set[str] = set()
    for number, value in enumerate(parsed, start=1):
        if not isinstance(value, Parsed):
            dropped.append(value)
            continue
        if (same := normalise(value.text)) in seen or len(texts) == strategy.n:
            continue
        seen.add(same)
        position = number if strategy.output == "object" else len(texts) + 1
        text = value.text
        if strategy.include_original:  # as often as the strategy says; not again where the text begins with it
            original = " ".join(query.text.split())
            text = text.removeprefix(original).strip()
            text = " ".join([original] * strategy.include_original + ([text] if text else []))
        texts.append(value._replace(text=text, position=position))
    if not texts:
        return Answers([], [], dropped[0] if dropped else "empty", completion)
    return Answers(texts, dropped, None, completion)
