"""Terms of a vocabulary in texts, and texts that repeat what they should not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import RewriterError
from rewriters.guards.files import guard_file
from rewriters.guards.leakage import copies, has_answer
from rewriters.guards.vocabulary import Vocabulary, load_vocabulary

PASSAGE = "A keeper trimmed the wick of the lighthouse lamp every four hours, so that it would not smoke in the night."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a Rain Coat, blue", True),
        ("raincoat", False),
        ("rain on a coat", False),
        ("shoes!", True),
        ("赤い長靴を買う", True),
        ("", False),
    ],
)
def test_a_term_is_found_word_by_word(text: str, expected: bool) -> None:
    assert Vocabulary(["rain coat", "Shoes", "長靴"]).has_term(text) is expected


def test_a_file_has_a_term_per_line_and_notes(tmp_path: Path) -> None:
    (tmp_path / "terms.txt").write_text("# shop\nrain coat\n\nshoes\nSHOES\n", encoding="utf-8")
    assert len(load_vocabulary(guard_file("v", str(tmp_path / "terms.txt")))) == 2
    (tmp_path / "none.txt").write_text("# shop\n")
    with pytest.raises(RewriterError, match=r"none\.txt: holds no term"):
        load_vocabulary(guard_file("v", str(tmp_path / "none.txt")))


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
