"""Exact match and F1 of an answer: what the field's scripts give, case by case, and what must hold for all texts."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.measure.answers import CLOSED, AnswerScore, best_overlap, normalised_answer, overlap

WORDS = st.sampled_from(
    ["the", "A", "an", "tide", "Moon,", "moon", "is", "high!", "twice", "U.S.", "yes", "No", "noanswer", "7"]
)
TEXTS = st.lists(WORDS, max_size=8).map(" ".join) | st.text(max_size=12)


def by_hand(text: str) -> list[str]:
    """The words that count, one rule after the other."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def test_any_of_several_gold_answers_counts() -> None:
    assert best_overlap("the blue moon", ["sun", "moon", "blue moon rising"]) == pytest.approx((0.8, 0.0))
    assert best_overlap("moon", ["sun", "The Moon"]) == AnswerScore(1.0, 1.0)
    assert best_overlap("moon", []) == AnswerScore(0.0, 0.0)


@given(TEXTS, TEXTS)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(answer: str, gold: str) -> None:
    found, wanted = by_hand(answer), by_hand(gold)
    common = sum((Counter(found) & Counter(wanted)).values())
    closed = {" ".join(found), " ".join(wanted)} & CLOSED
    f1 = 0.0
    if common and (not closed or found == wanted):
        precision, recall = common / len(found), common / len(wanted)
        f1 = 2 * precision * recall / (precision + recall)
    if not found and not wanted:
        f1 = 1.0
    assert overlap(answer, gold) == pytest.approx((f1, float(found == wanted)))


@given(TEXTS, TEXTS)
def test_both_are_between_0_and_1_and_sides_do_not_matter(answer: str, gold: str) -> None:
    one = overlap(answer, gold)
    assert 0 <= one.exact <= one.f1 <= 1
    assert one == overlap(gold, answer) == overlap(normalised_answer(answer), f"  {gold}!")
