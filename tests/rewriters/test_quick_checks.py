"""What leaves slow checks of texts out says the same as the checks."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rewriters.reading import repetition
from rewriters.reading.words.function_words import folded, language_of
from rewriters.reading.words.scripts import is_foreign, language_scripts, scripts

ASCII = st.text(st.characters(max_codepoint=127), max_size=60)


def _loops(chance: random.Random) -> str:
    """Returns a text with a unit so many times in a row, and others around it."""
    letters = chance.choice(["ab", "abcdefgh ijklmnop rstuv"])
    text = "".join(chance.choices(letters, k=chance.randint(1, 40))) * chance.randint(3, 12)
    around = "".join(chance.choices(letters, k=chance.randint(0, 2 * len(text))))
    cut = chance.randint(0, len(around))
    return around[:cut] + text + around[cut:]


def test_where_substrings_differ_the_search_finds_no_loop() -> None:
    chance, left_out, found = random.Random(7), 0, 0
    for _ in range(4_000):
        text = _loops(chance)[: repetition._RATIO_MIN_BYTES - 1]
        tail = " ".join(text.split())
        runs = repetition._repeated_unit(min(100, len(tail) // 5)).finditer(tail) if len(tail) >= 5 else ()
        longest = max((len(run.group()) for run in runs), default=0)
        is_loop = longest >= max(repetition._MIN_BYTES, repetition._MIN_SHARE * len(tail))
        if len(tail) >= repetition._MIN_BYTES and repetition._has_no_loop(tail):
            left_out += 1
            assert not is_loop, text
        found += is_loop
    assert left_out > 200
    assert found > 200


@given(ASCII)
def test_ascii_has_no_script_but_latin(text: str) -> None:
    # An ideograph beside it is looked at letter by letter.
    assert scripts(text) == scripts(f"{text} 字") - {"han-kana"}
    assert language_scripts(text) == scripts(text)
    assert folded(text) == folded(f"{text} é")[:-2]


@given(ASCII, ASCII)
def test_ascii_is_never_in_another_script(query: str, rewrite: str) -> None:
    assert not is_foreign(query, rewrite)
    assert not is_foreign(f"{query} ½", rewrite)  # not ASCII, and no letter: by the whole comparison
    assert language_of(query) == language_of(f"{query} ½")
