"""Lengths of rewrites: DMQR-RAG defines core content as shorter than the keywords."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Thai, Lao, Tibetan, Burmese, Khmer, kana, Han, half-width kana: scripts without spaces between their words.
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
_WORD = re.compile(r"[^\W_][^\s,;،、，；]*")  # what lies between separators and has a letter or digit, from the first one on


def length(text: str) -> int:
    """Returns the number of words in a text; in scripts without spaces between words, the number of characters."""
    separate = text if text.isascii() else UNSPACED.sub(r" \g<0> ", text)
    return len(_WORD.findall(separate))


def longer_cores(query_ids: Iterable[str], strategies: Iterable[str], texts: Iterable[str]) -> int:
    """Returns the number of queries whose longest `core_content` text is longer than their longest `keyword` text.

    All arguments are of each rewrite.
    """
    longest: dict[str, dict[str, int]] = {"core_content": {}, "keyword": {}}
    for query_id, strategy, text in zip(query_ids, strategies, texts, strict=True):
        if strategy in longest:
            longest[strategy][query_id] = max(length(text), longest[strategy].get(query_id, 0))
    keyword = longest["keyword"]
    return sum(query_id in keyword and core > keyword[query_id] for query_id, core in longest["core_content"].items())
