"""Detection of repetitive text: some models repeat themselves until the token limit."""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

_TAIL_CHARS = 4000  # the end suffices: a loop runs to the token limit; the search takes 100 steps per character
_MAX_UNIT_CHARS, _MIN_REPEATS = 100, 5  # a unit of up to 100 characters, at least five times in a row
_MIN_BYTES = 30  # shorter repetitions are words ("hahahaha"), numbers (1000000) and rules (-----)
_MIN_SHARE = 0.4  # of the text: the chorus of a song in a passage is no loop
# Loops with a counter ("item 1, item 2, ...") have no exact unit, but zlib compresses them to 1/5 and less, and 400 bytes and
# more of ordinary text to 1/1.3 to 1/2.3.
_SUBSTRING = 8  # characters
_RATIO_MIN_BYTES, _LOOP_COMPRESSION = 400, 5.0


def is_repetitive(text: str) -> bool:
    """Returns whether one repeated unit is 40 % of a text (and 30 bytes), or zlib compresses the text to a fifth."""
    tail = " ".join(text[-_TAIL_CHARS:].split())
    data = tail.encode("utf-8", "replace")
    if len(data) < _MIN_BYTES or (len(data) < _RATIO_MIN_BYTES and _has_no_loop(tail)):
        return False
    compressed = len(zlib.compress(data, 1))
    # A text with a loop of 40 % compresses to 0.6 + 0.4 / 5 of its length and 15 bytes at most; others need no search.
    if compressed < 0.8 * len(data) + 15:
        runs = _repeated_unit(min(_MAX_UNIT_CHARS, len(tail) // _MIN_REPEATS)).finditer(tail)
        longest = max((len(run.group().encode("utf-8", "replace")) for run in runs), default=0)
        if longest >= max(_MIN_BYTES, _MIN_SHARE * len(data)):
            return True
    return len(data) >= _RATIO_MIN_BYTES and len(data) / compressed >= _LOOP_COMPRESSION


def _has_no_loop(text: str) -> bool:
    """Returns whether so many substrings of a text differ that no loop can be as long as asked for; False: it may have one.

    A loop of m characters whose unit is a fifth of it at most has m / 5 different substrings of any length, so that with it
    0.8 m of the text's substrings repeat others. Of ordinary texts it leaves the search out (0.1 ms of each).
    """
    if not text.isascii():  # a share of bytes is no share of characters
        return False
    places = range(len(text) - _SUBSTRING + 1)
    longest = max(_MIN_BYTES, _MIN_SHARE * len(text))
    return len(places) - len({text[place : place + _SUBSTRING] for place in places}) < longest - _SUBSTRING + 1 - longest / 5


@lru_cache
def _repeated_unit(longest: int) -> re.Pattern[str]:
    """Returns a pattern of a repeated unit of up to `longest` characters; it needs no spaces, so it works for CJK."""
    return re.compile(rf"(.{{1,{longest}}}?)\1{{{_MIN_REPEATS - 1},}}", re.DOTALL)
