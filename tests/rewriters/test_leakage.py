"""Texts that repeat what they should not know."""

from __future__ import annotations

from rewriters.guards.leakage import copies, has_answer

PASSAGE = "A keeper trimmed the wick of the lighthouse lamp every four hours, so that it would not smoke in the night."


def test_twelve_equal_words_are_a_copy() -> None:
    words = PASSAGE.split()
    assert copies(f"I think: {' '.join(words[2:14])} is right".upper(), PASSAGE)
    assert not copies(f"I think: {' '.join(words[2:13])} is right", PASSAGE)
    assert not copies("", PASSAGE)


def test_without_spaces_fifty_characters_are_a_copy() -> None:
    passage = "".join(chr(0x4E00 + i) for i in range(80))
    assert copies(f"序：{passage[10:60]}", passage)
    assert not copies(f"序：{passage[10:59]}。{passage[70:75]}", passage)


def test_an_answer_stands_in_a_text_as_whole_words() -> None:
    assert has_answer("It is, of course, Reykjavík.", "reykjavík")
    assert has_answer("The year was 1978", "1978")
    assert not has_answer("The year was 19780", "1978")
    assert not has_answer("whatever", "?")
