"""Marks between the parts of an answer, and an answer taken apart at them: the form of a trained rewriter.

[S_Rewritten_Query] first query [EOS][A_Response] an answer
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from cluster.settings import FROZEN

Mark = Annotated[str, Field(pattern=r"^\S(?:.*\S)?$")]


class Marks(BaseModel):
    """What stands between the parts of an answer, such as special tokens of a trained rewriter.

    A part goes up to the next mark. A mark that begins with a letter or a digit is one at the beginning of a line only.
    """

    model_config = FROZEN

    texts: Annotated[tuple[Mark, ...], Field(min_length=1)]
    """Behind one of these stands a text. Where the prompt ends with one, the answer begins with a text."""
    others: tuple[Mark, ...] = ()
    """Behind one of these stands none: an end, an answer in place of a rewrite, what was found."""

    @property
    def all(self) -> tuple[str, ...]:
        """All marks, each once."""
        return tuple(dict.fromkeys((*self.texts, *self.others)))


class MarkedPart(NamedTuple):
    """What stands behind a mark; `last`: no other mark follows."""

    text: str
    last: bool


def text_parts(text: str, marks: Marks, begins: bool) -> Iterator[MarkedPart]:
    """Yields the parts of an answer that are texts; `begins`: it begins with one, whose mark ended the prompt."""
    counts, start = begins, 0
    for mark in _pattern(marks).finditer(text):
        if counts:
            yield MarkedPart(text[start : mark.start()], last=False)
        counts, start = mark.group().strip() in marks.texts, mark.end()
    if counts:
        yield MarkedPart(text[start:], last=True)


@lru_cache(maxsize=64)
def _pattern(marks: Marks) -> re.Pattern[str]:
    """Returns a pattern of all marks, the longest first, as one may begin with another."""
    escaped = (
        rf"^[ \t]*{re.escape(mark)}" if mark[0].isalnum() else re.escape(mark)
        for mark in sorted(marks.all, key=len, reverse=True)
    )
    return re.compile(rf"(?:{'|'.join(escaped)})", re.MULTILINE)
