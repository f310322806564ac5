"""How many tokens and seconds missing requests take: by their prompts, and by answers that the store has of the same engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pyarrow as pa

from jobs.chain.store.files import Space
from jobs.plan.missing.amounts import NOTHING, Amount, exactly, of_number
from jobs.plan.missing.reasons import StoredQueries
from rewriters.engines import Request
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.engines.settings import EngineSettings

STORED_ANSWERS = 500  # of a request that are read
OVERHEAD = 50  # of them whose prompts are counted, to see what a chat template adds
UNKNOWN_OVERHEAD = 64  # tokens that a chat template may add
_ROWS = pa.schema(
    [
        ("query_id", pa.string()),
        ("request", pa.string()),
        ("prompt", pa.string()),
        *((name, pa.int64()) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")),
        *((name, pa.float64()) for name in ("seconds", "device_seconds")),
    ]
)


@dataclass(frozen=True)
class RequestCost:
    """What requests cost together."""

    prompt_tokens: Amount
    completion_tokens: Amount
    cached: float
    """The share of the tokens of prompts that a cache had."""
    seconds: Amount | None
    """Of work; None: not known."""
    device_seconds: Amount | None


FREE = RequestCost(NOTHING, NOTHING, 0.0, NOTHING, NOTHING)  # of a recording


def cost_of(
    number: Amount, settings: EngineSettings, space: str, name: str, some: Sequence[Request], stored: StoredQueries
) -> RequestCost:
    """Returns what requests of one name to one engine cost.

    Args:
        number: How many there are.
        settings: Of the engine.
        space: Of its answers in the store.
        name: Of the request.
        some: Of the requests, those that are known to be missing, the first of them.
        stored: The store.
    """
    if settings.is_recorded:
        return FREE
    rows = _stored(stored, space, name)
    counter = TokenCounter(settings.counted_by)
    prompts = _prompts(number, some, rows, counter)
    lengths = [row["completion_tokens"] for row in rows]
    most = max((int(one.decoding.get("max_tokens") or 0) for one in some), default=max(lengths, default=0))
    completions = of_number(lengths, number, most)
    all_prompts = sum(row["prompt_tokens"] for row in rows)
    cached = sum(row["cached_tokens"] or 0 for row in rows) / all_prompts if all_prompts else 0.0
    seconds, devices = (_seconds([row[key] or 0.0 for row in rows], number) for key in ("seconds", "device_seconds"))
    return RequestCost(prompts, completions, cached, seconds, devices)


def _stored(stored: StoredQueries, space: str, name: str) -> list[dict[str, Any]]:
    """Returns answers to requests of a name, of some files of an engine's space, that have tokens."""
    for known in stored.spaces("completions"):
        if known.space == Space("completions", space):
            found: list[dict[str, Any]] = []
            for file in known.names:
                rows = stored.of_file(known, file, _ROWS)
                found += [row for row in rows.to_pylist() if row["request"] == name and row["prompt_tokens"]]
                if len(found) >= STORED_ANSWERS:
                    break
            return found[:STORED_ANSWERS]
    return []


def _prompts(number: Amount, some: Sequence[Request], rows: Sequence[dict[str, Any]], counter: TokenCounter) -> Amount:
    """Returns the tokens of prompts: those of `some` are counted, the others are alike."""
    if not some:  # it is not known yet whether there are any
        sizes = [row["prompt_tokens"] for row in rows]
        return of_number(sizes, number, 2 * max(sizes)) if sizes else NOTHING
    counted = [counter.count(one.prompt) for one in some]
    if rows:
        added = [row["prompt_tokens"] - counter.count(str(row["prompt"])) for row in rows[:OVERHEAD]]
        sizes = [one + fmean(added) for one in counted]
        apart = max(added) - min(added)
    else:
        sizes, apart = [one + counter.count(some[0].system) for one in counted], 0.0
    known = min(len(sizes), int(number.low))
    others = Amount(*(max(0.0, n - known) for n in number))
    found = exactly(sum(sizes[:known])).plus(of_number(sizes, others, 2 * max(sizes)))
    if not rows:  # another tokenizer may be the model's
        return Amount(found.low / 2, found.expected, 2 * found.high + UNKNOWN_OVERHEAD * number.high)
    return Amount(max(0.0, found.low - apart * number.low), found.expected, found.high + apart * number.high)


def _seconds(measured: Sequence[float], number: Amount) -> Amount | None:
    if not measured:
        return None
    mean = fmean(measured)
    return Amount(mean * number.low / 2, mean * number.expected, 2 * mean * number.high)
