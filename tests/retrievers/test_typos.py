"""Typos in queries: which words get them, of which kinds, and that nothing else moves."""

from __future__ import annotations

import string
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.settings import TypoSettings
from retrievers.typos import NEIGHBOURS, SHORTEST, with_typos

QUERY = "why does the lighthouse keeper trim the wick every 4 hours"
APART = QUERY.replace(" ", ", ")  # words that cannot be joined
WRITTEN = [
    "why does the lighthouse keeper trim the wickevery 4 hours",
    "why does the lighthouse keeper trim the wick every 4 huors",
]
ALL_WRITTEN = "why dooes the lighthousekeeepr tri the wickevery4 housr"
WORDS = st.lists(st.text(string.ascii_letters, min_size=1, max_size=9), min_size=1, max_size=8)
RATES = st.floats(0, 1)


def typed(text: str, key: str = "k", rate: float = 0.1, seed: int = 0) -> str:
    return with_typos(text, key, TypoSettings(rate=rate, seed=seed))


def kind(before: str, after: str) -> str:
    """What was done to one word, found without knowing the draw."""
    if len(after) == len(before) - 1:
        assert any(before[:i] + before[i + 1 :] == after for i in range(1, len(before)))
        return "dropped"
    if len(after) == len(before) + 1:
        assert any(before[: i + 1] + before[i] + before[i + 1 :] == after for i in range(1, len(before)))
        return "doubled"
    (first, *others) = [i for i in range(len(before)) if before[i] != after[i]]
    if not others:
        assert after[first].lower() in NEIGHBOURS[before[first].lower()]
        assert after[first].isupper() == before[first].isupper()
        return "replaced"
    assert others == [first + 1]
    assert (after[first], after[first + 1]) == (before[first + 1], before[first])
    return "transposed"


def test_what_comes_out_is_written_down() -> None:
    """Other figures here are other searches for the same config: raise TYPOS_VERSION."""
    assert [typed(QUERY, key) for key in ("a", "b")] == WRITTEN
    assert typed(QUERY, "a", rate=1) == ALL_WRITTEN


@given(WORDS, st.text(max_size=4), RATES, st.integers())
def test_a_text_has_typos_by_its_key_and_the_settings_alone(words: list[str], key: str, rate: float, seed: int) -> None:
    text, settings = " ".join(words), TypoSettings(rate=rate, seed=seed)
    once = with_typos(text, key, settings)
    with_typos("another query before it", "other", settings)
    assert with_typos(text, key, settings) == once


@given(WORDS, RATES)
def test_every_query_with_a_long_word_gets_one_and_short_words_never(words: list[str], rate: float) -> None:
    text = " ".join(words)
    eligible = any(len(word) >= SHORTEST for word in words)
    assert (typed(text, rate=rate) != text) == (eligible and rate > 0)


@given(st.text(string.ascii_letters, min_size=SHORTEST, max_size=12), st.integers(0, 50))
def test_a_drawn_word_has_exactly_one(word: str, seed: int) -> None:
    assert kind(word, typed(word, rate=1, seed=seed))  # asserts itself that it is one, and spares the first letter


def test_a_higher_rate_keeps_the_typos_of_a_lower_one() -> None:
    for key in map(str, range(200)):
        typos = [typed(APART, key, rate).split() for rate in (0.01, 0.3, 0.6, 1)]
        changed = [{n for n, word in enumerate(words) if word != APART.split()[n]} for words in typos]
        assert all(fewer <= more for fewer, more in pairwise(changed)), key
        assert all(fewer[n] == more[n] for fewer, more, of in zip(typos, typos[1:], changed, strict=False) for n in of), key


def test_the_rate_is_the_share_of_long_words() -> None:
    words = [f"lighthouse{'abcdefghij'[n]}" for n in range(10)]
    changed = sum(len(set(words) - set(typed(", ".join(words), str(key), 0.3).split(", "))) for key in range(400))
    assert changed / 4000 == pytest.approx(0.3, abs=0.03)


def test_all_kinds_come_alike() -> None:
    counts = Counter(
        "joined" if " " not in typo else kind("harbour", typo.split()[0])
        for typo in (typed("harbour in", str(n), rate=1) for n in range(2000))
    )
    assert set(counts) == {"transposed", "dropped", "doubled", "replaced", "joined"}
    assert all(count == pytest.approx(400, abs=75) for count in counts.values())  # 4 standard deviations


@pytest.mark.parametrize("text", ["маяк", "Leuchttürme", "φάρος", "灯台の光", "दीपस्तंभ", "etoile\u0301e"])
def test_letters_that_are_on_no_key_are_only_moved_or_left_out(text: str) -> None:
    unknown = {letter for letter in text if letter.lower() not in NEIGHBOURS}
    for key in map(str, range(60)):
        after = typed(text, key, rate=1)
        assert after != text
        assert after[0] == text[0]
        before, now = Counter(text), Counter(after)
        assert all(now[letter] <= before[letter] for letter in unknown)
        if not set(text.lower()) & set(NEIGHBOURS):
            assert not now - before
            assert sum((before - now).values()) <= max(1, len(text) - len(after))


def test_marks_stay_with_their_letter() -> None:
    for key in map(str, range(60)):
        after = typed("pe\u0301tale", key, rate=1)
        assert "\u0301" not in after or "e\u0301" in after


@pytest.mark.parametrize("text", ["", "  ", "ox in a hat", "12345 67890", "c++ / c#"])
def test_a_text_without_a_long_word_stays_as_it_is(text: str) -> None:
    assert typed(text, rate=1) == text


def test_what_stands_between_words_stays() -> None:
    for key in map(str, range(60)):
        after = typed("(lamp)  /  [oil]: 1,234", key, rate=1)
        assert after.startswith("(l")
        assert after.endswith(")  /  [oil]: 1,234")


def test_keys_touch_on_both_sides() -> None:
    assert NEIGHBOURS["a"] == "qwsz"
    assert set(NEIGHBOURS["g"]) == set("tyfhvb")
    assert all(key in NEIGHBOURS[other] for key, others in NEIGHBOURS.items() for other in others)
