"""The rungs of the parse ladder: each reads one shape of answer, and says what it found for each strategy.

    json_object.py   {"general": "...", "keyword": "..."}, whole, in a fence, or after other text
    labelled.py      General Search Rewriting: ...
    numbered.py      1. ...  2. ...
    salvage.py       half JSON, and the plain text of an answer that has one strategy to give

`PARSED_AS` of each is what the tables call it: json, labelled, numbered, salvage.

A rung takes an `Answer` and returns `Found`: the values of each strategy that it saw, the one to be preferred first.
It judges shape only; whether a value is fit to be a rewrite is for `checks.py`. No rung raises, whatever the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from rewriters.strategy import Strategy


@dataclass(frozen=True)
class Answer:
    """What a rung reads.

    text: without reasoning, its lines ending in "\\n". wanted: the strategies asked for, in the order in which they
    were asked. known: all whose labels may turn up, the wanted ones included. truncated: the token limit cut the
    text.
    """

    text: str
    wanted: tuple[Strategy, ...]
    known: tuple[Strategy, ...]
    query: str
    truncated: bool


class Value(NamedTuple):
    """A value as it stands in the answer. text: None where something other than one text stood. complete: False
    where, if the answer was cut, the cut may have taken a part of it."""

    text: str | None
    complete: bool = True


Found = dict[str, list[Value]]


def key(text: str) -> str:
    """A name or label reduced to what identifies it: letters and digits in lower case, without leading numbering."""
    return re.sub(r"[\W_]+", "", text.casefold()).lstrip("0123456789")


def known_keys(strategies: tuple[Strategy, ...]) -> dict[str, str]:
    """Each strategy's name by the keys of its name and its label."""
    return {key(word): strategy.name for strategy in strategies for word in (strategy.label, strategy.name)}
