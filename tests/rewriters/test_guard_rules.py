"""Laws of the guards: what a rewrite has lost, what is masked, what says the same, what is copied. Cases are in cases.yaml."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rewriters.guards.guards import compared, near_duplicates
from rewriters.guards.mask import Mask, unmasked
from rewriters.guards.preserve import lost, parts, repaired
from rewriters.guards.words import copies

ALL = ("mail", "phone", "card")
PERSONAL = ["a@b.io", "+49 30 1234567", "4111111111111111", "x-y.z@q.example"]
WORDS = st.lists(st.sampled_from(['"old mill"', "Oslo", "B57", "12", "3.5kg", "and", "why", "2024-01-31", "Ärger"]), max_size=8)
PASSAGE = "A keeper trimmed the wick of the lighthouse lamp every four hours, so that it would not smoke in the night."


@given(st.text(max_size=60), st.sampled_from(["query", "passage"]))
def test_a_text_has_lost_nothing_of_itself_and_is_a_near_duplicate_of_itself(text: str, search_as: str) -> None:
    assert lost(text, parts(text)) == []
    assert near_duplicates(compared(text, search_as), compared(text, search_as))
    changed = text.upper().lower()
    assert near_duplicates(compared(text, search_as), compared(changed, search_as)) or changed != text.lower()


@given(st.text(st.sampled_from("北京地铁号線でサッカー優勝ราคาทองกิ่ลາ๒12３"), max_size=30))
def test_scripts_without_case_and_spaces_have_no_names(text: str) -> None:
    assert {part.flag for part in parts(text)} <= {"lost_number"}


@given(WORDS, st.sampled_from([None, ", "]))
def test_what_is_repaired_has_all_and_begins_as_it_was(query: list[str], separator: str | None) -> None:
    wanted = parts("is it " + " ".join(query))
    text = repaired("something else", lost("something else", wanted), separator)
    assert lost(text, wanted) == []
    assert text.startswith("something else")


def test_repairs_are_joined_as_the_strategy_joins_and_a_phrase_counts_once() -> None:
    missing = lost("cars", parts("cars in Oslo under $5,000"))
    assert repaired("cars", missing, ", ") == "cars, Oslo, $5,000"
    assert repaired("cars", missing, None) == "cars Oslo $5,000"
    assert [part.flag for part in parts('who played in "Harbour 17" for Nokia')] == ["lost_phrase", "lost_name"]


def test_placeholders_are_of_the_kinds_asked_for_and_hold_for_all_texts_of_a_query() -> None:
    assert Mask(["mail"])("a@b.io +49 30 1234567") == "<MAIL_1> +49 30 1234567"
    assert Mask([])("a@b.io") == "a@b.io"
    mask = Mask(ALL)
    assert (mask("a@b.io"), mask("x@y.io, a@b.io"), mask.counts) == ("<MAIL_1>", "<MAIL_2>, <MAIL_1>", {"mail": 2})


@given(st.lists(st.sampled_from([*PERSONAL, "why", "12", "MAIL_1"])))
def test_what_was_masked_comes_back(pieces: list[str]) -> None:
    text, mask = " ".join(pieces), Mask(ALL)
    masked = mask(text)
    assert unmasked(masked, mask.values) == text
    assert not any(secret in masked for secret in PERSONAL)


def test_a_passage_and_a_query_are_near_duplicates_if_their_words_are_equal_in_order() -> None:
    query = compared("rye bread keeps", "query")
    assert not near_duplicates(query, compared("keeps rye bread", "passage"))
    assert near_duplicates(query, compared("Rye bread keeps.", "passage"))


def test_twelve_equal_words_or_fifty_characters_without_spaces_are_a_copy() -> None:
    words = PASSAGE.split()
    assert copies(f"I think: {' '.join(words[2:14])} is right".upper(), PASSAGE)
    assert not copies(f"I think: {' '.join(words[2:13])} is right", PASSAGE)
    assert not copies("", PASSAGE)
    passage = "".join(chr(0x4E00 + i) for i in range(80))
    assert copies(f"序：{passage[10:60]}", passage)
    assert not copies(f"序：{passage[10:59]}。{passage[70:75]}", passage)
