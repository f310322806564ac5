"""Whether a text runs in a loop, as models do until the token limit stops them."""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

_READ = 4000  # a loop to the token limit is still there at the end, and the search takes 100 steps per character
_UNIT, _TIMES = 100, 5  # a unit of up to 100 characters, five times running or more
_BYTES = 30  # shorter loops are words ("hahahaha"), numbers (1000000) and rulers (-----)
_COVER = 0.4  # of the text, so that a song's chorus in a passage is no loop
# Loops that count on ("item 1, item 2, ...") have no exact unit but pack well: 400 bytes and more of ordinary text pack
# to 1/1.3 to 1/2.3 with zlib, such loops to 1/5 and less.
_PACKED_BYTES, _PACKED_RATIO = 400, 5.0


def loops(text: str) -> bool:
    """Whether `text` repeats one unit for 40 % of its length (30 bytes or more), or packs as only a loop does."""
    tail = " ".join(text[-_READ:].split())
    data = tail.encode("utf-8", "replace")
    if len(data) < _BYTES:
        return False
    packed = len(zlib.compress(data, 1))
    # A loop over 40 % packs to 0.6 + 0.4 / 5 of the length and 15 bytes at most: the search is spared for the others.
    if packed < 0.8 * len(data) + 15:
        runs = _loop(min(_UNIT, len(tail) // _TIMES)).finditer(tail)
        longest = max((len(run.group().encode("utf-8", "replace")) for run in runs), default=0)
        if longest >= max(_BYTES, _COVER * len(data)):
            return True
    return len(data) >= _PACKED_BYTES and len(data) / packed >= _PACKED_RATIO


@lru_cache
def _loop(longest: int) -> re.Pattern[str]:
    """A unit of up to `longest` characters again and again. Words need no spaces between them: it works for CJK."""
    return re.compile(rf"(.{{1,{longest}}}?)\1{{{_TIMES - 1},}}", re.DOTALL)
