"""The texts of one strategy in an answer to its own request: lines, a JSON array, or a JSON object with a key per text.

A model that was asked for one of these forms may answer in another, so JSON is tried first for all of them, then lines.
`PARSED_AS` names what was found: json, numbered (a number or bullet on every line), or lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rewriters.reading.answer import LlmAnswer, Value, label_key
from rewriters.reading.json_object import PARSED_AS as JSON
from rewriters.reading.json_object import Pairs, decode
from rewriters.reading.lines import is_chatter, is_fence
from rewriters.strategy import Strategy

NUMBERED, LINES = "numbered", "lines"
_MAX_LINES = 200  # of an answer; one in lines has a handful
_MARK = re.compile(
    r"""\s{0,12}(?:
        (?:[*_]{0,2}\(?\d{1,2}(?:[.):](?=\s|[^\x00-\u024f]|[*_])|[、．）：])[*_]{0,2})    # "1. x", "(1) x", "**1.** x", "1、x"
      | [-*•·‣▪●+](?=\s)
      | [QS]\d{1,2}\ ?[:.]                                                             # "Q1: x"
    )\s{0,4}(?P<text>\S.*)""",
    re.VERBOSE,
)
_TAG = re.compile(r"</?[A-Za-z][\w:.-]{0,40}(?:\s[^<>\n]{0,200})?/?>")  # of a format that nobody asked for
_MAX_BEFORE_JSON = 4000  # characters
# JSON begins a line, or stands after an introduction; elsewhere it may be a quotation in a text.
_JSON = re.compile(r"^[ `]{0,12}(?:json)?[ ]{0,12}(?=[\[{])|\A[^\d\n][^\n]{0,200}[:：] {0,3}(?=[\[{])", re.MULTILINE)
_INTRODUCTION = re.compile(r"[^\n]{0,200}[:：]\s*\Z")


class Texts(NamedTuple):
    """The texts of an answer, in order, before any check; `complete` of the last is False if the answer was cut."""

    values: list[Value]
    parsed_as: str


def read_texts(answer: LlmAnswer, strategy: Strategy) -> Texts:
    """Returns the texts of a strategy; none if nothing could be read. Raises nothing, whatever the text."""
    found = list(_json_texts(answer.text, strategy))
    if found:
        return Texts(found, JSON)
    if answer.text.lstrip(" `\n").removeprefix("json").lstrip()[:1] in ("{", "["):
        return Texts([Value(text) for text in _closed_strings(answer, strategy)], "salvage")
    return _lines(answer)


def _json_texts(text: str, strategy: Strategy) -> Iterator[Value]:
    """Yields the texts of the first JSON array or object that has any."""
    for start in (found.end() for found in _JSON.finditer(text[:_MAX_BEFORE_JSON])):
        decoded = decode(text, start)
        texts = _texts_in(decoded[0], strategy) if decoded else []
        if texts:
            yield from map(Value, texts)
            return


def _texts_in(content: Any, strategy: Strategy) -> list[str]:
    """Returns the texts in a JSON value: strings, and objects by `Strategy.keys`."""
    if isinstance(content, str):
        return [content] if content.strip() else []
    if isinstance(content, Pairs):
        return _texts_of_object(content, strategy)
    if isinstance(content, list):
        return [text for part in content for text in _texts_in(part, strategy)]
    return []


def _texts_of_object(content: Pairs, strategy: Strategy) -> list[str]:
    by_key = {label_key(key): part for key, part in content}
    texts = [by_key.get(key) for key in map(label_key, strategy.keys)]
    wanted = [" ".join(text.split()) if isinstance(text, str) else "" for text in texts]
    if any(wanted) and strategy.output == "array":
        return [" ".join(filter(None, wanted))]
    if any(wanted):
        return wanted  # an empty one keeps the positions of the others
    strings = [part for _, part in content if isinstance(part, str)]
    lists = [part for _, part in content if isinstance(part, list)]
    if len(strings) == len(content):
        return strings
    return _texts_in(lists[0], strategy) if len(lists) == 1 else []


def _closed_strings(answer: LlmAnswer, strategy: Strategy) -> Iterator[str]:
    """Yields the closed strings of broken JSON that are no keys; none of an array of objects, whose parts belong together."""
    if strategy.keys:
        return
    end = "(?!)" if answer.truncated else r"\Z"  # where it was cut, a mark within a string looks like its end
    for found in re.finditer(rf'"(?:[^"\\\n]|\\.)*"(?=[\s`]*(?:[,\]}}]|{end}))', answer.text):
        decoded = decode(found.group(), 0)
        if decoded and isinstance(decoded[0], str):
            yield decoded[0]


def _lines(answer: LlmAnswer) -> Texts:
    lines = [line for line in answer.text.split("\n")[:_MAX_LINES] if line.strip() and not is_fence(line)]
    marked = [(at, found["text"]) for at, line in enumerate(lines) if (found := _MARK.match(line))]
    if marked:
        texts, last = [text for _, text in marked], marked[-1][0] == len(lines) - 1
        parsed_as = NUMBERED
    else:
        if lines and len(lines) > 1 and _INTRODUCTION.match(lines[0]):
            lines = lines[1:]
        kept = [line for line in lines if not is_chatter(line, answer.query)]
        texts, last, parsed_as = kept, bool(lines) and lines[-1:] == kept[-1:], LINES
    values = [Value(text.strip()) for text in texts]
    if _TAG.search(answer.text) and not _TAG.search(answer.query):
        return Texts([], parsed_as)
    if values and answer.truncated and last:
        values[-1] = Value(values[-1].text, complete=False)
    return Texts(values, parsed_as)
