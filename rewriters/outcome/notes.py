"""The failures of a query's strategies, and notes: on fewer texts than an answer had, and on what was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.outcome.retries import tries_so_far
from rewriters.reading.answers import Answers
from rewriters.reasons import FELL_BACK, GUARDED, MASKED, MESSAGES, SENT_WITHOUT, TRIED_AGAIN, fallback_message
from rewriters.results import Guarded, RewriteFailure, RewriteResult
from rewriters.strategy import Strategy


def failures_of(
    strategies: Sequence[Strategy],
    outcomes: Mapping[str, Answers],
    rewrites: Sequence[RewriteResult],
    guarded: Sequence[Guarded],
) -> list[RewriteFailure]:
    """Returns a failure or note for each strategy without a text, and a note for each with fewer texts than it had."""
    made = Counter(one.strategy for one in rewrites)
    failures = []
    for strategy in strategies:
        answers, left = outcomes.get(strategy.name), [one for one in guarded if one.strategy == strategy.name]
        raw, attempts = (None, 0) if answers is None else (answers.raw, answers.attempts)
        dropped = [] if answers is None else list(answers.dropped)
        if left and not made[strategy.name]:
            reason, message = left[0].guard, GUARDED[left[0].guard]
        elif answers is not None and not answers.texts:
            reason = answers.reason or "empty"
            message = answers.message or MESSAGES.get(reason, reason)  # type: ignore[call-overload]
        elif answers is not None and answers.stands_for is not None:
            reason, message = FELL_BACK, fallback_message(answers.stands_for)
        elif dropped or left:
            dropped += [one.guard for one in left for _ in range(one.texts)]
            why = ", ".join(dict.fromkeys(dropped))
            reason = "texts_dropped"
            message = f"{len(dropped)} of {len(dropped) + made[strategy.name]} texts are left out: {why}"
        else:
            continue
        failures.append(RewriteFailure(strategy.name, reason, message, raw, attempts))
    return failures


def notes_on_sends(
    mask: Mask, sent: Sequence[tuple[Request, Completion]], used: Sequence[tuple[Request, Completion]]
) -> list[RewriteFailure]:
    """Returns the notes on the requests of one query, none if nothing was sent; of the `sent` ones the `used` are read."""
    notes = []
    if mask.values and sent:
        masked = ", ".join(f"{kind} {count}" for kind, count in sorted(mask.counts.items()))
        notes.append(RewriteFailure("", MASKED, f"sent with placeholders for {masked}", None, 0))
    left_out = {name for _, completion in sent if completion.left_out for name in completion.left_out.split(", ")}
    if left_out:
        words = f"sent without what the server does not take: {', '.join(sorted(left_out))}"
        notes.append(RewriteFailure("", SENT_WITHOUT, words, None, 0))
    if more := sum(tries_so_far(request) > 0 for request, _ in sent):
        better = sum(tries_so_far(request) > 0 for request, _ in used)
        words = f"requests made again, as an answer did not serve: {more}; of these read: {better}"
        notes.append(RewriteFailure("", TRIED_AGAIN, words, None, 0))
    return notes
