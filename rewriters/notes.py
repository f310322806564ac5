"""Notes on what was sent for a query: personal data that were masked, and what a server does not take."""

from __future__ import annotations

from collections.abc import Sequence

from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.reasons import MASKED, SENT_WITHOUT
from rewriters.results import RewriteFailure


def notes_on_sends(mask: Mask, answered: Sequence[tuple[Request, Completion]]) -> list[RewriteFailure]:
    """Returns the notes on the requests of one query, none if nothing was sent.

    Args:
        mask: Of the query.
        answered: Its requests with their completions.
    """
    notes = []
    if mask.values and answered:
        masked = ", ".join(f"{kind} {count}" for kind, count in sorted(mask.counts.items()))
        notes.append(RewriteFailure("", MASKED, f"sent with placeholders for {masked}", None, 0))
    left_out = {name for _, completion in answered if completion.left_out for name in completion.left_out.split(", ")}
    if left_out:
        words = f"sent without what the server does not take: {', '.join(sorted(left_out))}"
        notes.append(RewriteFailure("", SENT_WITHOUT, words, None, 0))
    return notes
