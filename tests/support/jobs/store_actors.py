"""Jobs that read and put, who compacts, and who forgets, on one faulty storage; and what must hold whoever comes first.

Maintainers take no lease here: two at once are the worst that a lease which is lost lets happen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.chain.completions import CompletionRecord
from jobs.chain.store.facts import EngineRequest, put_completions, stored_completions
from jobs.chain.store.files import StoreFiles, open_store
from jobs.chain.store.forgotten import forgotten_queries
from jobs.chain.store.layout import milliseconds
from jobs.store.compact import compact_space, remove_replaced
from jobs.store.contents import stored_spaces
from jobs.store.forget import WhatToForget, forget
from jobs.store.rewriting import drop_forgotten
from rewriters.engines import Completion
from rewriters.normalise import query_id
from tests.support.jobs.faulty_storage import FaultyStorage, Turns
from tests.support.jobs.stored import ABOUT, asked

QUERIES = ["quorl", "brimst hale", "fenwick tarn", "ostrava lume", "pellam grist", "zubra"]
HOLDERS = {"zubra": "quorl"}  # query -> another one whose words its prompt has
FORGOTTEN = ("quorl", "pellam grist")
GRACES = (3_000, 20_000)  # milliseconds: longer than a job lists a space
SHARDS = (QUERIES[:3], QUERIES[3:], QUERIES[1::2])


class Put(NamedTuple):
    """A row as a job has put it."""

    made: int
    text: str
    step: int


class Forgetting(NamedTuple):
    """What was forgotten: rows that were made until `surely` do not count, some of until `maybe`."""

    surely: int
    maybe: int
    begun: int
    ended: int


@dataclass
class _Night:
    began: int = 0
    name: str = ""
    left: list[Sequence[str]] = field(default_factory=lambda: list(SHARDS))


class Interleaving:
    """One seed: runs its actors, and checks each look-up of a job."""

    def __init__(self, seed: int, failures: float = 0.03, kills: float = 0.01) -> None:
        self.turns = Turns(seed)
        self.storage = FaultyStorage(self.turns)
        self._faults = failures, kills
        self._acked: dict[str, list[Put]] = defaultdict(list)
        self._tried: dict[str, dict[str, int]] = defaultdict(dict)  # query -> text -> when it was made
        self._forgotten: dict[str, list[Forgetting]] = defaultdict(list)
        self._begun: dict[str, tuple[int, int]] = {}  # what is being forgotten: time, step
        self._jobs = 0
        self.looked_up = self.reused = 0

    def run(self) -> Sequence[str]:
        """Runs the actors, and looks at the store when all have ended; returns the trace."""
        with patched(self.turns, self.storage):
            self.storage.failures, self.turns.kills = self._faults
            for number in range(3):
                self.turns.add(f"writer {number}", self._job())
            self.turns.add("compactor", self._compact)
            self.turns.add("forgetter", self._forget())
            self.turns.run()
            self.storage.failures = self.turns.kills = 0.0
            self._check_whole()
        return self.turns.trace

    def _job(self) -> Callable[[], None]:
        """Returns two nights, one after the other: each looks up, puts what is missing, and goes on where it was killed."""
        nights = [_Night(), _Night()]

        def work() -> None:
            while nights:
                night = nights[0]
                if not night.began:
                    self._jobs += 1
                    night.began, night.name = self.turns.now, f"{self._jobs}"
                opened = self.turns.steps
                files = open_store("/memory", ABOUT, night.began / 1000)
                while night.left:
                    self._shard(files, night.left[0], night, opened)
                    night.left.pop(0)
                nights.pop(0)

        return work

    def _shard(self, files: StoreFiles, queries: Sequence[str], night: _Night, opened: int) -> None:
        wanted = {query: _asked(query) for query in queries}
        found = stored_completions(files, list(wanted.values()))
        texts = {query: str(found[of.key].completion.text) for query, of in wanted.items() if of.key in found}
        self._check(texts, queries, opened)
        made = {}
        for query, of in wanted.items():
            if query not in texts:
                text = f"{query} by job {night.name}"
                self._tried[query][text] = night.began
                made[of] = CompletionRecord(Completion(text, "stop", "model"), of.prompt)
        put_completions(files, made)
        for of in made:
            query = next(query for query, other in wanted.items() if other == of)
            self._acked[query].append(Put(night.began, f"{query} by job {night.name}", self.turns.steps))

    def _compact(self) -> None:
        for _ in range(self.turns.random.randrange(2, 6)):
            for one in stored_spaces(self.storage):
                remove_replaced(self.storage, one, self.turns.now - self.turns.random.choice(GRACES))
                with suppress(FileNotFoundError):  # another one has written a file anew: a lease would have kept it from that
                    if one.most_together > 1:
                        compact_space(self.storage, one, 0, self.turns.now)
            self.turns.give()

    def _forget(self) -> Callable[[], None]:
        left = list(FORGOTTEN)

        def work() -> None:
            while left:
                for _ in range(self.turns.random.randrange(30)):
                    self.turns.give()
                names = [left[0], *(query for query, words in HOLDERS.items() if words == left[0])]
                for name in names:  # the holder may go with it
                    self._begun.setdefault(name, (self.turns.now, self.turns.steps))
                told = forget(self.storage, WhatToForget(left[0]), None, now=lambda: self.turns.now / 1000)
                for name in names:
                    surely, step = self._begun.pop(name)
                    surely = surely if query_id(name) in told.query_ids else 0
                    self._forgotten[name].append(Forgetting(surely, self.turns.now, step, self.turns.steps))
                left.pop(0)

        return work

    def _check(self, texts: Mapping[str, str], queries: Sequence[str], opened: int) -> None:
        """Checks what a job has found that had listed the store at step `opened`."""
        for query in queries:
            maybe = max([one.maybe for one in self._forgotten[query]], default=0)
            if query in self._begun:
                maybe = self.turns.now
            sure = [one for one in self._acked[query] if one.step <= opened and one.made > maybe]
            self.looked_up += 1
            if query not in texts:
                assert not sure, f"{query} is lost: {sure}"
                continue
            self.reused += 1
            made = self._tried[query].get(texts[query])
            assert made is not None, f"{query} has {texts[query]!r}, which nobody has put"
            assert made <= min([one.made for one in sure], default=made), f"{query} has not the first of its rows"
            gone = [one for one in self._forgotten[query] if one.ended <= opened and made <= one.surely]
            assert not gone, f"{query} came back: {texts[query]!r}, {gone}"

    def _check_whole(self) -> None:
        """Checks what a job would find now, and then that no file has what was forgotten."""
        opened = self.turns.steps
        files = open_store("/memory", ABOUT, self.turns.now / 1000)
        found = stored_completions(files, [_asked(query) for query in QUERIES])
        texts = {query: str(found[_asked(query).key].completion.text) for query in QUERIES if _asked(query).key in found}
        self._check(texts, QUERIES, opened)
        for one in stored_spaces(self.storage) if any(self._faults) else ():
            drop_forgotten(self.storage, one, forgotten_queries(self.storage))  # of jobs that were killed as they put a file
        for row in self._rows():
            self._check_row(row)
        for one in stored_spaces(self.storage):
            compact_space(self.storage, one, 0, self.turns.now)
        again = stored_completions(open_store("/memory", ABOUT, self.turns.now / 1000), [_asked(query) for query in QUERIES])
        assert {key: one.completion.text for key, one in again.items()} == {
            key: one.completion.text for key, one in found.items()
        }
        for query in FORGOTTEN:  # once more, since jobs that worked meanwhile may have put rows of others with its words
            forget(self.storage, WhatToForget(query), None, now=lambda: self.turns.now / 1000)
        kept = self._rows()
        assert not [row for row in kept if any(query in f"{row['prompt']} {row['text']}" for query in FORGOTTEN)]
        assert {query_id(query) for query in QUERIES} - {row["query_id"] for row in kept} <= {
            query_id(query) for query in (*FORGOTTEN, *HOLDERS)
        }

    def _rows(self) -> list[dict[str, Any]]:
        files = [data for key, data in self.storage.objects.items() if key.endswith(".parquet")]
        return [row for data in files for row in pq.read_table(pa.BufferReader(data)).to_pylist()]

    def _check_row(self, row: Mapping[str, Any]) -> None:
        made = milliseconds(row["made_at"].timestamp())
        for query, forgettings in self._forgotten.items():
            gone = row["query_id"] == query_id(query) and any(made <= one.surely for one in forgettings)
            assert not gone, f"{query} stands in {row}"


def _asked(query: str) -> EngineRequest:
    return asked(query, f"Rewrite: {query} (asked after {HOLDERS[query]})" if query in HOLDERS else "")


@contextmanager
def patched(turns: Turns, storage: FaultyStorage) -> Iterator[None]:
    """Has the store work on one storage, by one clock, with names that a seed decides, and one call after the other."""
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(time=lambda: turns.now / 1000)
        patch.setattr("jobs.chain.store.files.open_storage", lambda _root: storage)
        patch.setattr("jobs.chain.store.files.time", clock)
        patch.setattr("jobs.chain.store.layout.uuid", turns)
        patch.setattr("jobs.store.forget.maintaining", lambda _storage: nullcontext(lambda: None))
        for module in ("jobs.chain.store.files", "jobs.chain.store.merges", "jobs.store.contents", "jobs.store.compact"):
            patch.setattr(f"{module}.prefetch", lambda function, items, _most: map(function, items))
        yield
