"""One more try for a request whose answer cannot be read, refuses, or was cut.

The try has another seed. Where the token limit cut the answer it has twice the tokens; else, where the answer would be the same
at temperature 0, a temperature. It is another sample of the request (`FIRST_TRY` and up), so that stores keep both answers.
A recording has one answer to a request, which is not tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rewriters.calls import Call
from rewriters.engines import Completion, Request
from rewriters.pool import labelled
from rewriters.query import Query
from rewriters.reading.answers import read_adaptive, read_joint, read_own
from rewriters.selection import Choice
from rewriters.strategy import Strategy

RETRIES_VERSION = 1  # raised when other answers are tried again, or differently; part of a run's fingerprint
FIRST_TRY = 1_000_000  # of `Request.sample`: below it are samples of a strategy, and of several arms of an ablation
TEMPERATURE = 0.7  # of a try, at least
CUT = frozenset({"truncated", "cut_reasoning"})
TRIED = CUT | {"empty", "missing", "unparsable", "repetition", "refusal", "echo", "wrong_language"}
"""Reasons of a strategy without a text for which its request is made again. Of a text that is too long, too short or banned the
model has understood what it was asked."""

Pair = tuple[Request, Completion]


class Outcome(NamedTuple):
    """What one answer is worth.

    Attributes:
        worth: The number of strategies with a text in it.
        faults: Why it is not worth more.
    """

    worth: int
    faults: frozenset[str]


class Asked(NamedTuple):
    """The reader of an answer of a query.

    Attributes:
        calls: Name of a request -> its call, and the strategies that need the answer.
        query: As the prompt has it.
        choice: The strategies that rewrite it.
    """

    calls: Mapping[str, tuple[Call, tuple[Strategy, ...]]]
    query: Query
    choice: Choice


def read_one(asked: Asked, pair: Pair) -> Outcome:
    """Returns what one answer is worth."""
    request, _ = pair
    if request.name not in asked.calls:
        return Outcome(0, frozenset())
    call, needed = asked.calls[request.name]
    if call.kind == "joint":
        found = read_joint(call, [pair], asked.query, needed, labelled())
    elif call.kind == "adaptive":
        found, _ = read_adaptive(call, [pair], asked.query, asked.choice)
    else:
        found = {call.name: read_own(call, [pair], asked.query, labelled())}
    reasons = {answers.stands_for or answers.reason for answers in found.values()} - {None}
    texts = sum(bool(answers.texts) and answers.stands_for is None for answers in found.values())
    return Outcome(texts, frozenset(filter(None, reasons)))


def tries_so_far(request: Request) -> int:
    """Returns which try a request is: 0 for the first one."""
    return request.sample // FIRST_TRY


def tried_again(request: Request, reasons: frozenset[str]) -> Request:
    """Returns the next try of a request whose answer did not serve for these reasons."""
    decoding = dict(request.decoding)
    decoding["seed"] = decoding.get("seed", 0) + FIRST_TRY
    if reasons & CUT and decoding.get("max_tokens"):
        decoding["max_tokens"] = 2 * decoding["max_tokens"]
    if reasons - CUT:
        decoding["temperature"] = max(TEMPERATURE, decoding.get("temperature") or 0.0)
    return replace(request, sample=request.sample + FIRST_TRY, decoding=decoding)


def again(answered: Sequence[Pair], asked: Asked, most: int, answer_once: Collection[str] = ()) -> list[Request]:
    """Returns the next tries of the requests of one query, all of whose requests so far are given: `most` after the first.

    `answer_once` are the engines of calls that have one answer to a request.
    """
    latest: dict[tuple[str, int], Pair] = {}
    for pair in sorted(answered, key=lambda one: one[0].sample):
        latest[pair[0].name, pair[0].sample % FIRST_TRY] = pair
    found = []
    for request, completion in latest.values():
        if tries_so_far(request) >= most or completion.error_reason is not None:
            continue
        if request.name in asked.calls and asked.calls[request.name][0].engine in answer_once:
            continue
        _, reasons = read_one(asked, (request, completion))
        if reasons & TRIED:
            found.append(tried_again(request, reasons & TRIED))
    return found


def settled(answered: Sequence[Pair], asked: Asked) -> list[Pair]:
    """Returns, of the tries of each request, the one with texts of most strategies; of several the earliest."""
    best: dict[tuple[str, int], tuple[Pair, int]] = {}
    for pair in sorted(answered, key=lambda one: one[0].sample):
        key = pair[0].name, pair[0].sample % FIRST_TRY
        if key not in best:
            best[key] = pair, -1
        elif tries_so_far(pair[0]):
            first, texts = best[key]
            texts = read_one(asked, first)[0] if texts < 0 else texts
            if (more := read_one(asked, pair)[0]) > texts:
                best[key] = pair, more
    return [pair for pair, _ in best.values()]
