"""First rung: a JSON object whose keys are the strategies' names or labels, anywhere in the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rewriters.rungs import Answer, Found, Value, key, known_keys
from rewriters.strategy import Strategy

PARSED_AS = "json"
_TRIES = 200  # an answer with more opening braces than this that open nothing is not an answer in JSON
_DEPTH = 4  # {"rewrites": {...}} and the like


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs in order, so that a key given twice is seen twice."""


def _number(_: str) -> int:
    return 0  # no number is a rewrite, and reading one of 4,300 digits and more is an error


DECODER = json.JSONDecoder(
    strict=False,  # models put line breaks into strings
    object_pairs_hook=Pairs,
    parse_int=_number,
    parse_float=_number,
    parse_constant=_number,
)


def decode(text: str, at: int) -> tuple[Any, int] | None:
    """The JSON value that starts at `at` and where it ends, or None if none does."""
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):  # RecursionError: thousands of brackets
        return None


def is_object(text: str) -> bool:
    """Whether the whole text is one JSON object, so that nothing in its strings is markup."""
    stripped = text.strip()
    decoded = decode(stripped, 0) if stripped.startswith("{") else None
    return decoded is not None and decoded[1] == len(stripped)


def read(answer: Answer) -> Found:
    """The values of every JSON object in the answer; a later one is preferred, as drafts and examples come first."""
    keys = known_keys(answer.known)
    found: Found = {}
    for decoded in _outermost(answer.text):
        for pairs in _with_strategies(decoded, keys, _DEPTH):
            for word, content in pairs:
                strategy = next((s for s in answer.wanted if s.name == keys.get(key(word))), None)
                if strategy:
                    found.setdefault(strategy.name, []).insert(0, value(content, strategy))
    if not found and len(answer.wanted) == 1:
        return _only_one(answer.text, answer.wanted[0])
    return found


def value(content: Any, strategy: Strategy) -> Value:
    """What JSON has for a strategy: a string, null as empty, or a list of strings where the strategy joins lists."""
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


def _outermost(text: str) -> Iterator[Any]:
    at = text.find("{")
    for _ in range(_TRIES):
        if at < 0:
            return
        decoded = decode(text, at)
        if decoded:
            yield decoded[0]
        at = text.find("{", decoded[1] if decoded else at + 1)


def _with_strategies(content: Any, keys: dict[str, str], depth: int) -> Iterator[Pairs]:
    """The outermost objects within `content` that have a strategy among their keys."""
    if depth == 0 or not isinstance(content, list):
        return
    if isinstance(content, Pairs) and any(key(word) in keys for word, _ in content):
        yield content
        return
    for part in content:
        yield from _with_strategies(part[1] if isinstance(content, Pairs) else part, keys, depth - 1)


# Before an object that is the whole answer: nothing, a fence, or an introduction on its own line. A passage may quote
# JSON.
_INTRODUCTION = re.compile(r"(?:[^\n]{0,200}[:：]\s*\n)?\s*(?:`{3,}\w*\s*)?(?=[{\[])")


def _only_one(text: str, strategy: Strategy) -> Found:
    """The answer to a call for one strategy: a list, or an object with one string or one key that says rewrite."""
    introduced = _INTRODUCTION.match(text)
    decoded = decode(text, introduced.end()) if introduced else None
    if decoded is None:
        return {}
    content = decoded[0]
    if not isinstance(content, Pairs):
        return {strategy.name: [value(content, strategy)]}
    named = [part for word, part in content if key(word).startswith("rewrit")]
    only = named if len(named) == 1 else [part for _, part in content]
    return {strategy.name: [value(only[0], strategy)]} if len(only) == 1 else {}
