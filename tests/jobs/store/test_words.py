"""Which texts have the words of a query, in whatever form."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.store.words import QueryWords
from rewriters.normalise import normalise


@pytest.mark.parametrize(
    ("query", "text", "held"),
    [
        ("spring tide", "Rewrite this query: Spring  TIDE", True),
        ("Spring Tide", "about\nspring\ttide?", True),
        ("spring tide", "springtide", False),
        ("tide", "tides", False),
        ("tide", "(tide)", True),
        ("tide", "ebb-tide,", True),
        ("tide", "riptide and tide", True),
        ("Straße", "STRASSE", True),
        ("tide", "\uff54\uff49\uff44\uff45", True),  # full width
        ("東京", "は東京の", True),
        ("café", json.dumps({"general": "the café"}), True),
        ("red fox", json.dumps({"prompt": "a\nred\nfox"}), True),
        ('say "no"', json.dumps({"text": 'they say "no" again'}), True),
        ("😀 faces", json.dumps({"text": "😀 faces"}), True),
        ("tide", None, False),
    ],
)
def test_texts_with_the_words(query: str, text: str | None, held: bool) -> None:
    rows = pa.table({"text": pa.array([text, "nothing of it"], pa.string())})
    assert QueryWords(query).held_by(rows, ["text"]).tolist() == [held, False]


def test_nested_texts() -> None:
    hits = [
        [{"title": "a", "text": "spring tide"}],
        [],
        [{"title": "b", "text": None}, {"title": "Spring tide", "text": "c"}],
        None,
    ]
    rows = pa.table({"query_id": ["1", "2", "3", "4"], "hits": hits})
    assert QueryWords("spring tide").held_by(rows, ["hits", "missing"]).tolist() == [True, False, True, False]


def test_no_words_are_in_no_text() -> None:
    assert not QueryWords("  ").held_by(pa.table({"text": ["a", " "]}), ["text"]).any()


@given(st.lists(st.text("aB\u00e9ß \\u0\n", max_size=12), max_size=6), st.text("aB\u00e9ß ", min_size=1, max_size=4))
def test_the_quick_look_leaves_nothing_out(texts: list[str], query: str) -> None:
    """By columns, where most texts are never normalised, as text by text."""
    words = QueryWords(query)
    held = words.held_by(pa.table({"text": pa.array(texts, pa.string())}), ["text"])
    assert np.array_equal(held, [bool(normalise(query)) and words.in_text(text) for text in texts])
