"""The key by which a search finds the row of a query in what was exported (docs/publishing.md)."""

from __future__ import annotations

from rewriters.normalise import query_id

MAX_CONTEXT_CHARS = 8000  # default of log.max_context_chars


def look_up_key(
    query: str,
    context: str | None = None,
    *,
    max_context_chars: int = MAX_CONTEXT_CHARS,
) -> str:
    """Returns the key of a query: its `query_id`, 32 hex digits.

    Args:
        query: in any form.
        context: the earlier turns, oldest first, joined with line breaks; None or blank: there are none.
        max_context_chars: `log.max_context_chars` of the config: so many characters of the context count, the newest.

    Raises:
        UnicodeEncodeError: query or context has half of a surrogate pair, which no log has.
    """
    return query_id(query, (context or "")[-max_context_chars:])
