"""Jobs, who compacts and who forgets, in thousands of orders, on a storage that delays, fails and loses answers."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import UnavailableError
from cluster.storage import Entry
from jobs.chain.completions import CompletionRecord
from jobs.chain.store.facts import EngineRequest, put_completions, stored_completions
from jobs.chain.store.files import StoreFiles, open_store
from jobs.chain.store.layout import milliseconds
from jobs.chain.store.tombstones import forgotten_queries
from jobs.store.compact import compact_space, drop_forgotten, remove_replaced
from jobs.store.contents import stored_spaces
from jobs.store.forget import forget
from rewriters.engines import Completion
from rewriters.normalise import query_id
from tests.support.jobs.stored import ABOUT, asked

PAGE = 4  # entries of a page of a listing, between which others work
ILL = 300  # steps after which nothing fails any more: who needs many in a row would never come to an end
PATIENCE = 600.0  # seconds: of a machine that is busy


class Killed(BaseException):
    """An actor's process was killed."""


class Actor:
    """A process; it begins again when it was killed."""

    def __init__(self, name: str, work: Callable[[], None], turns: Turns) -> None:
        self.name, self.kill, self.done = name, False, False
        self.error: BaseException | None = None
        self.wakes = threading.Lock()
        self.wakes.acquire()
        self._work, self._turns = work, turns
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._turns.current.actor = self
        self.wakes.acquire()
        try:
            while True:
                try:
                    self._work()
                    break
                except (Killed, UnavailableError) as error:
                    self._turns.say(f"begins again: {type(error).__name__}")
        except BaseException as error:
            self.error = error
        self.done = True
        self._turns.end(self)


class Turns:
    """Decides who works next, and when: a clock in milliseconds."""

    def __init__(self, seed: int) -> None:
        self.random, self.now, self.steps = random.Random(seed), 1_700_000_000_000, 0
        self.trace: list[str] = []
        self.kills = 0.0
        self.current, self.back = threading.local(), threading.Lock()
        self.back.acquire()
        self._actors: list[Actor] = []

    def add(self, name: str, work: Callable[[], None]) -> None:
        self._actors.append(Actor(name, work, self))

    def run(self) -> None:
        """Lets all actors come to their ends; raises the first error of one."""
        for actor in self._actors:
            actor.thread.start()
        first, working = self._next(), list(self._actors)
        first.wakes.release()
        assert self.back.acquire(timeout=PATIENCE), "nobody came to an end"
        for actor in working:
            if actor.error is not None:
                raise actor.error
        self._actors = []

    def end(self, actor: Actor) -> None:
        """Lets others work, where one has come to its end; after an error nobody does."""
        self._actors = [] if actor.error is not None else [one for one in self._actors if not one.done]
        (self._next().wakes if self._actors else self.back).release()

    def _next(self) -> Actor:
        actor = self.random.choice(self._actors)
        self.now += self.random.randrange(1, 40)
        actor.kill = self.random.random() < self.kills and self.steps < ILL
        return actor

    def say(self, words: str) -> None:
        """Notes what the actor does that works now."""
        self.steps += 1
        actor = getattr(self.current, "actor", None)
        self.trace.append(f"{self.steps} {self.now} {'-' if actor is None else actor.name} {words}")

    def give(self) -> None:
        """Lets others work; raises Killed where this one's process was killed meanwhile. Outside of actors nothing happens."""
        actor = getattr(self.current, "actor", None)
        if actor is None:
            return
        if (other := self._next()) is not actor:
            other.wakes.release()
            assert actor.wakes.acquire(timeout=PATIENCE), f"{actor.name} got no turn"
        if actor.kill:
            actor.kill = False
            raise Killed

    def uuid4(self) -> Any:
        """Returns a unique name that the seed decides."""
        return SimpleNamespace(hex=f"{self.random.getrandbits(128):032x}")


