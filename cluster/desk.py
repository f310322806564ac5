"""The desk of a run: which shards are under way, who works on them, and the books of how far each is.

The books hold the shards that are not committed, so they stay small however long the run is, and what is committed is
counted once: from the manifests. Words come from many processes and overtake each other, also those of one process (an
asynchronous actor of Ray promises no order); a shard is therefore at one place only, and a word that came too late moves
nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cluster.costs import Totals, add, totals

TASK_SLOTS = 2  # blocks at a time in a stage without a pool
_REMEMBERED = 1000  # shards whose commit is remembered, for words that come after it


class Attempt(NamedTuple):
    """A block taken on by a worker's process, which may die and come back as another."""

    life: str
    number: int


class Account(NamedTuple):
    """What a stage has put onto a block."""

    spent: Totals
    counts: Mapping[str, int]


def account(stage: str, table: pa.Table, counts: Mapping[str, int]) -> Account:
    """The account of a block that came out of a stage: its own entries among the costs, and what else was counted."""
    if "costs" not in table.column_names:
        return Account({}, counts)
    flat = table.column("costs").combine_chunks().flatten()
    return Account(totals(flat.filter(pc.equal(flat.field("stage"), stage))), counts)


class Page(NamedTuple):
    """One stage in the books. Rows are those of shards that are not committed; a row is in one of the three numbers."""

    done: int  # rows that are past this stage
    at_work: int  # rows of blocks that it has begun, and not done
    waiting: int  # rows that came out of the stage before and were not begun
    busy: float  # seconds that its workers had something under way, all together, since the books were opened
    workers: int
    there: int  # workers that have started; without a pool, all
    spent: Totals
    counts: Mapping[str, int]


@dataclass
class _Place:
    """Where a shard is: under way at a seat, or waiting for its stage (seat None)."""

    stage: int = 0
    rows: int = 0
    seat: int | None = None
    life: str = ""
    share: float = 0.0  # of its rows that the stage has done
    accounts: dict[int, Account] = field(default_factory=dict)
    over: set[tuple[int, Attempt]] = field(default_factory=set)


class Books:
    """Where every shard is that is not committed.

    Args:
        stages: name -> workers, in their order; 0 is a stage without a pool.
        clock: seconds.
    """

    def __init__(self, stages: Mapping[str, int], clock: Callable[[], float] = time.monotonic) -> None:
        self._stages, self._clock = dict(stages), clock
        self._index = {name: index for index, name in enumerate(stages)}
        self._places: dict[int, _Place] = {}
        self._committed: dict[int, None] = {}  # the last of them, in their order
        self._there: dict[str, set[int]] = {name: set() for name in stages}
        self._blocks: Counter[tuple[int, int]] = Counter()  # (stage, seat) -> blocks under way
        self._since: dict[tuple[int, int], float] = {}
        self._busy = [0.0] * len(self._stages)

    def seated(self, stage: str, seat: int, life: str) -> None:
        """A worker has started. What one before it at this seat had under way waits again."""
        self._there[stage].add(seat)
        for place in self._places.values():
            if (place.stage, place.seat) == (self._index[stage], seat) and place.life != life:
                self._rise(place)

    def began(self, stage: str, shard: int, rows: int, seat: int, attempt: Attempt) -> None:
        """A block is under way; if it was further already, it is done again. In a stage without a pool every block has a
        seat of its own."""
        if self._stages[stage]:
            self._there[stage].add(seat)
        if shard in self._committed:
            return
        place = self._places.setdefault(shard, _Place())
        if (self._index[stage], attempt) in place.over:
            return
        self._rise(place)
        place.stage, place.seat, place.life = self._index[stage], seat, attempt.life
        place.rows = max(place.rows, rows)
        place.accounts = {index: account for index, account in place.accounts.items() if index < place.stage}
        at = place.stage, seat
        self._blocks[at] += 1
        self._since.setdefault(at, self._clock())

    def reached(self, stage: str, shard: int, share: float) -> None:
        """So much of a block is done."""
        place = self._places.get(shard)
        if place is not None and place.stage == self._index[stage] and place.seat is not None:
            place.share = min(1.0, max(place.share, share))

    def ended(self, stage: str, shard: int, rows: int, attempt: Attempt, account: Account) -> None:
        """A block came out of a stage. A stage may make rows (of a place in the plan) or fold them (into a manifest): the
        most that were seen of a shard are its rows."""
        if shard in self._committed:
            return
        place, index = self._places.setdefault(shard, _Place()), self._index[stage]
        place.over.add((index, attempt))
        place.accounts[index] = account
        if place.stage <= index:  # else it is further already
            self._rise(place)
            place.stage, place.rows = index + 1, max(place.rows, rows)

    def committed(self, shard: int) -> None:
        """The shard's manifest speaks for it from now on."""
        if (place := self._places.pop(shard, None)) is not None:
            self._rise(place)
        self._committed[shard] = None
        if len(self._committed) > _REMEMBERED:
            del self._committed[next(iter(self._committed))]

    def pages(self) -> dict[str, Page]:
        """Every stage, in their order."""
        return {name: self._page(index, name, workers) for index, (name, workers) in enumerate(self._stages.items())}

    def _page(self, index: int, name: str, workers: int) -> Page:
        done = at_work = waiting = 0
        spent: Totals = {}
        counts: Counter[str] = Counter()
        for place in self._places.values():
            if place.stage > index:
                done += place.rows
            elif place.stage == index and place.seat is not None:
                part = int(place.rows * place.share)
                done, at_work = done + part, at_work + place.rows - part
            elif place.stage == index:
                waiting += place.rows
            if index in place.accounts:
                add(spent, place.accounts[index].spent)
                counts.update(place.accounts[index].counts)
        now = self._clock()
        busy = self._busy[index] + sum(now - since for (stage, _), since in self._since.items() if stage == index)
        there = len(self._there[name]) if workers else TASK_SLOTS
        return Page(done, at_work, waiting, busy, workers or TASK_SLOTS, there, spent, dict(counts))

    def _rise(self, place: _Place) -> None:
        """The shard is no longer under way."""
        if place.seat is None:
            return
        at = place.stage, place.seat
        place.seat, place.share = None, 0.0
        self._blocks[at] -= 1
        if not self._blocks[at]:
            del self._blocks[at]
            self._busy[at[0]] += self._clock() - self._since.pop(at)


