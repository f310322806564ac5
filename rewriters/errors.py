"""The one exception of this package, and the sentence for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RewriterError(Exception):
    """Something a person has to put right. `str()` is one line: what was wrong, where, what is allowed."""


def unknown_name(what: str, name: object, allowed: Iterable[str]) -> RewriterError:
    """The error for an unknown `name` of a `what`: the nearest allowed name, and the whole list."""
    names = sorted(allowed)
    nearest = difflib.get_close_matches(str(name).casefold(), names, n=1, cutoff=0.5)
    meant = f" (did you mean {nearest[0]}?)" if nearest else ""
    return RewriterError(f"unknown {what} {str(name)!r}{meant}; there are: {', '.join(names) or 'none'}")
