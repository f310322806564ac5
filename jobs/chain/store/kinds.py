"""Kinds of rows: the key of each within its space, and its columns with texts of queries and of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

KEYS: Mapping[str, Sequence[str]] = {
    # a completion is taken for an equal prompt only: the form in which a query is shown moves between nights
    "completions": ("query_id", "request", "prompt_hash", "sample", "variables", "prompt"),
    "lists": ("query_id", "search"),
    "vectors": ("query_id", "search"),
    "scores": ("query_id", "text", "document"),
    "web": ("query_id", "search"),
}
"""Kind -> the columns of its key."""
TEXTS: Mapping[str, Sequence[str]] = {"completions": ("prompt", "text"), "scores": ("text",), "web": ("text", "hits")}
"""Kind -> its columns with texts; the others know texts by their hashes."""
