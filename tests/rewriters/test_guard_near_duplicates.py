"""Which texts of a query say nearly the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.guards.near_duplicates import compared, near_duplicates

TEN = "how long does a loaf of rye bread keep fresh in linen"


def same(one: str, other: str, one_as: str = "query", other_as: str = "query") -> bool:
    return near_duplicates(compared(one, one_as), compared(other, other_as))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Rye bread", "rye  bread?", True),
        ("rye bread", "bread, rye", True),
        ("flights to paris from london", "flights to london from paris", False),
        ("from rye to bread", "from bread to rye", False),
        ("rye bread in linen", "in linen, rye bread", True),
        ("rye, bread", "bread; rye", True),
        (TEN, TEN.replace("rye bread", "bread rye"), False),
        ("rye bread", "rye breads", False),  # nothing is stemmed
        ("rye bread", "rye bread recipe", False),
        (TEN, TEN + " bags", True),  # 12 of 13 words
        (TEN, TEN + " 7", False),  # a number is no small thing
        ("ssh v2", "ssh v3", False),
        ("東京タワーの高さ", "東京タワーの高さ。", True),
        ("東京大学", "大学東京", False),
        ("कि", "की", False),  # marks count
        ("c++", "c", True),  # punctuation does not
        ("???", "!!!", False),
    ],
)
def test_rules(one: str, other: str, expected: bool) -> None:
    assert same(one, other) is expected
    assert same(other, one) is expected


def test_a_passage_and_a_query_must_be_equal_in_order() -> None:
    assert not same("rye bread keeps", "keeps rye bread", "query", "passage")
    assert same("Rye bread keeps.", "rye bread keeps", "query", "passage")


@given(st.text(max_size=30), st.sampled_from(["query", "passage"]))
def test_every_text_is_one_of_itself(text: str, search_as: str) -> None:
    assert same(text, text, search_as, search_as)
    assert same(text, text.upper().lower(), search_as, search_as) or text.upper().lower() != text.lower()
