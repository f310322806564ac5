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
from rewriters.query import Query
from rewriters.reading.answers import Answers, read_call
from rewriters.selection import Choice

RETRIES_VERSION = 1  # raised when other answers are tried again, or differently; part of a run's fingerprint
FIRST_TRY = 1_000_000  # of `Request.sample`: below it are samples of a strategy, and of several arms of an ablation
TEMPERATURE = 0.7  # of a try, at least
CUT = frozenset({"truncated", "cut_reasoning"})
TRIED = CUT | {"empty", "missing", "unparsable", "repetition", "refusal", "echo", "wrong_language"}
"""Reasons of a strategy without a text for which its request is made again. Of a text that is too long, too short or banned the
model has understood what it was asked."""

Pair = tuple[Request, Completion]


class Asked(NamedTuple):
    """The requests of a query."""

    calls: Mapping[str, Call]  # name of a request -> its call
    query: Query  # as the prompt has it
    choice: Choice  # the strategies that rewrite it

    def read(self, pair: Pair) -> list[Answers]:
        """Returns what each strategy has of one answer."""
        name = pair[0].name
        return list(read_call(self.calls[name], [pair], self.query, self.choice)[0].values()) if name in self.calls else []

    def worth(self, pair: Pair) -> int:
        """Returns the number of strategies with a text in one answer."""
        return sum(bool(answers.texts) and answers.stands_for is None for answers in self.read(pair))


def tries_so_far(request: Request) -> int:
    """Returns which try a request is: 0 for the first one."""
    return request.sample // FIRST_TRY


def _tried_again(request: Request, reasons: frozenset[str]) -> Request:
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
    found = []
    for request, completion in (pairs[-1] for pairs in _tries(answered)):
        if tries_so_far(request) >= most or completion.error_reason is not None:
            continue
        if request.name in asked.calls and asked.calls[request.name].engine in answer_once:
            continue
        if reasons := TRIED.intersection(answers.stands_for or answers.reason for answers in asked.read((request, completion))):
            found.append(_tried_again(request, reasons))
    return found


def settled(answered: Sequence[Pair], asked: Asked) -> list[Pair]:
    """Returns, of the tries of each request, the one with texts of most strategies; of several the earliest."""
    return [pairs[0] if len(pairs) == 1 else max(pairs, key=asked.worth) for pairs in _tries(answered)]


def _tries(answered: Sequence[Pair]) -> list[list[Pair]]:
    """Returns the tries of each request, in order."""
    tries: dict[tuple[str, int], list[Pair]] = {}
    for pair in sorted(answered, key=lambda one: one[0].sample):
        tries.setdefault((pair[0].name, pair[0].sample % FIRST_TRY), []).append(pair)
    return list(tries.values())
