"""The texts that code of the user gives: how they are written as an answer, and read from one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

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
