"""The one exception of this package, and the sentence for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RewriterError(Exception):
    """Something a person has to put right. `str()` is one line: what was wrong, where, what is allowed."""


def unknown_name(what: str, name: object, allowed: Iterable[str]) -> RewriterError:
    """The error for an unknown `name` of a `what`: the nearest allowed name, and the whole list."""
    names = sorted(allowed)
    return RewriterError(f"unknown {what} {str(name)!r}{nearest(str(name), names)}; there are: {', '.join(names) or 'none'}")


def nearest(name: str, allowed: Iterable[str]) -> str:
    """ " (did you mean X?)", or nothing where no allowed name is near."""
    close = difflib.get_close_matches(name.casefold(), list(allowed), n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""
