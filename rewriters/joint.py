"""The prompt and the JSON schema of a joint request, made from the definitions of its strategies.

As in DMQR-RAG, one call asks for all rewrites, names the methods and shows one worked example: the model can then make the
rewrites differ, and the prompt is paid for once. The answer is one JSON object with a key per strategy. A prompt of the
user replaces the default prompt; the schema is the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cluster.errors import RewriterError, nearest
from rewriters.engines.schemas import object_schema
from rewriters.files import prompt
from rewriters.pool import OF_THE_QUERY, with_context
from rewriters.strategy import ANY_PLACEHOLDER, CONTEXT, EXAMPLE_QUERY, PLACEHOLDER, Strategy, render, variables

REQUEST_NAME = "dmqr"

JOINT_PROMPT = prompt("joint")
"""The default prompt.

`{methods}`: a line per strategy, with name, label and definition. `{example_query}`, `{example}`: a query and the reply to
it. `{language}`: that rewrites are written in. `{query}`: the query to rewrite.
"""


def check_joint_prompt(prompt: str) -> None:
    """Checks the joint prompt of a user.

    Raises:
        RewriterError: The prompt has an unknown variable, or does not have `{query}` exactly once, at its end.
    """
    known = [f"{{{name}}}" for name in ("query", CONTEXT, *_values([], None))]
    for found in ANY_PLACEHOLDER.findall(prompt):
        if found not in known:
            raise RewriterError("prompt", f"unknown variable {found!r}{nearest(found, known)}")
    if prompt.count(PLACEHOLDER) != 1 or not prompt.endswith(PLACEHOLDER):
        raise RewriterError(
            "prompt",
            f"must have {PLACEHOLDER} once, as its last word, so that what stands before it can be cached; put it there",
        )


def joint_template(
    strategies: Sequence[Strategy], prompt: str = JOINT_PROMPT, language: str | None = None, context: bool = False
) -> str:
    """Returns the joint prompt of strategies, in its order; `{query}` and `{context}` are left to `render`.

    The other arguments are those of `rewriters.rewriter.Rewriting`.

    Raises:
        RewriterError: The prompt has `{context}`, and queries have none.
    """
    template = render(prompt, _values(strategies, language))
    if not context and CONTEXT in variables(prompt):
        raise RewriterError("prompt", "has {context}, and log.context_column is not set; set it, or remove the variable")
    return with_context(template) if context else template


def _values(strategies: Sequence[Strategy], language: str | None) -> dict[str, str]:
    """Returns the values of all variables of a joint prompt except `query` and `context`."""
    return {
        "methods": "\n".join(f"- {strategy.recorded_as} ({strategy.label}): {strategy.definition}." for strategy in strategies),
        "example_query": EXAMPLE_QUERY,
        "example": json.dumps({strategy.recorded_as: strategy.example for strategy in strategies}, ensure_ascii=False),
        "language": language or OF_THE_QUERY,
    }


def joint_schema(strategies: Sequence[Strategy]) -> dict[str, object]:
    """Returns the JSON schema of the joint answer: one string per strategy, all required, no other keys.

    `maxLength` is `max_chars` + 1. It is part of what the answer is known by and is not sent (`engines/schemas.py`); the
    reader tells a text that is too long.
    """
    return object_schema({s.recorded_as: {"type": "string", "maxLength": s.max_chars + 1} for s in strategies})
