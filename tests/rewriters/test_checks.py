"""What makes a text no rewrite: is_repetitive, scripts, reasoning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.reading.repetition import is_repetitive
from rewriters.reading.thinking import strip_thinking
from rewriters.reading.words.scripts import scripts, share_no_script

PASSAGE = (
    "Row upon row of vines covers the hills between Lyon and Valence, where growers have kept terraces since Roman times. "
    "The river brings cool nights, the granite holds the warmth of the day, and the wind that dries the grapes after rain "
    "is the reason why so little has to be sprayed. Of the two grapes that are allowed, one gives the colour and the other "
    "the scent; a cellar may mix them in the vat but not in the bottle, and says so on the label with a number."
)


@pytest.mark.parametrize(
    "text",
    [
        "cheap parcel " * 12,
        "a good beginning, then and then and then and then and then and then and then and then",
        "包裹价格" * 6,
        "shipping" * 5,
        "".join(map(chr, range(1000, 1100))) * 5,
        "東京の天気は、" * 30,
        "abc" * 2000,
        ", ".join(f"step {n}" for n in range(300)),
        PASSAGE + " the end." * 120,
    ],
)
def test_loops(text: str) -> None:
    assert is_repetitive(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bora bora bora bora bora",
        "hahahahahahahaha",
        "1000000000000",
        "New York, New York",
        PASSAGE,
        PASSAGE + " No, no, no, no, no, no, no, no, no, no, it sings.",
        "北京今天的天气怎么样，明天会不会下雨，需要带伞吗，周末适合去爬山吗",
        "green tea, caffeine, green tea caffeine, caffeine in green tea, milligrams of caffeine in green tea",
    ],
)
def test_no_loops(text: str) -> None:
    assert not is_repetitive(text)


@given(st.text(min_size=8, max_size=60), st.integers(8, 30), st.text(max_size=10))
def test_any_unit_often_enough_loops(unit: str, times: int, before: str) -> None:
    unit = " ".join(unit.split())
    if len(unit) >= 8:
        assert is_repetitive(before + (unit + " ") * times)


@pytest.mark.parametrize(
    ("query", "rewrite", "foreign"),
    [
        ("cheap parcel", "billiges Paket", False),
        ("cheap parcel", "дешёвая посылка", True),
        ("дешёвая посылка", "посылка DHL", False),
        ("посылка DHL", "DHL parcel", False),
        ("北京天气", "Beijing weather", True),
        ("北京天气", "北京 天气", False),
        ("こづつみ", "小包", False),
        ("小包の料金", "コヅツミ", False),
        ("소포 요금", "小包", True),
        ("소포 요금", "소포", False),
        ("小包", "소포", True),
        ("π", "value of pi", False),
        ("爱", "love", True),
        ("ＤＨＬ", "DHL", False),
        ("𝐃𝐇𝐋 parcel", "Пакет", True),
        ("12 + 7", "сложение", False),
        ("parcel", "12", False),
        ("كتاب", "book", True),
        ("สภาพอากาศ", "weather", True),
        ("แท็กซี่", "แท็กซี่ taxi", False),
    ],
)
def test_scripts_in_common(query: str, rewrite: str, foreign: bool) -> None:
    assert share_no_script(query, rewrite) == foreign


@given(st.text(alphabet=st.characters(codec=None)))
def test_a_text_shares_its_scripts_with_itself(text: str) -> None:
    assert not share_no_script(text, text)
    assert "" not in scripts(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("b<think>a", "b"),
        ("<THINK>a</Think>b", "b"),
        ("<think>a</think>b<think>c</think>d", "b d"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("a < b > c", "a < b > c"),
        ("no tags", "no tags"),
        ("<think></think>", ""),
    ],
)
def test_reasoning_is_taken_off(text: str, kept: str) -> None:
    assert " ".join(strip_thinking(text, "a query").split()) == kept


def test_a_query_about_the_tag_keeps_it_but_for_a_block_at_the_start() -> None:
    query = "what does <think> mean"
    assert strip_thinking("meaning of <think> in models", query) == "meaning of <think> in models"
    assert strip_thinking("<think>hm</think>meaning of <think>", query) == "meaning of <think>"
    assert strip_thinking(" <think>hm", query) == ""
