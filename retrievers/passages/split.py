"""Splits the text of a document into passages that overlap."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Where a passage may end, the best kind first: at the end of a paragraph, of a sentence, of a word.
_BREAKS = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"[.!?…][\"'”’»)\]]*(?=\s)|[。！？][」』”’]*|\n"),
    re.compile(r"(?=\s)"),
)
_WORD = re.compile(r"(?<=\s)\S")


def split(text: str, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yields the (begin, end) of each passage of a text, without white space around it.

    A passage has `size` characters at most. It ends with the last paragraph that ends in its second half, else with the last
    sentence, else with the last word, else where it is full. The next one begins at most `overlap` characters before that end,
    with a word where one begins there.
    """
    begin, covered = 0, 0
    while begin < len(text):
        full = min(begin + size, len(text))
        end = full if full == len(text) else _end(text, max(covered, begin + size // 2), full)
        left = begin + len(text[begin:end]) - len(text[begin:end].lstrip())
        right = left + len(text[left:end].rstrip())
        if right > max(left, covered):
            yield left, right
        if end == len(text):
            return
        covered = end
        back = max(left + 1, end - overlap)
        word = _WORD.search(text, back, end)
        begin = word.start() if word else min(back, end)


def _end(text: str, least: int, full: int) -> int:
    """Returns where a passage that is full at `full` ends, behind `least`."""
    for kind in _BREAKS:
        ends = [found.end() for found in kind.finditer(text, least, full + 1) if least < found.end() <= full]
        if ends:
            return ends[-1]
    return full
