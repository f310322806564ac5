"""The stored answers to the rewriting requests of queries that a run reads: of several to one request the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.chain.arms.shared_work import Reading
from jobs.chain.completions import first_key
from jobs.chain.journal import Key
from jobs.chain.steps.replays import best_sample, type_outcome
from jobs.chain.store.facts import EngineRequest, record_of_fact, stored_rows
from jobs.chain.store.files import StoreFiles
from jobs.store.asked import RecordedRequest, fact_of
from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion, Request
from rewriters.outcome.retries import FIRST_TRY, Outcome, settled
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from rewriters.selection import Choice

Row = Mapping[str, Any]
Stored = dict[Key, dict[Key, Row]]
"""The key of a request's first answer -> the rows of all its answers by their own keys."""


def read_rows(files: StoreFiles, asked: Sequence[RecordedRequest]) -> dict[EngineRequest, Row]:
    """Returns the stored row of each request that has one, by `RecordedRequest.fact`.

    Of its answers, those of further tries and of replays among them, it is the one that a run reads.
    """
    readers: dict[int, _Reader] = {}
    queries: dict[tuple[int, str], _AskedQuery] = {}
    for one in asked:
        number = id(one.reading)
        if number not in readers:
            readers[number] = _Reader(one.reading)
        queries.setdefault((number, one.query.query_id), _AskedQuery(readers[number], one.query)).requests.append(one.request)
    stored = _look_up(files, [one.fact for one in asked])
    for _ in range(max((one.reading.asked.retries for one in asked), default=0)):
        stored |= _look_up(files, [fact for one in queries.values() for fact in one.add_tries(stored)])
    return {fact: row for one in queries.values() for fact, row in one.read(stored)}


def _look_up(files: StoreFiles, facts: Sequence[EngineRequest]) -> Stored:
    found: Stored = {}
    for key, row in (stored_rows(files, facts) if facts else {}).items():
        found.setdefault(first_key(key), {})[key] = row
    return found


class _Reader:
    """What a reading makes of answers."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.chooser, self.rewriter = Rewriter(reading.rewriting), Rewriter(reading.asked)


@dataclass
class _AskedQuery:
    """A query with its requests, further tries included."""

    by: _Reader
    query: Query
    requests: list[Request] = field(default_factory=list)

    def add_tries(self, stored: Stored) -> Iterator[EngineRequest]:
        """Adds the next try of each request whose answer does not serve; yields what the store knows their answers by."""
        choice, answered = self._answered(stored)
        for one in self.by.rewriter.again(self.query, [(one, made) for one, made, _ in answered], choice):
            self.requests.append(one)
            yield fact_of(self.by.reading, one)

    def read(self, stored: Stored) -> Iterator[tuple[EngineRequest, Row]]:
        """Yields each request that has an answer, without its tries, with the row that is read."""
        choice, answered = self._answered(stored)
        rows = {id(made): row for _, made, row in answered}
        first = {(one.name, one.sample): one for one in self.requests}
        for one, made in settled([(one, made) for one, made, _ in answered], self.by.rewriter.asked_one(self.query, choice)):
            yield fact_of(self.by.reading, first[one.name, one.sample % FIRST_TRY]), rows[id(made)]

    def _answered(self, stored: Stored) -> tuple[Choice, list[tuple[Request, Completion, Row]]]:
        """Returns by what the query is rewritten, and the requests that have an answer, with that which is read."""
        by, choice = self.by, self.by.chooser.choose(self.query)
        answered = []
        for request in sorted(self.requests, key=lambda one: one.name != REQUEST_NAME):  # the query's type decides on others

            def outcome(request: Request, made: Completion, choice: Choice = choice) -> Outcome:
                if request.name == REQUEST_NAME:
                    return type_outcome(by.chooser, self.query, made)
                return by.rewriter.outcome(self.query, (request, made), choice)

            rows = stored.get(fact_of(by.reading, request).key)
            if rows:
                samples = {key: record_of_fact(row) for key, row in rows.items()}
                best = best_sample(request, samples, outcome)
                made = samples[best].completion
                answered.append((request, made, rows[best]))
                choice = by.chooser.choose(self.query, made) if request.name == REQUEST_NAME else choice
        return choice, answered
