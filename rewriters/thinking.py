"""Reasoning that a model writes into its answer: taken off before anything is read."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)


def strip_thinking(text: str, query: str) -> str:
    """`text` without its reasoning: closed blocks wherever they are; all before a closing tag whose opening one the
    chat template swallowed; all after an opening tag that nothing closes.

    Where the query itself has such a tag, the rewrites may too, so that only a block at the very start is taken off.
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
