"""Input and output of the readers; each reader parses one format of answers.

    json_object.py   {"general": "...", "keyword": "..."}, alone, in a fence, or after other text
    labels.py        General Search Rewriting: ...; and numbered lines: 1. ...  2. ...
    repair.py        incomplete or malformed JSON; the plain text of an answer to a request for one strategy

A reader is a function from an `LlmAnswer` to `Found`: the values of each strategy, the preferred one first. Readers parse the
format only, `checks.py` validates the values. No reader raises, whatever the text.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from rewriters.strategy import Strategy

_NO_LETTER = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class LlmAnswer:
    """The input of a reader."""

    text: str  # the answer without reasoning; its lines end in a line feed
    requested: tuple[Strategy, ...]  # the requested strategies, in the order of the prompt
    known: tuple[Strategy, ...]  # all strategies whose labels may occur, the requested ones included
    query: str  # the query that was rewritten
    instructions: str  # the prompt template
    truncated: bool  # the token limit cut the text

    @cached_property
    def names(self) -> dict[str, str]:
        """Returns the name of each known strategy by `label_key` of all its names."""
        return {label_key(word): strategy.name for strategy in self.known for word in strategy.names}

    def strategy(self, label: str) -> Strategy | None:
        """Returns the requested strategy that a label names, or None."""
        name = self.names.get(label_key(label))
        return next((strategy for strategy in self.requested if strategy.name == name), None)


class Value(NamedTuple):
    """A value as the answer has it, before any check."""

    text: str | None  # none if the value is not a single text
    complete: bool = True  # false if truncation of the answer may have removed a part of it


Found = dict[str, list[Value]]  # the values of each strategy, by its name, the preferred one first


@lru_cache(maxsize=1024)  # the names of strategies are compared with every answer
def label_key(text: str) -> str:
    """Returns the form in which labels are compared: letters and digits in lower case, without leading digits."""
    return _NO_LETTER.sub("", text.casefold()).lstrip("0123456789")
