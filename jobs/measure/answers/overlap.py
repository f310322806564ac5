"""Exact match and F1 of an answer against gold answers: what the field's scripts compute, as pure functions of texts.

Texts are compared as SQuAD's evaluation does (Rajpurkar et al., EMNLP 2016): in lower case, without ASCII punctuation, without
the articles a, an and the, split at white space. HotpotQA's (Yang et al., EMNLP 2018) gives no partial credit where one of the
two is yes, no or noanswer and the other is not; where both are empty after normalising they are equal, as in SQuAD 2.0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

CLOSED = frozenset(("yes", "no", "noanswer"))  # answers of which a word in a longer text is no part
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


class AnswerScore(NamedTuple):
    """How well an answer agrees with a gold answer; both from 0 to 1."""

    f1: float
    """Of their words, each counted as often as it is there."""
    exact: float
    """1 where they are the same after normalising, else 0."""


NOTHING = AnswerScore(0.0, 0.0)


def normalised_answer(text: str) -> str:
    """Returns a text as answers are compared: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def overlap(answer: str, gold: str) -> AnswerScore:
    """Returns exact match and F1 of an answer against one gold answer."""
    found, wanted = normalised_answer(answer), normalised_answer(gold)
    if found == wanted:
        return AnswerScore(1.0, 1.0)
    if found in CLOSED or wanted in CLOSED:
        return NOTHING
    of_answer, of_gold = found.split(), wanted.split()
    common = (Counter(of_answer) & Counter(of_gold)).total()
    return AnswerScore(2 * common / (len(of_answer) + len(of_gold)), 0.0)


def best_overlap(answer: str, golds: Iterable[str]) -> AnswerScore:
    """Returns the greatest F1 and the greatest exact match over several gold answers, any of which counts; 0 without one."""
    found = [overlap(answer, gold) for gold in golds]
    return AnswerScore(max((one.f1 for one in found), default=0.0), max((one.exact for one in found), default=0.0))
