"""The texts that code of the user gives: how it is asked, and how they are written as an answer and read from one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rewriters.python.given import FirstLists
from rewriters.python.strategy import PythonStrategy
from rewriters.query import Query
from rewriters.reading.checks import unwanted_reason, without_control
from rewriters.reading.ladder import Parsed, Unread
from rewriters.strategy import Strategy

PARSED_AS = "code"


class WeightedText(NamedTuple):
    """A text that code gives.

    Attributes:
        text: To search.
        weight: Multiplies that of the strategy, from 0.
    """

    text: str
    weight: float = 1.0


class OpenedCode:
    """What a strategy's `open` has returned: asked for one query, or for several at a time."""

    def __init__(self, strategy: PythonStrategy) -> None:
        """Opens the strategy."""
        self._most, self._reads = int(strategy.fields.get("n", 1)), strategy.reads is not None
        opened = strategy.open()
        self._many = getattr(opened, "many", None)
        self._one, self.batch = opened, max(1, strategy.batch) if self._many is not None else 1

    def texts(self, queries: Sequence[Query], lists: Sequence[FirstLists | None]) -> list[list[WeightedText]]:
        """Returns the texts of queries with their first lists, None where it reads none: of one, or of a batch.

        Raises:
            Exception: Whatever the code raises; TypeError, ValueError: it gives something else than texts.
        """
        if self._many is None:
            ((query,), (read,)) = queries, lists
            given = [self._one(query, read) if self._reads else self._one(query)]
        else:
            answer = self._many(list(queries), list(lists)) if self._reads else self._many(list(queries))
            if isinstance(answer, str) or not isinstance(answer, Iterable):
                raise TypeError(f"many gives {type(answer).__name__}, and should give a list for each query")
            given = list(answer)
            if len(given) != len(queries):
                raise ValueError(f"many gives {len(given)} lists for {len(queries)} queries")
        return [weighted_texts(one, self._most) for one in given]


def weighted_texts(given: Any, most: int) -> list[WeightedText]:
    """Returns what code has given as texts with weights: it gives texts, or pairs of a text and its weight.

    Args:
        given: By the code.
        most: Texts that it says it gives at most.

    Raises:
        TypeError, ValueError: It has given something else, or more.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"rewrite gives {type(given).__name__}, and should give a list of texts, or of (text, weight)")
    found = []
    for one in given:
        text, weight = (one, 1.0) if isinstance(one, str) else one if isinstance(one, tuple) and len(one) == 2 else (None, 1.0)
        if not isinstance(text, str):
            raise TypeError(f"rewrite gives a list with {one!r:.80}, which is no text and no (text, weight)")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise ValueError(f"rewrite gives the weight {weight!r:.40}, and should give a number of 0 or more")
        found.append(WeightedText(text, float(weight)))
    if len(found) > most:
        raise ValueError(f"rewrite gives {len(found)} texts, and its n says {most} at most; raise n in its fields")
    return found


def written(texts: Iterable[WeightedText]) -> str:
    """Returns texts as an answer, which stores keep: a JSON list of texts and weights."""
    return json.dumps([[without_control(one.text), one.weight] for one in texts], ensure_ascii=False)


def read_written(answer: str, query: str, strategy: Strategy) -> list[Parsed | Unread]:
    """Returns the texts of an answer, or the reasons against them: code writes no comments, but what it writes is limited."""
    found: list[Parsed | Unread] = []
    for text, weight in json.loads(answer):
        line = " ".join(text.split())
        reason = unwanted_reason(line, strategy, query) if line else "empty"
        found.append(Unread(reason) if reason else Parsed(line, PARSED_AS, weight=weight))
    return found
