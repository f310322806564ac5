"""The texts of one strategy in an answer to its own request: lines, a JSON array, or a JSON object with a key per text.

A model that was asked for one of these forms may answer in another, so JSON is tried first for all of them, then lines.
They are read as json, numbered (a number or bullet on every line), or lines. Where a strategy has marks,
only the parts of the answer that they say are texts count (marked), and where it has a separator, what stands between those.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rewriters.reading.answer import LlmAnswer, Value, label_key
from rewriters.reading.json_object import ABOUT, Pairs, decode, text_of
from rewriters.reading.lists import LINES, read_listed
from rewriters.reading.markup import elements, has_tags, without_wrapper
from rewriters.reading.words.talk import is_thought
from rewriters.strategy import Marks, Strategy

_MAX_BEFORE_JSON = 4000  # characters
# JSON begins a line, or stands after an introduction; elsewhere it may be a quotation in a text.
_JSON = re.compile(
    r"^[ `]{0,12}(?:json|[A-Za-z_]\w{0,30} ?=)?[ ]{0,12}(?=[\[{])|\A[^\d\n][^\n]{0,200}[:：] {0,3}(?=[\[{])", re.MULTILINE
)


def read_texts(answer: LlmAnswer, strategy: Strategy) -> tuple[list[Value], str]:
    """Returns the texts of a strategy in order, none if nothing could be read, and what they were read as."""
    if strategy.marks is None and strategy.separator is None:
        return _in_any_form(answer, strategy)
    parts = [(answer.text, True)]
    if strategy.marks is not None:
        begins = strategy.prompt.rstrip().endswith(strategy.marks.texts)
        parts = list(_marked_parts(answer.text, strategy.marks, begins))
    if strategy.output in ("text", "lines"):
        texts = [text for part, last in parts for text in _texts_of(part, strategy, cut=answer.truncated and last)]
        return texts, LINES if strategy.marks is None else "marked"
    if not parts:
        return [], "marked"
    whole = "\n".join(part for part, _ in parts)
    return _in_any_form(replace(answer, text=whole, truncated=answer.truncated and parts[-1][1]), strategy)


def _texts_of(part: str, strategy: Strategy, cut: bool) -> Iterator[Value]:
    """Yields the texts of a part: its first line, each line, what stands between separators, or of a passage all of it."""
    whole = strategy.is_passage and strategy.separator is None
    pieces = [part.strip()] if whole else part.strip().split(strategy.separator or "\n")
    most = 1 if strategy.output == "text" else len(pieces)
    for position, piece in enumerate(pieces[:most], 1):
        if piece.strip():
            yield Value(piece.strip(), complete=not (cut and position == len(pieces)))


def _in_any_form(answer: LlmAnswer, strategy: Strategy) -> tuple[list[Value], str]:
    start = _JSON.search(answer.text)
    if read := _json_texts(answer, strategy) or (_python_list(answer.text[start.end() :]) if start else []):
        return [Value(text) for text in read], "json"
    if start and not answer.text[: start.start()].strip(" `\n"):
        return [Value(text) for text in _closed_strings(answer, strategy)], "salvage"
    if has_tags(answer.text, answer.query):
        unwrapped = without_wrapper(answer.text)
        if has_tags(unwrapped, answer.query) and (texts := _of_elements(answer, strategy)):
            return texts, "labelled"
        answer = replace(answer, text=unwrapped)
    return read_listed(answer, strategy.n)


def _json_texts(answer: LlmAnswer, strategy: Strategy) -> list[str]:
    """Returns the texts of the first JSON array or object that has any; of the last where the answer begins with thoughts.

    Objects that stand one behind the other with one text each, as in JSON lines, are one array.
    """
    spans: list[tuple[int, int, list[str]]] = []  # start, end, texts
    for start in (at.end() for at in _JSON.finditer(answer.text[:_MAX_BEFORE_JSON])):
        if spans and start < spans[-1][1]:
            continue
        decoded = decode(answer.text, start)
        texts = _texts_in(decoded[0], strategy) if decoded else []
        if decoded and texts:
            spans.append((start, decoded[1], texts))
    if not spans:
        return []
    if is_thought(answer.text[:_MAX_BEFORE_JSON].lstrip(), answer.query):
        return [] if answer.truncated else spans[-1][2]
    texts, end = list(spans[0][2]), spans[0][1]
    for start, stop, more in spans[1:]:
        if len(more) != 1 or len(spans[0][2]) != 1 or answer.text[end:start].strip(" ,\n"):
            break
        texts, end = texts + more, stop
    return texts


def _python_list(text: str) -> list[str]:
    """Returns the strings of a list as Python writes it, with single quotation marks or a comma at its end."""
    end = text.find("]") + 1
    if not text.startswith("[") or not end or end > _MAX_BEFORE_JSON or re.search(r"[\"']\s+[\"']", text[:end]):
        return []
    try:
        content = ast.literal_eval(text[:end])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return content if isinstance(content, list) and all(isinstance(part, str) for part in content) else []


def _texts_in(content: Any, strategy: Strategy) -> list[str]:
    """Returns the texts in a JSON value: strings, and objects by `Strategy.keys`."""
    if isinstance(content, str):
        return [content] if content.strip() else []
    if isinstance(content, Pairs):
        return _texts_of_object(content, strategy)
    if isinstance(content, list):
        objects = not strategy.keys and all(isinstance(part, Pairs) for part in content)
        if objects and all(text_of(part) is not None for part in content):
            return [text_of(part) or "" for part in content]
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
    lists = [part for _, part in content if isinstance(part, list)]
    told = [part for key, part in content if not ABOUT.match(label_key(key))]
    if told and all(isinstance(part, str) for part in told):
        return told
    return _texts_in(lists[0], strategy) if len(lists) == 1 else []


def _closed_strings(answer: LlmAnswer, strategy: Strategy) -> Iterator[str]:
    """Yields the closed strings of broken JSON that are no keys; none of an array of objects, whose parts belong together."""
    if strategy.keys:
        return
    end = "(?!)" if answer.truncated else r"\Z"  # where it was cut, a mark within a string looks like its end
    for match in re.finditer(rf'"(?:[^"\\\n]|\\.)*"(?=[\s`]*(?:[,\]}}]|{end}))', answer.text):
        decoded = decode(match.group(), 0)
        if decoded and isinstance(decoded[0], str):
            yield decoded[0]


def _of_elements(answer: LlmAnswer, strategy: Strategy) -> list[Value]:
    """Returns the texts of XML elements: of those named as the strategy or its keys, else those of the commonest name."""
    parts = elements(answer.text)
    wanted = set(map(label_key, (*strategy.names, *strategy.keys)))
    chosen = [text for names, text in parts if wanted.intersection(names)] if strategy.keys else []
    if not chosen and parts:
        most = Counter(re.sub(r"\d+$", "", names[0]) for names, _ in parts).most_common(1)[0][0]
        chosen = [text for names, text in parts if re.sub(r"\d+$", "", names[0]) == most]
    return [Value(text) for text in chosen]


def _marked_parts(text: str, marks: Marks, begins: bool) -> Iterator[tuple[str, bool]]:
    """Yields the parts of an answer that are texts, and whether no mark follows; `begins`: the prompt ends with one's mark."""
    counts, start = begins, 0
    for mark in _pattern(marks).finditer(text):
        if counts:
            yield text[start : mark.start()], False
        counts, start = mark.group().strip() in marks.texts, mark.end()
    if counts:
        yield text[start:], True


@lru_cache(maxsize=64)
def _pattern(marks: Marks) -> re.Pattern[str]:
    """Returns a pattern of all marks, the longest first, as one may begin with another."""
    escaped = (
        rf"^[ \t]*{re.escape(mark)}" if mark[0].isalnum() else re.escape(mark)
        for mark in sorted(marks.all, key=len, reverse=True)
    )
    return re.compile(rf"(?:{'|'.join(escaped)})", re.MULTILINE)
