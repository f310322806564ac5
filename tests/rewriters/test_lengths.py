"""Lengths of rewrites: words, or characters where a script has no spaces."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.lengths import UNSPACED, length, longer_cores


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", 0),
        (" , - ", 0),
        ("green tea, caffeine", 3),
        ("green,tea,caffeine", 3),
        ("driver's licence mid-cycle", 3),
        ("हिन्दी भाषा", 2),  # vowel signs are part of their word
        ("東京の宿", 4),
        ("東京、宿", 3),
        ("東京 hotel 2025年", 5),
        ("โรงแรม", 6),
        ("서울 호텔", 2),
        ("قهوة، شاي", 2),
    ],
)
def test_length(text: str, wanted: int) -> None:
    assert length(text) == wanted


@given(st.lists(st.text("abcdé", min_size=1), max_size=6), st.text("東京宿", max_size=6))
def test_words_and_characters_add_up(words: list[str], characters: str) -> None:
    assert length(" ".join(words) + characters) == len(words) + len(characters)


@given(st.text(st.sampled_from("ab5_-é ,;،、，；\u00a0\n東"), max_size=12) | st.text(max_size=12))
def test_a_word_has_a_letter_or_digit_and_lies_between_separators(text: str) -> None:
    parts = re.split(r"[\s,;،、，；]+", UNSPACED.sub(r" \g<0> ", text))
    assert length(text) == sum(any(map(str.isalnum, part)) for part in parts)


ROWS = [
    ("a", "keyword", "tea, caffeine"),
    ("a", "core_content", "caffeine of green tea"),  # longer
    ("b", "keyword", "tea, caffeine"),
    ("b", "core_content", "tea caffeine"),  # as long
    ("c", "core_content", "no keyword to compare with"),
    ("d", "keyword", "nothing to compare with"),
    ("e", "core_content", "東京の宿"),  # longer
    ("e", "keyword", "東京、宿"),
    ("f", "keyword", "tea"),
    ("f", "pseudo_answer", "It has thirty milligrams."),
]


def test_queries_whose_core_is_longer_are_counted_in_any_order() -> None:
    for rows in (ROWS, ROWS[::-1]):
        assert longer_cores(*zip(*rows, strict=True)) == 2
    assert longer_cores([], [], []) == 0
