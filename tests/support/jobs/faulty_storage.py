"""A storage in memory that delays, fails before and after, and loses answers, under actors of which one works at a time.

One seed drives who works next, what fails, who is killed, the clock, and the names of files: the same seed has the same trace.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from cluster.errors import UnavailableError
from cluster.storage import Entry

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
