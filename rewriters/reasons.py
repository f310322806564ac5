"""The reasons for which a strategy gives no rewrite, each with its message.

Reasons of an engine (`not_recorded`, ...) are passed on unchanged.
"""

from typing import Literal

Reason = Literal[
    "empty", "missing", "unparsable", "truncated", "cut_reasoning", "repetition", "refusal", "content_filter", "echo",
    "wrong_language", "too_long", "too_short", "banned",
]  # fmt: skip

MESSAGES: dict[str, str] = {
    "empty": "the answer has no text for it",
    "missing": "the answer has other strategies but not this one, or no answer came",
    "unparsable": "the parser found no rewrite for it",
    "truncated": "the token limit cut the answer before its rewrite was complete; raise rewrite.decoding.max_tokens",
    "cut_reasoning": "the token limit cut the model's reasoning before its answer began; raise rewrite.decoding.max_tokens, or "
    "switch the reasoning off",
    "repetition": "the model repeats itself instead of ending",
    "refusal": "the model refuses instead of rewriting",
    "content_filter": "a filter of the server cut the answer, or refused the prompt",
    "echo": "the text repeats the instructions, their example or a placeholder",
    "wrong_language": "the rewrite is in another language than the query",
    "too_long": "the rewrite is longer than the strategy's max_chars or words allow",
    "too_short": "the rewrite is shorter than the strategy's words allow",
    "banned": "the rewrite has a word that the strategy bans",
}

GUARDED: dict[str, str] = {
    "not_preserved": "it lacks a number, a name or a quoted phrase of the query",
    "near_duplicate": "it says nearly the same as an earlier text of the query",
}
"""The reasons for which a guard leaves a text out: by choice, so that no strategy failed."""
CUT, OTHER_SCRIPT = "cut", "other_script"
MASKED = "masked"  # the reason of a note on a query that was sent with its personal data masked, and the flag of its texts
FLAGS = (
    "lost_number", "lost_name", "lost_phrase", "repaired", "near_duplicate", "drift", "too_short", "too_long", MASKED, CUT,
    OTHER_SCRIPT,
)  # fmt: skip
"""The flags of a text, in `rewrites.guards`, of guards and of the reading of answers; docs/strategies.md explains each."""
SENT_WITHOUT = "sent_without"  # the reason of a note on a query whose requests were sent without what the server does not take
TRIED_AGAIN = "tried_again"  # the reason of a note on a query of which a request was made again, as its answer did not serve
FELL_BACK = "fell_back"  # the reason of a note on an answer that could not be used, for which the original query stands in
