"""Words and phrases as whole words in a normalised text."""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.normalise import normalise


@lru_cache(maxsize=256)
def any_of(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Returns a pattern that finds any of the phrases as whole words in a text in normal form."""
    words = "|".join(re.escape(normalise(phrase)) for phrase in sorted(phrases, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)")
