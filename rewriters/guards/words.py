"""The words of a text, as guards compare them, and leakage of documents and answers into texts.

A pseudo-answer that copies a passage, or that has a gold answer, may repeat what the model learnt by heart.
"""

import re
import unicodedata
from functools import lru_cache

from rewriters.lengths import UNSPACED
from rewriters.normalise import normalise

_ASCII = re.compile(r"[a-z0-9]+")


def split_words(text: str) -> list[str]:
    """Returns the sequences of letters, marks and digits of the normal form, in order, without apostrophes.

    In scripts without spaces between words, a run gives its overlapping pairs of characters.
    """
    tokens = []
    for run in runs(text):
        tokens += [run] if run.isascii() or not UNSPACED.search(run) else _pairs(run)
    return tokens


def runs(text: str) -> list[str]:
    """Returns the same without cutting any run."""
    normal = normalise(text).replace("'", "").replace("’", "")
    if normal.isascii():
        return _ASCII.findall(normal)
    return "".join(char if _is_kept(char) else " " for char in normal).split()


@lru_cache(maxsize=8192)
def _is_kept(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN"


def _pairs(run: str) -> list[str]:
    pairs = []
    for part in re.findall(f"{UNSPACED.pattern}+|(?:(?!{UNSPACED.pattern}).)+", run):
        spaced = len(part) == 1 or not UNSPACED.match(part)
        pairs += [part] if spaced else [part[i : i + 2] for i in range(len(part) - 1)]
    return pairs


COPIED_WORDS, COPIED_CHARS = 12, 50


def copies(text: str, passage: str) -> bool:
    """Returns True if a run of 12 or more words of the text stands in the passage.

    In scripts without spaces between words: 50 characters.
    """
    if _share_run(tuple(runs(text)), tuple(runs(passage)), COPIED_WORDS):
        return True
    return _share_run("".join(UNSPACED.findall(text)), "".join(UNSPACED.findall(passage)), COPIED_CHARS)


def has_answer(text: str, answer: str) -> bool:
    """Returns True if an answer stands in the text as whole words; False for one without letters and digits."""
    wanted, tokens = split_words(answer), split_words(text)
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(tokens)} "


def _share_run(first: str | tuple[str, ...], other: str | tuple[str, ...], length: int) -> bool:
    runs = {first[i : i + length] for i in range(len(first) - length + 1)}
    return any(other[i : i + length] in runs for i in range(len(other) - length + 1)) if runs else False
