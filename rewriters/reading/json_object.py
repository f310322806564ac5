"""The first reader: JSON objects whose keys are names of the strategies, anywhere in the answer."""

import json
import re
from collections.abc import Iterator
from typing import Any

from rewriters.normalise import normalise
from rewriters.reading.answer import Found, LlmAnswer, Value, label_key
from rewriters.reading.words import pattern, word_lists
from rewriters.strategy import Strategy

_MAX_BRACES = 200  # tried as beginnings of JSON objects; an answer in JSON needs a handful
_ERRORS, _MESSAGE = set(word_lists()["error_keys"]), set(word_lists()["message_keys"])
_MAX_DEPTH = 4  # of nesting, as in {"rewrites": {...}}


class Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of pairs in order, which keeps repeated keys."""


# Not strict: models put line breaks into strings. int() raises for 4,300 digits and more.
DECODER = json.JSONDecoder(strict=False, object_pairs_hook=Pairs, parse_int=float)


def decode(text: str, at: int) -> tuple[Any, int] | None:
    """Returns the JSON value that starts at `at` and its end, or None if there is none."""
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):  # RecursionError: thousands of brackets
        return None


def whole(text: str, first: str) -> Any:
    """Returns the JSON value that is the whole text and begins with a character; None if there is none."""
    decoded = decode(text, 0) if text.startswith(first) else None
    return decoded[0] if decoded is not None and decoded[1] == len(text) else None


def is_error(text: str) -> bool:
    """Returns True if the whole text is one JSON object with an error, as servers and gateways write it."""
    content = whole(text.strip(" `\n"), "{") or []
    keys = {label_key(key) for key, _ in content}
    return any(label_key(key) in _ERRORS and part and not isinstance(part, float) for key, part in content) or (
        bool(keys & _MESSAGE) and keys <= _MESSAGE | {"reason"}
    )


def read_json(answer: LlmAnswer) -> Found:
    """Returns the values of all JSON objects in the answer, those of the preferred object first.

    Preferred is the object with the most strategies, since one with fewer may be quoted in an explanation; then one that
    begins a line; then the later one, since drafts and examples come first.
    """
    keys = answer.names
    ranked: list[tuple[tuple[int, bool, int], str, list[Value]]] = []
    for content, begins_line in _json_values(answer.text):
        for pairs in _strategy_objects(content, keys, _MAX_DEPTH):
            count = len({keys.get(label_key(word)) for word, _ in pairs} - {None})
            for word, part in pairs:
                if (strategy := answer.strategy(word)) is not None:
                    several = strategy.output != "text" and isinstance(part, list) and not isinstance(part, Pairs)
                    values = [value(one, strategy) for one in (part if several else [part])]
                    ranked.append(((count, begins_line, len(ranked)), strategy.name, values))
    texts: Found = {}
    for _, name, parts in sorted(ranked, key=lambda one: one[0], reverse=True):
        texts.setdefault(name, []).extend(parts)
    if not texts and len(answer.requested) == 1:
        return _single_strategy(answer, answer.requested[0])
    return texts


def value(content: Any, strategy: Strategy) -> Value:
    """Returns a JSON value as the value of a strategy.

    A string is itself, null is empty, a list of strings is joined if the strategy has a `list_separator`, an object is its one
    text. Of anything else the text is None.
    """
    if isinstance(content, Pairs):
        text = text_of(content)
        rest = [part for _, part in content if isinstance(part, list)]
        return value(rest[0], strategy) if text is None and len(rest) == 1 == len(content) else Value(text)
    if isinstance(content, str):
        return Value(content)
    if content is None:
        return Value("")
    if isinstance(content, list) and all(isinstance(part, str) for part in content):
        if len(content) <= 1:
            return Value("".join(content))
        if strategy.list_separator is not None:
            return Value(strategy.list_separator.join(part.strip() for part in content))
    return Value(None)


ABOUT, _TEXT = pattern("about"), word_lists()["text_keys"]  # keys of what is said about a text, and of the text


def text_of(content: Pairs) -> str | None:
    """Returns the one text of an object: the only string that is not about another, or that with the surest key."""
    strings = [(label_key(key), part) for key, part in content if isinstance(part, str) and part.strip()]
    strings = [(key, part) for key, part in strings if not ABOUT.match(key)]
    if len(strings) == 1:
        return strings[0][1]
    named = (part for word in _TEXT for key, part in strings if key.startswith(word))
    return next(named, None)


def _json_values(text: str) -> Iterator[tuple[Any, bool]]:
    """Yields the JSON values that begin with a brace, and whether each begins a line."""
    at = text.find("{")
    for _ in range(_MAX_BRACES):
        if at < 0:
            return
        decoded = decode(text, at)
        if decoded:
            yield decoded[0], not text[text.rfind("\n", 0, at) + 1 : at].strip(" `*>[-")
        at = text.find("{", decoded[1] if decoded else at + 1)


def _strategy_objects(content: Any, keys: dict[str, str], depth: int) -> Iterator[Pairs]:
    """Yields the outermost objects in `content` that have the name of a strategy among their keys, or as a value."""
    if depth == 0 or not isinstance(content, list):
        return
    if isinstance(content, Pairs) and any(label_key(word) in keys for word, _ in content):
        yield content
        return
    if isinstance(content, Pairs) and (named := _named(content, keys)):
        yield Pairs([named])
        return
    parts = [part[1] if isinstance(content, Pairs) else part for part in content]
    for part in parts:
        yield from _strategy_objects(part, keys, depth - 1)


def _named(content: Pairs, keys: dict[str, str]) -> tuple[str, Any] | None:
    """Returns the name of a strategy and its text in an object such as {"method": "general", "rewrite": "..."}."""
    names = [(key, part) for key, part in content if isinstance(part, str) and label_key(part) in keys]
    if len(names) != 1 or len(content) < 2:
        return None
    rest = Pairs([one for one in content if one is not names[0] and one != names[0]])
    lists = [part for _, part in rest if isinstance(part, list) and not isinstance(part, Pairs)]
    text = text_of(rest)
    return (names[0][1], text) if text is not None else (names[0][1], lists[0]) if len(lists) == 1 else None


# Before an object that is the whole answer: nothing, a fence, or an introduction on a line of its own. JSON after other text
# may be a quotation in a passage, but where it ends the answer.
_INTRODUCTION = re.compile(r"(?:[^\n]{0,200}[:：!。！]\s*\n)?\s*(?:`{3,}\w*\s*)?(?=[{\[])")
_LABEL = re.compile(r"[^\n{\[:：]{1,60}[:：]\s{0,3}(?=[{\[])")


def _single_strategy(answer: LlmAnswer, strategy: Strategy) -> Found:
    """Returns the value of an answer for one strategy: a list, or an object with one text."""
    text, query = answer.text, normalise(answer.query)
    introduced, label = _INTRODUCTION.match(text), _LABEL.match(text)
    decoded = decode(text, introduced.end()) if introduced else None
    content = decoded[0] if decoded else whole(text[label.end() :].rstrip(), text[label.end()]) if label else None
    if content is None:
        return {}
    if not isinstance(content, Pairs):
        return {strategy.name: [value(content, strategy)]}
    named = [part for word, part in content if label_key(word).startswith("rewrit")]
    others = [
        part for word, part in content
        if not ABOUT.match(label_key(word)) and not (isinstance(part, str) and normalise(part) == query)
    ]  # fmt: skip
    candidates = named if len(named) == 1 else others if len(others) == 1 else [part for _, part in content]
    return {strategy.name: [value(candidates[0], strategy)]} if len(candidates) == 1 else {}
