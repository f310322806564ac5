"""Which queries and rewrites can stand in rules and synonyms, which hold for words alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from rewriters.normalise import normalise, query_id

SHORT_WORDS = 5
"""Most words of a short rewrite: all of them have to be in a document, or one after the other, for it to be found by them."""

_ASCII_WORD = re.compile("[A-Za-z0-9]")


def is_short(rewrite: Mapping[str, Any]) -> bool:
    """Returns whether a rewrite of a row is short, and no passage."""
    return rewrite["search_as"] == "query" and len(rewrite["text"].split()) <= SHORT_WORDS


def is_query_alone(row: Mapping[str, Any]) -> bool:
    """Returns whether the words of a row's query are all that it is known by: no earlier turns, no filters."""
    return bool(query_id(row["query"]) == row["key"])


def repeats_query(row: Mapping[str, Any], rewrite: Mapping[str, Any]) -> bool:
    """Returns whether a rewrite of a row has the words of its query."""
    return bool(normalise(rewrite["text"]) == row["query"])


def has_words(text: str) -> bool:
    """Returns whether every usual analyzer finds a word in a text: a letter or a decimal digit.

    Lucene's standard tokenizer makes nothing of `½`, and of pictures only of emoji; a synonym of nothing is refused.
    """
    if _ASCII_WORD.search(text):  # as nearly all have, and this is ten times as fast
        return True
    return any(category[0] == "L" or category == "Nd" for category in map(unicodedata.category, text))
