"""Choices of strategies and failures of rewriting as rows."""

from __future__ import annotations

from typing import Any

from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion
from rewriters.results import RewriteFailure
from rewriters.selection import Choice


def selection_row(choice: Choice) -> dict[str, Any]:
    """Returns a choice as a SELECTION."""
    return {"query_type": choice.query_type, "strategies": list(choice.texts), "reason": choice.reason}


def failure_row(failure: RewriteFailure) -> dict[str, Any]:
    """Returns a failure as an ERROR."""
    return {
        "stage": "rewrite", "component": failure.strategy or None, "reason": failure.reason, "message": failure.message,
        "raw": failure.raw, "attempts": failure.attempts,
    }  # fmt: skip


def choice_notes(answer: Completion | None, choice: Choice) -> list[dict[str, Any]]:
    """Returns the notes on a choice: the LLM's answer names no type, or the query's cell in the log no strategy of the pool.

    Args:
        answer: of the LLM that was asked for the type; None: it was not.
        choice: what was made of it.
    """
    notes = []
    if answer is not None and (answer.text is None or not choice.answered):
        message = f"the LLM's answer names no type; the rules say {choice.query_type}"
        notes.append(RewriteFailure(REQUEST_NAME, "not_classified", message, answer.text, answer.attempts))
    if choice.note:
        notes.append(RewriteFailure("select", "wrong_cell", choice.note, None, 0))
    return [failure_row(note) for note in notes]
