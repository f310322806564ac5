"""Labels behind the texts: a list whose lines end in the name of a strategy in brackets, "- green tea, caffeine (keyword)"."""

from __future__ import annotations

import re

from rewriters.normalise import normalise
from rewriters.reading.answer import Found, LlmAnswer, Value, label_key, names_by_key
from rewriters.reading.lines import SIGNS, is_chatter
from rewriters.reading.markup import without_emphasis

_MARK = rf"\s{{0,12}}(?P<mark>[-*+]|{SIGNS}|\(?\d{{1,2}}[.):、．）])?\s{{0,4}}"
_MARKED = re.compile(_MARK)
_NAMED = re.compile(
    rf"{_MARK}(?P<text>\S.*?)[\s*_`]{{0,4}}(?:(?<=\s)[-–—]\s)?"
    r"[(（\[【][\s*_`]{0,4}(?P<label>[^()（）\[\]【】]{1,60})[)）\]】][\s*_`.。]{0,4}"
)


def read(answer: LlmAnswer) -> Found:
    """Returns the texts before the labels; nothing where it is not clear that they are labels.

    It is not, if a line of the list has none, if one strategy was asked for, whose text may end so, and of a single line that
    stands in no list. A last line that the token limit cut may lack its label.
    """
    if len(answer.requested) < 2:
        return {}
    keys, requested = names_by_key(answer.known), {strategy.name for strategy in answer.requested}
    lines = [line for line in answer.text.split("\n") if line.strip()]
    found: Found = {}
    listed = False
    for at, line in enumerate(lines):
        name, text = _named(line, keys, answer.query)
        mark = _MARKED.match(line)
        marked = mark is not None and mark["mark"] is not None and not is_chatter(line, answer.query)
        if name is None and marked and not (answer.truncated and at == len(lines) - 1):
            return {}
        if name in requested:
            listed = listed or marked
            found.setdefault(name, []).append(Value(text))
    return found if len(found) > (0 if listed else 1) else {}


def _named(line: str, keys: dict[str, str], query: str) -> tuple[str | None, str]:
    """Returns the strategy and the text of a line that ends in a label, which the query has not; None if it ends in none."""
    found = _NAMED.fullmatch(line.rstrip())
    name = keys.get(label_key(found["label"])) if found else None
    if found is None or name is None or normalise(found["label"]).strip("*_` ") in normalise(query):
        return None, ""
    return name, without_emphasis(found["text"].strip())
