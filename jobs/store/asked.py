"""The requests by which a config rewrites queries, as recordings name them and as the store knows their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from jobs.chain.arms.requests import as_made, key_in_reading, most_requests
from jobs.chain.arms.shared_work import Reading
from jobs.chain.store.facts import EngineRequest
from rewriters.engines import Request
from rewriters.query import Query

PORTION = 1_000  # queries that are looked up, and stored, together
Item = TypeVar("Item")


class RecordedRequest(NamedTuple):
    """One request of one query.

    Attributes:
        reading: Whose request it is.
        query: Of which it is.
        name: By which recordings know it.
        request: As a recording is asked.
        fact: What the store knows its answer by.
        model: Of the engine; "": it has no name.
    """

    reading: Reading
    query: Query
    name: str
    request: Request
    fact: EngineRequest
    model: str


def recorded_requests(readings: Sequence[Reading], queries: Iterable[Query]) -> list[RecordedRequest]:
    """Returns the requests of queries to engines whose answers the store keeps, each once, query by query."""
    found: dict[EngineRequest, RecordedRequest] = {}
    for query in queries:
        for reading in readings:
            for request in most_requests(reading.rewriting, reading.asked, query):
                engine = reading.engines[request.engine]
                if not engine.settings.is_recorded:
                    fact, model = fact_of(reading, request), getattr(engine.settings, "model", "")
                    name = request.recorded_as or request.name
                    found.setdefault(fact, RecordedRequest(reading, query, name, request, fact, model))
    return list(found.values())


def fact_of(reading: Reading, request: Request) -> EngineRequest:
    """Returns what the store knows the answer to a reading's request by."""
    prompt = as_made(reading, request).prompt
    return EngineRequest(reading.engines[request.engine].space, key_in_reading(reading, request), prompt)


def portions(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yields items, `PORTION` at a time."""
    left = iter(items)
    while portion := list(islice(left, PORTION)):
        yield portion
