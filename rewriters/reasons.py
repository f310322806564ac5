"""Why a strategy ends without a rewrite: the one list of the machine-readable reasons, each with its sentence.

An engine's own reasons (`not_recorded`, ...) pass through beside these.
"""

from __future__ import annotations

from typing import Literal

Reason = Literal[
    "empty",
    "missing",
    "unparsable",
    "truncated",
    "repetition",
    "refusal",
    "echo",
    "wrong_language",
    "too_long",
]

MESSAGES: dict[Reason, str] = {
    "empty": "the answer has no text for it",
    "missing": "the answer has other strategies but not this one, or no answer came",
    "unparsable": "no rung of the parse ladder could read a rewrite for it",
    "truncated": "the token limit cut the answer before its rewrite was complete; raise decoding.max_tokens",
    "repetition": "the model repeats itself instead of ending",
    "refusal": "the model refuses instead of rewriting",
    "echo": "the text repeats the instructions, their example or a placeholder",
    "wrong_language": "the rewrite shares no script with the query",
    "too_long": "the rewrite is longer than the strategy's max_chars",
}
