"""Another answer to a request whose answer is at fault, which a replay asks for.

It is a further sample of the same request: all but `Request.sample` is as before in what it is known by, so that whoever makes
the request finds it, whatever was changed to have another answer. A recording has one answer to a request.
"""

from __future__ import annotations

from dataclasses import replace

from rewriters.engines import Request
from rewriters.outcome.retries import CUT, TEMPERATURE
from rewriters.reasons import FELL_BACK, MESSAGES

FIRST_REPLAY = 10_000_000  # of `Request.sample`: below it are samples of strategies and arms, and tries
MOST_REPLAYS = (2**31 - 1) // FIRST_REPLAY - 1  # a sample is an int32
AT_FAULT = frozenset(MESSAGES) | {
    FELL_BACK, "texts_dropped", "not_preserved", "near_duplicate", "no_vocabulary", "not_classified", "wrong_citation",
    "repeated_query",
}  # fmt: skip
"""Reasons in errors/ for which the answer is at fault, so that a replay asks for another one. All others are of a request that
has no answer, and is made again as it was, or of none."""


def replays_so_far(sample: int) -> int:
    """Returns how many replays had asked for an answer to a request, by its sample: 0 for the first answer."""
    return sample // FIRST_REPLAY


def first_sample(sample: int) -> int:
    """Returns the sample of a request that no replay has made, from that of one which a replay may have made."""
    return sample % FIRST_REPLAY


def replayed(request: Request, number: int, faults: frozenset[str]) -> Request:
    """Returns the request for another answer.

    It has another seed; where the token limit cut the answer, more tokens; for other faults a temperature, as a try of
    `rewrite.retries` has.

    Args:
        request: As it was made first.
        number: Of the replay that asks, from 1.
        faults: Why its answer does not serve.
    """
    decoding = dict(request.decoding)
    decoding["seed"] = decoding.get("seed", 0) + number * FIRST_REPLAY
    if faults & CUT and decoding.get("max_tokens"):
        decoding["max_tokens"] = (1 + number) * decoding["max_tokens"]
    if faults - CUT:
        decoding["temperature"] = max(TEMPERATURE, decoding.get("temperature") or 0.0)
    sample = request.sample + number * FIRST_REPLAY
    return replace(request, sample=sample, decoding=decoding, known_by=request.decoding)
