"""The parse ladder: what an answer says for each strategy that it was asked for, or why it says nothing fit.

JSON, then labelled lines, then numbered lines, then salvage. The rung that reads the most strategies reads the
answer, the earlier one at a tie; so rungs are never mixed, and text that one shape explains is not read again as
another. Each strategy then stands for itself: a rewrite, or one reason. Whatever the text, nothing is raised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rewriters.checks import is_refusal, reason_against, tidy
from rewriters.reasons import Reason
from rewriters.repetition import loops
from rewriters.rungs import Answer, Found, json_object, labelled, numbered, salvage
from rewriters.strategy import Strategy
from rewriters.thinking import strip_thinking

PARSER_VERSION = 1  # rises when the same answer is read differently: part of what decides what comes out
_MAX_TEXT = 200_000  # characters of an answer that are read: 100 times what four rewrites need


class Parsed(NamedTuple):
    """A rewrite. parsed_as: the rung that read it."""

    text: str
    parsed_as: str


class Unread(NamedTuple):
    """No rewrite, and why."""

    reason: Reason


def parse(
    text: str,
    query: str,
    *,
    wanted: Sequence[Strategy],
    known: Sequence[Strategy],
    instructions: str,
    truncated: bool,
) -> dict[str, Parsed | Unread]:
    """What the answer `text` holds for each of `wanted`, by name.

    wanted: in the order in which the prompt asked for them. known: all strategies whose labels may turn up.
    instructions: the template that was sent. truncated: the engine's finish reason was the token limit; what is
    complete before the cut counts.
    """
    truncated = truncated or len(text) > _MAX_TEXT
    text = text[:_MAX_TEXT].replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    if not json_object.is_object(text):
        text = strip_thinking(text, query)
    # Run-away white space is a known way to the token limit; without long runs no pattern of a rung can take
    # quadratic time.
    text = re.sub(r"(?: ?\n ?){3,}", "\n\n", re.sub(r"[^\S\n]+", " ", text))
    answer = Answer(text, tuple(wanted), tuple(dict.fromkeys([*wanted, *known])), query, truncated)
    found, parsed_as = _climb(answer)
    return {strategy.name: _settle(found, parsed_as, strategy, answer, instructions) for strategy in wanted}


def _climb(answer: Answer) -> tuple[Found, str]:
    best: Found = {}
    parsed_as, most = "", -1
    for rung in (json_object, labelled, numbered, salvage):
        if rung is numbered and most > 0:
            continue  # numbered lines with labels are read by their labels or not at all: their order need not be ours
        found = rung.read(answer)
        count = sum(any(value.text for value in values) for values in found.values())
        if count > most and found:
            best, parsed_as, most = found, rung.PARSED_AS, count
        if most == len(answer.wanted):
            break
    return best, parsed_as


def _settle(found: Found, parsed_as: str, strategy: Strategy, answer: Answer, instructions: str) -> Parsed | Unread:
    """The first value that is fit, else the reason against the first one."""
    reasons: list[Reason] = []
    for value in found.get(strategy.name, []):
        text = tidy(value.text or "", strategy, answer.query, quoted=parsed_as != json_object.PARSED_AS)
        if answer.truncated and not value.complete:
            reasons.append("repetition" if loops(text or answer.text) and not loops(answer.query) else "truncated")
        elif value.text is None:
            reasons.append("unparsable")
        elif reason := reason_against(text, strategy, answer.query, instructions):
            reasons.append(reason)
        else:
            return Parsed(text, parsed_as)
    return Unread(reasons[0] if reasons else _why_nothing(found, answer))


def _why_nothing(found: Found, answer: Answer) -> Reason:
    if not answer.text.strip():
        return "truncated" if answer.truncated else "empty"
    if not found and loops(answer.text) and not loops(answer.query):
        return "repetition"
    if answer.truncated:
        return "truncated"
    if found:
        return "missing"
    return "refusal" if is_refusal(answer.text, answer.query) else "unparsable"
