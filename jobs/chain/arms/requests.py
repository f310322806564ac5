"""The requests of arms: what one is known by, and how it is called in costs and errors."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jobs.chain.arms.resources import AnsweredBy, digest
from jobs.chain.arms.shared_work import Reading, SharedWork
from jobs.chain.journal import Key
from rewriters.engines import Request
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAll

_QUERY = Query("", "")
SAMPLES_APART = 1_000  # between the numbers of one arm's samples and those of the next: a strategy has fewer


def as_made(reading: Reading, request: Request) -> Request:
    """Returns a request of a reading as the engines of a worker take it: `engine` is a key, and samples have their own seeds.

    A recording says the same each time, so that its samples are one.
    """
    engine = reading.engines[request.engine]
    request = replace(request, engine=engine.key)
    sample = 0 if engine.settings.is_recorded else reading.sample * SAMPLES_APART
    if not sample:
        return request
    decoding = dict(request.decoding) | {"seed": request.decoding.get("seed", 0) + sample}
    return replace(request, sample=request.sample + sample, decoding=decoding)


def made_with(request: Request, made_by: str) -> str:
    """Returns the hash of what decides an answer beside the prompt; `made_by`: the hash of the engine's identity."""
    return digest([made_by, dict(request.decoding), request.schema, *([request.form] if request.form else [])])


def request_key(request: Request, made_with: str) -> Key:
    """Returns the key of a completion among those of all engines and decodings."""
    return Key(request.query_id, request.base, request.prompt_hash, request.sample, f"{request.variables}/{made_with}")


def key_in_reading(reading: Reading, request: Request) -> Key:
    """Returns the key of the completion of a reading's request; the rewriting stage keeps what `made_with` returns."""
    sent = as_made(reading, request)
    return request_key(sent, made_with(sent, reading.engines[request.engine].space))


def most_requests(reading: Reading) -> list[Request]:
    """Returns the requests that a reading makes for a query at most, here an empty one, beside further tries."""
    asked = reading.asked
    if not asked.pool:
        return []
    whole = asked if asked.select.in_request else replace(asked, select=SelectAll(kind="all"), rules=None)
    question = Rewriter(reading.rewriting).question(_QUERY) if reading.rewriting.select.typed_by else None
    return [*Rewriter(whole).requests(_QUERY), *filter(None, [question])]


def asked_at_most(reading: Reading) -> list[Key]:
    """Returns the keys of the requests that a reading makes for a query at most."""
    return [key_in_reading(reading, one) for one in most_requests(reading)]


def opened(reading: Reading) -> list[AnsweredBy]:
    """Returns the engines that requests of a reading go to, the common one first, if any goes to it."""
    names = {one.engine for one in most_requests(reading)}
    return [engine for name, engine in reading.engines.items() if name in names]


def opened_together(work: SharedWork) -> dict[str, list[AnsweredBy]]:
    """Returns, by the key of each common engine, the engines that its workers open, each once."""
    by_engine: dict[str, dict[str, AnsweredBy]] = {}
    for reading in work.readings:
        if reading.engines:
            by_engine.setdefault(reading.engines[""].key, {}).update((one.key, one) for one in opened(reading))
    return {key: list(of.values()) for key, of in by_engine.items()}


def longest_answer(rewriting: Rewriting) -> int:
    """Returns the most tokens of an answer."""
    return max(
        int(tuning.get("max_tokens", 0)) for tuning in (rewriting.decoding, *(strategy.decoding for strategy in rewriting.pool))
    )


class RequestNames(NamedTuple):
    """The names of a request in costs and in errors; strategies that share one fail under their own names."""

    cost: str
    error: str


def called(readings: Sequence[Reading]) -> list[dict[tuple[str, str], RequestNames]]:
    """Returns the names of the requests of each reading: name and hash of the prompt -> names.

    Other requests of a name that an earlier reading's have (a second version of a strategy, by another engine or decoding, a
    joint request for other strategies) are called by the first arm that makes them, too: `domain of two`.
    """
    known: dict[Any, tuple[str, str]] = {}  # identity -> the name of the first request, and its name in costs
    taken: set[str] = set()
    called_names: list[dict[tuple[str, str], RequestNames]] = []
    for reading in readings:
        names: dict[tuple[str, str], RequestNames] = {}
        for request in most_requests(reading):
            if (request.name, request.prompt_hash) in names:
                continue  # a further sample, of another seed; repeats of an arm, with seeds of their own, share its names, too
            identity = request.base, request.prompt_hash, made_with(request, reading.engines[request.engine].space)
            own = f"{request.name} of {reading.name.replace('@', ' ')}" if request.name in taken else request.name
            first, cost = known.setdefault(identity, (request.name, own))
            taken.add(cost)
            names[request.name, request.prompt_hash] = RequestNames(cost, cost if first == request.name else request.name)
        called_names.append(names)
    return called_names
