"""The key by which a search finds the row of a query in what was exported; a search imports no library for it."""

from rewriters.normalise import query_id

MAX_CONTEXT_CHARS = 8000  # of a context that count, the newest


def look_up_key(query: str, context: str | None = None) -> str:
    """Returns the key of a query in any form: its `query_id`, 32 hex digits.

    `context` has the earlier turns, oldest first, joined with line breaks. Raises UnicodeEncodeError for half of a surrogate
    pair, which no log has.
    """
    return query_id(query, (context or "")[-MAX_CONTEXT_CHARS:])
