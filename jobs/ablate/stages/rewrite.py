"""The rewriting stage of an ablation: asks once what several arms need, and reads the texts of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster.costs import Prices, entry
from cluster.run.stage import shard_of
from cluster.storage import open_storage
from jobs.ablate.gathered import GatheredCompletions
from jobs.ablate.shared_work import Asking, Reading, digest
from jobs.ablate.stages.users import Users
from jobs.ablate.tables import ARM_COUNT, ARM_REWRITE, ARM_SELECTION
from jobs.stages.completer import Answered, Completer
from jobs.stages.completions import Completions, key_of
from jobs.stages.fill import fill
from jobs.stages.journal import Key
from jobs.stages.rewrite import choice_notes, failure_row, longest_answer, queries_of, selection_row
from jobs.tables import with_appended
from rewriters.engines import Request
from rewriters.engines.settings import EngineSettings
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from rewriters.selection import Choice

SAMPLES_APART = 1_000  # between the numbers of one arm's samples and those of the next: a strategy has fewer


class _Chosen(NamedTuple):
    """What one reading takes of one query."""

    choice: Choice
    question: Request | None


class RewriteArms:
    """A worker of the rewriting stage: all requests to one engine."""

    NEEDS: tuple[str, ...] = ("shard", "query_id", "query", "context", "values")
    ADDS = pa.schema(
        [("rewrites", pa.list_(ARM_REWRITE)), ("selections", pa.list_(ARM_SELECTION)), ("counts", pa.list_(ARM_COUNT))]
    )

    def __init__(
        self,
        engine: EngineSettings | None,
        made_by: str,
        askings: Mapping[int, Asking],
        readings: Sequence[Reading],
        arms: Mapping[str, Sequence[tuple[str, frozenset[str]]]],
        run: str,
        gathered: str,
        start: int,
        gpus: float = 0.0,
        prices: Prices | None = None,
        unsaved_seconds: float = 30.0,
    ) -> None:
        """Starts the engines.

        Args:
            engine: settings for `open_worker_engine`; None where no arm rewrites.
            made_by: hash of the engine's identity.
            askings: those of this engine, by index.
            readings: of these.
            arms: name of a reading -> its arms with their strategies.
            run: the ablation's folder.
            gathered: the folder of what ablations gather.
            start: the number of this start of the ablation, from 1.
            gpus: the number of accelerators of the worker.
            prices: of the ablation, if it has a budget.
            unsaved_seconds: the config's `limits.unsaved_seconds`.
        """
        self._askings, self._made_by, self._gathered, self._arms = askings, made_by, gathered, arms
        self._rewriters = {number: Rewriter(asking.rewriting) for number, asking in askings.items()}
        self._readings = [(reading, Rewriter(reading.rewriting)) for reading in readings]
        engines: dict[str, EngineSettings] = {} if engine is None else {"": engine}
        for asking in askings.values():
            engines |= {one.name: one.engine for one in asking.rewriting.pool if one.engine is not None}
        most = max((longest_answer(asking.rewriting) for asking in askings.values()), default=0)
        self._completer = Completer(
            engines, open_storage(run), start, gpus, prices, unsaved_seconds, most_tokens=most, key=self._key
        )
        self.start_up = self._completer.start_up

    def close(self) -> None:
        """Closes the engines."""
        self._completer.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the texts of all readings, errors and costs."""
        queries = queries_of(table)
        own, shared = self._completer.open(shard_of(table)), GatheredCompletions(self._gathered)
        asked = [[self._question(number, query) for query in queries] for number in range(len(self._readings))]
        made = self._answers(own, shared, [request for of_reading in asked for request in of_reading if request])
        chosen = [
            [self._chosen(number, query, question, made) for query, question in zip(queries, asked[number], strict=True)]
            for number in range(len(self._readings))
        ]
        requests = {
            number: [self._requests(number, query, row, chosen) for row, query in enumerate(queries)]
            for number in self._askings
        }
        made |= self._answers(own, shared, [one for of in requests.values() for of_query in of for one in of_query])
        own.merge()
        texts, selections, errors = self._read(queries, requests, chosen, made)
        spent = [self._costs(row, requests, chosen, made, own, shared) for row in range(len(queries))]
        table = with_appended(with_appended(table, "errors", errors), "costs", spent)
        counts = [{"name": name, "count": n} for name, n in self._counts(requests, chosen, made).items()]
        counted = [counts, *[[]] * (len(queries) - 1)]
        for field, values in zip(RewriteArms.ADDS, (texts, selections, counted), strict=True):
            if field.name in table.column_names:
                table = with_appended(table, field.name, values)
            else:
                table = table.append_column(field, pa.array(values, field.type))
        return table

    def _key(self, request: Request) -> Key:
        """Returns the key of a completion among those of all engines and decodings."""
        made_with = digest([self._made_by, request.engine, dict(request.decoding), request.schema])
        return key_of(request)._replace(variables=f"{request.variables}/{made_with}")

    def _question(self, number: int, query: Query) -> Request | None:
        reading, rewriter = self._readings[number]
        question = rewriter.question(query)
        return None if question is None else _sampled(question, self._askings[reading.asking].sample)

    def _chosen(self, number: int, query: Query, question: Request | None, made: Answered) -> _Chosen:
        rewriter = self._readings[number][1]
        answer = made[self._key(question)].completion if question else None
        return _Chosen(rewriter.choose(query, answer), question)

    def _requests(self, number: int, query: Query, row: int, chosen: Sequence[Sequence[_Chosen]]) -> list[Request]:
        """Returns the requests of a query that any reading needs an answer of."""
        wanted: dict[str, int | None] = {}
        for place, (reading, _) in enumerate(self._readings):
            for strategy, most in chosen[place][row].choice.texts.items() if reading.asking == number else ():
                before = wanted.get(strategy, 0)
                wanted[strategy] = None if most is None or before is None else max(most, before)
        asking = self._askings[number]
        return [_sampled(one, asking.sample) for one in self._rewriters[number].requests(query, Choice(wanted))]

    def _answers(self, own: Completions, shared: GatheredCompletions, requests: Sequence[Request]) -> Answered:
        """Returns the completions of requests: those of this ablation, else gathered ones, else the engines'."""
        by_key = {self._key(request): request for request in requests}
        if not by_key:
            return {}

        def compute(missing: list[Key]) -> Any:
            yield list(self._completer.fill(own, {key: by_key[key] for key in missing}).items())

        paid = own.get(list(by_key))  # an attempt that was not committed has gathered them, too
        found = dict(zip(by_key, fill(shared, list(by_key), compute), strict=True))
        shared.reused.difference_update(paid)
        return found | paid

    def _read(
        self,
        queries: Sequence[Query],
        requests: Mapping[int, Sequence[Sequence[Request]]],
        chosen: Sequence[Sequence[_Chosen]],
        made: Answered,
    ) -> tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]], list[list[dict[str, Any]]]]:
        """Returns the texts, the selections and the errors of each query."""
        texts, selections, errors = ([[] for _ in queries] for _ in range(3))  # type: ignore[var-annotated]
        for place, (reading, _) in enumerate(self._readings):
            rewriter = self._rewriters[reading.asking]
            for row, query in enumerate(queries):
                choice, question = chosen[place][row]
                answers = [(one, made[self._key(one)].completion) for one in requests[reading.asking][row]]
                written = rewriter.read(query, answers, choice)
                texts[row] += [vars(one) | {"arm": reading.name} for one in written.rewrites]
                if reading.rewriting.selects:
                    selections[row].append(selection_row(written.choice) | {"arm": reading.name})
                answer = made[self._key(question)].completion if question else None
                errors[row] += [*choice_notes(answer, choice), *map(failure_row, written.failures)]
        return texts, selections, [_once(of_query) for of_query in errors]

    def _counts(
        self,
        requests: Mapping[int, Sequence[Sequence[Request]]],
        chosen: Sequence[Sequence[_Chosen]],
        made: Answered,
    ) -> Counter[str]:
        """Returns how many requests each arm needs an answer of, and those that only it needs, by request and model."""
        components: dict[str, dict[Key, int]] = {}  # request@model -> the requests, numbered
        needed: dict[tuple[str, frozenset[str]], list[int]] = {}  # component, arms -> their requests
        samples = cache(lambda place, texts: self._needs(self._readings[place][0], dict(texts)))
        for place, (reading, _) in enumerate(self._readings):
            every = frozenset(arm for arm, _ in self._arms.get(reading.name, ()))
            for row, (choice, question) in enumerate(chosen[place]):
                of_arms = samples(place, tuple(choice.texts.items()))
                asked = [] if question is None else [(question, every)]
                for one in requests[reading.asking][row]:
                    asked.append((one, of_arms.get((one.name, one.sample % SAMPLES_APART), frozenset())))
                for request, arms in ((one, arms) for one, arms in asked if arms):
                    key = self._key(request)
                    component = f"{request.name}@{made[key].completion.model}"
                    numbers = components.setdefault(component, {})
                    needed.setdefault((component, arms), []).append(numbers.setdefault(key, len(numbers)))
        users = {component: Users(len(numbers)) for component, numbers in components.items()}
        for (component, arms), items in needed.items():
            users[component].add(sorted(arms), np.array(items))
        counts: Counter[str] = Counter()
        for component, of in users.items():
            counts.update(of.counts(f"requests/{component}"))
        return counts

    def _needs(self, reading: Reading, texts: Mapping[str, int | None]) -> dict[tuple[str, int], frozenset[str]]:
        """Returns the arms of a reading that need an answer where these texts are chosen, by name and sample of the request."""
        found: dict[tuple[str, int], set[str]] = {}
        for arm, strategies in self._arms.get(reading.name, ()):
            own = Choice({name: most for name, most in texts.items() if name in strategies})
            for name, samples in self._rewriters[reading.asking].samples(own).items():
                for sample in range(samples):
                    found.setdefault((name, sample), set()).add(arm)
        return {request: frozenset(arms) for request, arms in found.items()}

    def _costs(
        self,
        row: int,
        requests: Mapping[int, Sequence[Sequence[Request]]],
        chosen: Sequence[Sequence[_Chosen]],
        made: Answered,
        own: Completions,
        shared: GatheredCompletions,
    ) -> list[dict[str, Any]]:
        """Returns the cost entries of a query, each request once."""
        asked = [of_reading[row].question for of_reading in chosen] + [one for of in requests.values() for one in of[row]]
        entries = []
        for key, request in {self._key(one): one for one in asked if one is not None}.items():
            if key in shared.reused:
                entries.append(entry("rewrite", request.name, model=made[key].completion.model, reused=1))
            else:
                entries.append(self._completer.cost(request, made[key]))
            if own.lost[key]:
                entries.append(self._completer.lost(request, own.lost[key]))
        return entries


class MoreRewriteArms(RewriteArms):
    """The stage of a further engine: it appends to the texts of those before."""

    NEEDS = (*RewriteArms.NEEDS, "rewrites", "selections", "counts")
    ADDS = pa.schema([])


def _sampled(request: Request, sample: int) -> Request:
    """Returns the request of one of several answers; each has a seed of its own."""
    if not sample:
        return request
    number = request.sample + sample * SAMPLES_APART
    decoding = dict(request.decoding) | {"seed": request.decoding.get("seed", 0) + sample * SAMPLES_APART}
    return replace(request, sample=number, decoding=decoding)


def _once(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the errors of a query without repetitions: readings share answers."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for error in errors:
        seen.setdefault((error["component"], error["reason"], error["message"]), error)
    return list(seen.values())
