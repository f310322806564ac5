"""The answers that replays have asked for: which of a request's answers is read, and which a replay asks for anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobs.chain.completions import CompletionRecord
from jobs.chain.journal import Key
from rewriters.engines import Completion, Request
from rewriters.outcome.retries import Outcome
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from rewriters.steps.reading import read_step
from rewriters.steps.step import LlmStep

OutcomeOf = Callable[[Request, Completion], Outcome]
"""Returns what an answer to a request is worth."""
StepOutcome = Callable[[Completion], Outcome]
"""The same of one request of a step."""


def best_sample(request: Request, samples: Mapping[Key, CompletionRecord], outcome: OutcomeOf) -> Key:
    """Returns the key of the answer that is read, of several to one request.

    It is one with texts of most strategies; of these the one that was asked for last.
    """
    if len(samples) == 1:
        return next(iter(samples))
    return max(samples, key=lambda key: (outcome(request, samples[key].completion).worth, key.sample))


def type_outcome(chooser: Rewriter, query: Query, made: Completion) -> Outcome:
    """Returns what an answer is worth that says of which type a query is."""
    named = chooser.choose(query, made).answered
    return outcome_of_reason(made.error_reason or (None if named else "not_classified"))


def outcome_of_reason(reason: str | None, worth: int = 0) -> Outcome:
    """Returns what an answer to a step is worth.

    Args:
        reason: Why it is not a good result; None: it is.
        worth: Of one that is not good: 1 where it is a result all the same.
    """
    return Outcome(2, frozenset()) if reason is None else Outcome(worth, frozenset([reason]))


def read_outcome(step: LlmStep, request: Request, made: Completion) -> Outcome:
    """Returns what an answer to a step is worth that is a result as soon as it can be read."""
    return outcome_of_reason(read_step(step, made, request.query).reason)