class Desk:
    """Admits shards, hands out workers, keeps the books, and closes when no more shard shall begin. One asynchronous actor
    per run.

    If its process dies Ray starts it anew with empty books: admission is then wider for a moment, nothing is lost.

    Args:
        limit: shards under way at a time.
        stages: name -> workers, in their order; 0 is a stage without a pool.
    """

    def __init__(self, limit: int, stages: Mapping[str, int]) -> None:
        self._limit, self._closed = limit, False
        self._admitted: set[int] = set()
        self._busy = {stage: Counter(dict.fromkeys(range(workers), 0)) for stage, workers in stages.items()}
        self._changed = asyncio.Condition()
        self._heard = time.monotonic()
        self._books = Books(stages)

    async def admit(self, shard: int) -> bool:
        """Wait until fewer than `limit` shards are under way; False once closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or len(self._admitted - {shard}) < self._limit)
            if not self._closed:
                self._admitted.add(shard)
            return not self._closed

    async def committed(self, shard: int) -> None:
        """A shard is done with."""
        self._books.committed(shard)
        async with self._changed:
            self._admitted.discard(shard)
            self._changed.notify_all()

    async def take(self, stage: str) -> int:
        """The least busy worker of a stage."""
        worker, _ = min(self._busy[stage].items(), key=lambda item: item[1])
        self._busy[stage][worker] += 1
        return worker

    async def give(self, stage: str, worker: int) -> None:
        """The worker has answered."""
        self._busy[stage][worker] -= 1

    async def seated(self, stage: str, seat: int, life: str) -> None:
        """A worker has started."""
        self._heard = time.monotonic()
        self._books.seated(stage, seat, life)

    async def began(self, stage: str, shard: int, rows: int, seat: int, attempt: Attempt) -> None:
        """A block is under way."""
        self._heard = time.monotonic()
        self._books.began(stage, shard, rows, seat, attempt)

    async def pulse(self, stage: str, shard: int, share: float | None) -> None:
        """A worker is at work on a block, and has done so much of it."""
        self._heard = time.monotonic()
        if share is not None:
            self._books.reached(stage, shard, share)

    async def ended(self, stage: str, shard: int, rows: int, attempt: Attempt, account: Account) -> None:
        """A block came out of a stage."""
        self._heard = time.monotonic()
        self._books.ended(stage, shard, rows, attempt, account)

    async def books(self) -> dict[str, Page]:
        """Every stage, in their order."""
        return self._books.pages()

    async def quiet(self) -> float:
        """Seconds since a worker was last heard of."""
        return time.monotonic() - self._heard

    async def close(self) -> None:
        """Admit no more shards."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
