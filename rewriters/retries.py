"""Failures of a query's strategies, and one more try for a request whose answer cannot be read, refuses, or was cut.

The try has another seed. Where the token limit cut the answer it has twice the tokens; else, where the answer would be the same
at temperature 0, a temperature. It is another sample of the request (`FIRST_TRY` and up), so that stores keep both answers.
A recording has one answer to a request, which is not tried again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from cluster.http import encodable
from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.reading.answers import Answers
from rewriters.reasons import FELL_BACK, GUARDED, MASKED, MESSAGES, SENT_WITHOUT, TRIED_AGAIN
from rewriters.results import Guarded, RewriteFailure, RewriteResult
from rewriters.strategy import Strategy

RETRIES_VERSION = 1  # raised when other answers are tried again, or differently; part of a run's fingerprint
FIRST_TRY = 1_000_000  # of `Request.sample`: below it are samples of a strategy, and of several arms of an ablation
TEMPERATURE = 0.7  # of a try, at least
CUT = frozenset({"truncated", "cut_reasoning"})
TRIED = CUT | {"empty", "missing", "unparsable", "repetition", "refusal", "echo", "wrong_language"}
"""Reasons of a strategy without a text for which its request is made again. Of a text that is too long, too short or banned the
model has understood what it was asked."""

Pair = tuple[Request, Completion]
Read = Callable[[Pair], Collection[Answers]]  # one answer -> the texts of each strategy in it


def tries_so_far(request: Request) -> int:
    """Returns the number of a request's try: 0 for the first one."""
    return request.sample // FIRST_TRY


def _tried_again(request: Request, reasons: frozenset[str]) -> Request:
    """Returns the next try of a request whose answer did not serve for these reasons."""
    decoding = dict(request.decoding)
    decoding["seed"] = decoding.get("seed", 0) + FIRST_TRY
    if reasons & CUT and decoding.get("max_tokens"):
        decoding["max_tokens"] = 2 * decoding["max_tokens"]
    if reasons - CUT:
        decoding["temperature"] = max(TEMPERATURE, decoding.get("temperature") or 0.0)
    return replace(request, sample=request.sample + FIRST_TRY, decoding=decoding)


def again(answered: Sequence[Pair], read: Read, most: int, recorded: Collection[str]) -> list[Request]:
    """Returns the next tries of a query's requests so far, `most` after the first, but not of those named in `recorded`."""
    requests = []
    for request, completion in (pairs[-1] for pairs in _tries(answered)):
        is_final = completion.error_reason is not None or request.name in recorded
        if is_final or tries_so_far(request) >= most:
            continue
        if reasons := TRIED.intersection(answers.stands_for or answers.reason for answers in read((request, completion))):
            requests.append(_tried_again(request, reasons))
    return requests


def settled(answered: Sequence[Pair], read: Read) -> list[Pair]:
    """Returns, of the tries of each request, the one with texts of most strategies; of several the earliest."""

    def worth(pair: Pair) -> int:
        return sum(bool(answers.texts) and answers.stands_for is None for answers in read(pair))

    return [pairs[0] if len(pairs) == 1 else max(pairs, key=worth) for pairs in _tries(answered)]


def _tries(answered: Sequence[Pair]) -> list[list[Pair]]:
    tries: dict[tuple[str, int], list[Pair]] = {}
    for pair in sorted(answered, key=lambda one: one[0].sample):
        tries.setdefault((pair[0].name, pair[0].sample % FIRST_TRY), []).append(pair)
    return list(tries.values())


def failures_of(
    pool: Sequence[Strategy], outcomes: Mapping[str, Answers], rewrites: Sequence[RewriteResult], guarded: Sequence[Guarded]
) -> list[RewriteFailure]:
    """Returns a failure or note for each strategy without a text, and a note for each with fewer texts than it had."""
    text_counts = Counter(one.strategy for one in rewrites)
    failures = []
    for strategy in pool:
        answers, left = outcomes.get(strategy.name), [one for one in guarded if one.strategy == strategy.name]
        completion = None if answers is None else answers.completion
        dropped = [] if answers is None else list(answers.dropped)
        if left and not text_counts[strategy.name]:
            reason, message = left[0].guard, GUARDED[left[0].guard]
        elif answers is not None and not answers.texts:
            reason = answers.reason or "empty"
            message = answers.message or MESSAGES.get(reason, reason)
        elif answers is not None and answers.stands_for is not None:
            reason, why = FELL_BACK, MESSAGES.get(answers.stands_for, answers.stands_for)
            message = f"the original query stands in for the answer, which cannot be used ({answers.stands_for}): {why}"
        elif dropped or left:
            dropped += [one.guard for one in left for _ in range(one.texts)]
            why = ", ".join(dict.fromkeys(dropped))
            reason = "texts_dropped"
            message = f"{len(dropped)} of {len(dropped) + text_counts[strategy.name]} texts are left out: {why}"
        else:
            continue
        raw = None if completion is None or completion.text is None else encodable(completion.text)
        failures.append(RewriteFailure(strategy.name, reason, message, raw, 0 if completion is None else completion.attempts))
    return failures


def notes_on_sends(mask: Mask, sent: Sequence[Pair], used: Sequence[Pair]) -> list[RewriteFailure]:
    """Returns the notes on the requests of one query, none if nothing was sent; of the `sent` ones the `used` are read."""
    notes = []
    if mask.values and sent:
        masked = ", ".join(f"{kind} {count}" for kind, count in sorted(mask.counts.items()))
        notes.append(RewriteFailure("", MASKED, f"sent with placeholders for {masked}", None, 0))
    left_out = {name for _, completion in sent if completion.left_out for name in completion.left_out.split(", ")}
    if left_out:
        message = f"sent without what the server does not take: {', '.join(sorted(left_out))}"
        notes.append(RewriteFailure("", SENT_WITHOUT, message, None, 0))
    if more := sum(tries_so_far(request) > 0 for request, _ in sent):
        better = sum(tries_so_far(request) > 0 for request, _ in used)
        message = f"requests made again, as an answer did not serve: {more}; of these read: {better}"
        notes.append(RewriteFailure("", TRIED_AGAIN, message, None, 0))
    return notes
