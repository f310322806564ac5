"""Removal of the reasoning that a model writes into its answer."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)


def strip_thinking(text: str, query: str) -> str:
    """Returns a text without its reasoning.

    Removed are closed blocks; the text before a closing tag without an opening one (some chat templates contain the opening
    tag); and the text after an opening tag without a closing one. If the query itself contains such a tag, the rewrites may,
    too, and only a block at the very beginning is removed.
    """
    if _TAG.search(query):
        started = _TAG.match(text.lstrip())
        closed = next((tag for tag in _TAG.finditer(text) if tag.group(1)), None)
        if not started:
            return text
        return text[closed.end() :] if closed else ""
    kept: list[str] = []
    since, opened = 0, None
    for tag in _TAG.finditer(text):
        if not tag.group(1):
            opened = tag.start() if opened is None else opened
            continue
        if opened is None:
            kept.clear()
        else:
            kept.append(text[since:opened])
        since, opened = tag.end(), None
    kept.append(text[since:opened])
    return " ".join(kept)
