"""The first reader: JSON objects whose keys are names of the strategies, anywhere in the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rewriters.reading.answer import Found, LlmAnswer, Value, label_key, names_by_key
from rewriters.strategy import Strategy

PARSED_AS = "json"
_MAX_BRACES = 200  # tried as beginnings of JSON objects; an answer in JSON needs a handful
_MAX_DEPTH = 4  # of nesting, as in {"rewrites": {...}}


class Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of pairs in order, which keeps repeated keys."""


def _zero(_: str) -> int:
    return 0  # no number is a rewrite, and int() raises for 4,300 digits and more


DECODER = json.JSONDecoder(
    strict=False,  # models put line breaks into strings
    object_pairs_hook=Pairs,
    parse_int=_zero,
    parse_float=_zero,
    parse_constant=_zero,
)


def decode(text: str, at: int) -> tuple[Any, int] | None:
    """Returns the JSON value that starts at `at` and its end, or None if there is none."""
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):  # RecursionError: thousands of brackets
        return None


def is_object(text: str) -> bool:
    """Returns whether the whole text is one JSON object; tags in its strings are then no markup."""
    stripped = text.strip()
    decoded = decode(stripped, 0) if stripped.startswith("{") else None
    return decoded is not None and decoded[1] == len(stripped)


def read(answer: LlmAnswer) -> Found:
    """Returns the values of all JSON objects in the answer, later ones first: drafts and examples come first in answers."""
    keys = names_by_key(answer.known)
    found: Found = {}
    for decoded in _json_values(answer.text):
        for pairs in _strategy_objects(decoded, keys, _MAX_DEPTH):
            for word, content in pairs:
                strategy = next((s for s in answer.requested if s.name == keys.get(label_key(word))), None)
                if strategy:
                    found.setdefault(strategy.name, []).insert(0, value(content, strategy))
    if not found and len(answer.requested) == 1:
        return _single_strategy(answer.text, answer.requested[0])
    return found


def value(content: Any, strategy: Strategy) -> Value:
    """Returns a JSON value as the value of a strategy.

    A string is itself, null is empty, a list of strings is joined if the strategy has a `list_separator`; of anything else
    the text is None.
    """
    if isinstance(content, str):
        return Value(content)
    if content is None:
        return Value("")
    if isinstance(content, list) and not isinstance(content, Pairs) and all(isinstance(part, str) for part in content):
        if len(content) <= 1:
            return Value("".join(content))
        if strategy.list_separator is not None:
            return Value(strategy.list_separator.join(part.strip() for part in content))
    return Value(None)


def _json_values(text: str) -> Iterator[Any]:
    at = text.find("{")
    for _ in range(_MAX_BRACES):
        if at < 0:
            return
        decoded = decode(text, at)
        if decoded:
            yield decoded[0]
        at = text.find("{", decoded[1] if decoded else at + 1)


def _strategy_objects(content: Any, keys: dict[str, str], depth: int) -> Iterator[Pairs]:
    """Yields the outermost objects in `content` that have the name of a strategy among their keys."""
    if depth == 0 or not isinstance(content, list):
        return
    if isinstance(content, Pairs) and any(label_key(word) in keys for word, _ in content):
        yield content
        return
    for part in content:
        yield from _strategy_objects(part[1] if isinstance(content, Pairs) else part, keys, depth - 1)


# Before an object that is the whole answer: nothing, a fence, or an introduction on a line of its own. JSON after other text
# may be a quotation in a passage.
_INTRODUCTION = re.compile(r"(?:[^\n]{0,200}[:：]\s*\n)?\s*(?:`{3,}\w*\s*)?(?=[{\[])")


def _single_strategy(text: str, strategy: Strategy) -> Found:
    """Returns the value of an answer for one strategy: a list, or an object with one key, or with one key "rewrit..."."""
    introduced = _INTRODUCTION.match(text)
    decoded = decode(text, introduced.end()) if introduced else None
    if decoded is None:
        return {}
    content = decoded[0]
    if not isinstance(content, Pairs):
        return {strategy.name: [value(content, strategy)]}
    named = [part for word, part in content if label_key(word).startswith("rewrit")]
    candidates = named if len(named) == 1 else [part for _, part in content]
    return {strategy.name: [value(candidates[0], strategy)]} if len(candidates) == 1 else {}
