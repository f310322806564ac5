"""Laws of the checks of texts, of what leaves slow checks out, and of lengths. Cases are in cases.yaml."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rewriters.lengths import UNSPACED, length, longer_cores
from rewriters.reading.checks import is_in_wrong_language, is_repetitive
from rewriters.reading.words.languages import folded, is_foreign, language_of, language_scripts, scripts
from rewriters.reading.words.sentences import whole_sentences

PASSAGE = (
    "Row upon row of vines covers the hills between Lyon and Valence, where growers have kept terraces since Roman times. "
    "The river brings cool nights, the granite holds the warmth of the day, and the wind that dries the grapes after rain "
    "is the reason why so little has to be sprayed. Of the two grapes that are allowed, one gives the colour and the other "
    "the scent; a cellar may mix them in the vat but not in the bottle, and says so on the label with a number."
)


LOOPS = [
    "cheap parcel " * 12, "包裹价格" * 6, "shipping" * 5, "東京の天気は、" * 30, "abc" * 2000,
    "".join(map(chr, range(1000, 1100))) * 5,
    "a good beginning, then and then and then and then and then and then and then and then",
    ", ".join(f"step {n}" for n in range(300)), PASSAGE + " the end." * 120,
]  # fmt: skip
NO_LOOPS = [
    "", "bora bora bora bora bora", "hahahahahahahaha", "1000000000000", "New York, New York", PASSAGE,
    PASSAGE + " No, no, no, no, no, no, no, no, no, no, it sings.",
    "北京今天的天气怎么样，明天会不会下雨，需要带伞吗，周末适合去爬山吗",
    "green tea, caffeine, green tea caffeine, caffeine in green tea, milligrams of caffeine in green tea",
]  # fmt: skip


def test_loops_are_told_from_other_texts() -> None:
    assert [text for text in LOOPS if not is_repetitive(text)] == []
    assert [text for text in NO_LOOPS if is_repetitive(text)] == []


@given(st.text(min_size=8, max_size=60), st.integers(8, 30), st.text(max_size=10))
def test_any_unit_often_enough_loops(unit: str, times: int, before: str) -> None:
    unit = " ".join(unit.split())
    if len(unit) >= 8:
        assert is_repetitive(before + (unit + " ") * times)


@given(st.text(), st.text())
def test_a_text_is_never_a_translation_of_itself(text: str, other: str) -> None:
    assert not is_in_wrong_language(text, text)
    is_in_wrong_language(text, other)


@given(st.text(), st.text(max_size=30))
def test_what_is_left_of_a_cut_passage_is_its_beginning(text: str, more: str) -> None:
    whole = whole_sentences(f"{text}. {more}")
    assert f"{text}. {more}".startswith(whole)


@given(st.text(alphabet=st.characters(codec=None)))
def test_a_text_shares_its_scripts_with_itself(text: str) -> None:
    assert not is_foreign(text, text)
    assert "" not in scripts(text)


ASCII = st.text(st.characters(max_codepoint=127), max_size=60)


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
