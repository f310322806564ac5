"""Cells of CSV for a spreadsheet: read back as they were, and never a formula, a number or a date of a text."""

from __future__ import annotations

import csv
import io
from random import Random

import pytest

from cluster.storage.spreadsheet import guarded, unguarded, write_rows

ALPHABET = "'''=+-@\t\r\n 0123456789.,:/%ae東＝＋"


def test_any_text_is_read_back_as_it_was() -> None:
    draw = Random(2)
    texts = ["".join(draw.choice(ALPHABET) for _ in range(draw.randrange(8))) for _ in range(20_000)]
    assert [unguarded(guarded(text)) for text in texts] == texts
    assert not [text for text in texts if guarded(text)[:1] in {*"=+-@\t\r＝＋－＠"}]


@pytest.mark.parametrize(
    "text",
    ["=1+1", "0012", "1-2", "3/4", "10:30", "10:30 pm", "1e5", "12E3", "5%", "$5", "may 5", "5 mai 2024", "mar-01", "1,000"],
)
def test_what_a_spreadsheet_would_change_is_guarded(text: str) -> None:
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "bread", "'tis bread", "why is 1 + 1 = 2", "rye bread, 500 g", "a1 b2"])
def test_plain_texts_stay_as_they_are(text: str) -> None:
    assert guarded(text) == unguarded(text) == text


def test_numbers_stay_numbers() -> None:
    file = io.StringIO()
    write_rows(file, ["=a", "b", "c"], [["7", 7, None], ["x", -0.5, ""]])
    assert list(csv.reader(io.StringIO(file.getvalue()))) == [["'=a", "b", "c"], ["'7", "7", ""], ["x", "-0.5", ""]]
