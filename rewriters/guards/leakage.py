"""Leakage: a pseudo-answer that copies a passage, or that has a gold answer, may repeat what the model learnt by heart."""

from __future__ import annotations

from rewriters.guards.words import runs, words
from rewriters.lengths import UNSPACED

COPIED_WORDS, COPIED_CHARS = 12, 50


def copies(text: str, passage: str) -> bool:
    """Returns whether a run of 12 or more words of the text stands in the passage.

    In scripts without spaces between words: 50 characters.
    """
    if _share_run(tuple(runs(text)), tuple(runs(passage)), COPIED_WORDS):
        return True
    return _share_run("".join(UNSPACED.findall(text)), "".join(UNSPACED.findall(passage)), COPIED_CHARS)


def has_answer(text: str, answer: str) -> bool:
    """Returns whether an answer stands in the text as whole words; False for one without letters and digits."""
    wanted, found = words(answer), words(text)
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(found)} "


def _share_run(one: str | tuple[str, ...], other: str | tuple[str, ...], length: int) -> bool:
    runs = {one[i : i + length] for i in range(len(one) - length + 1)}
    return any(other[i : i + length] in runs for i in range(len(other) - length + 1)) if runs else False