class FaultyStorage:
    """Objects in memory; the methods keep the contract of `cluster.storage.Storage`."""

    root = "/memory"

    def __init__(self, turns: Turns) -> None:
        self.objects: dict[str, bytes] = {}
        self.failures = 0.0  # share of the operations that fail
        self._turns = turns

    def put(self, key: str, data: bytes) -> None:
        self._operate(f"put {key}", lambda: self.objects.update({key: bytes(data)}))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        def put() -> bool:
            absent = key not in self.objects
            self.objects.setdefault(key, bytes(data))
            return absent

        return bool(self._operate(f"put if absent {key}", put))

    def upload(self, path: Path, key: str) -> None:
        self.put(key, path.read_bytes())

    def get(self, key: str) -> bytes | None:
        found: bytes | None = self._operate(f"get {key}", lambda: self.objects.get(key))
        return found

    def open(self, key: str) -> pa.NativeFile:
        data = self.get(key)
        if data is None:
            raise FileNotFoundError(2, "no such object", key)
        return pa.BufferReader(data)

    def stat(self, key: str) -> Entry | None:
        data = self.get(key)
        return None if data is None else Entry(key, len(data))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        folder, after = f"{prefix}/" if prefix else "", ""
        while page := self._operate(f"list {folder} after {after}", partial(self._page, folder, after)):
            yield from page
            after = page[-1].key

    def folders(self) -> Sequence[str]:
        return sorted({key.partition("/")[0] for key in self.objects})

    def delete(self, *keys: str) -> None:
        for key in keys:
            self._operate(f"delete {key}", lambda key=key: self.objects.pop(key, None))

    def url(self, key: str) -> str:
        return f"{self.root}/{key}"

    def _page(self, folder: str, after: str) -> list[Entry]:
        keys = sorted(key for key in self.objects if key.startswith(folder) and key > after)[:PAGE]
        return [Entry(key, len(self.objects[key])) for key in keys]

    def _operate(self, words: str, effect: Callable[[], Any]) -> Any:
        turns = self._turns
        for _ in range(turns.random.choice((0, 0, 1, 1, 3))):  # on its way
            turns.give()
        fate = turns.random.random() if turns.steps < ILL else 1.0
        if fate < self.failures / 2:
            turns.say(f"{words}: fails")
            raise UnavailableError(f"{words}: no answer")
        found = effect()
        turns.say(words)
        if turns.random.random() < 0.5:  # the answer is on its way
            turns.give()
        if fate < self.failures:
            turns.say(f"{words}: done, and the answer is lost")
            raise UnavailableError(f"{words}: no answer")
        return found


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
    """Forgotten queries: rows that were made until `surely` do not count, some of until `maybe`."""

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
                told = forget(self.storage, left[0], None, now=lambda: self.turns.now / 1000)
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
            forget(self.storage, query, None, now=lambda: self.turns.now / 1000)
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
        patch.setattr("jobs.store.forget.maintaining", lambda _storage, **_: nullcontext(lambda: None))
        for module in ("jobs.chain.store.files", "jobs.chain.store.layout", "jobs.store.compact"):
            patch.setattr(f"{module}.prefetch", lambda function, items, _most: map(function, items))
        yield


FEW, MANY = 20, 2_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, FEW, 10))
def test_no_row_differs_is_lost_or_comes_back(seed: int) -> None:
    for one in range(seed, seed + 10):
        Interleaving(one).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, FEW, 10))
def test_where_nothing_fails_no_file_has_what_was_forgotten(seed: int) -> None:
    """Neither does it need compaction: who puts a file looks for marks afterwards."""
    for one in range(seed, seed + 10):
        Interleaving(one, failures=0.0, kills=0.0).run()


def test_one_seed_has_one_trace() -> None:
    traces = [Interleaving(7).run() for _ in range(2)]
    assert traces[0] == traces[1]
    assert traces[0] != Interleaving(8).run()


@pytest.mark.slow
def test_all_that_may_happen_does() -> None:
    seen = "\n".join("\n".join(Interleaving(seed).run()) for seed in range(100, 110))
    for words in ("begins again: Killed", "fails", "the answer is lost", "merged-", "v1/forgotten/", "delete "):
        assert words in seen


def test_rows_are_found_where_nothing_fails() -> None:
    one = Interleaving(3, failures=0.0, kills=0.0)
    one.run()
    assert one.reused > one.looked_up / 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW, MANY, 97))
def test_two_thousand_orders(seed: int) -> None:
    for one in range(seed, min(MANY, seed + 97)):
        Interleaving(one).run()
        if one % 20 == 0:
            Interleaving(one, failures=0.0, kills=0.0).run()
