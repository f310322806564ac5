"""How many sends are in flight, against simulated servers, on a clock that jumps from one event to the next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from rewriters.engines.limit import Down, Limit, Outcome

ROUND = 0.2  # seconds of an answer, where nothing else is said
Send = Callable[[], Awaitable[Outcome]]


class Jumping(asyncio.SelectorEventLoop):
    """An event loop whose time is that of the next timer: seconds pass at once, and always the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def simulated(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with asyncio.Runner(loop_factory=Jumping) as runner:
        return runner.run(work())


def now() -> float:
    return asyncio.get_running_loop().time()


def a_limit(most: int = 256, **settings: Any) -> Limit:
    return Limit(most, clock=asyncio.get_running_loop().time, chance=lambda: 0.5, **settings)


class Load:
    """Requests without end, each sent through the limit until it is answered, and what came of them."""

    def __init__(self, limit: Limit, send: Send, requests: int = 2000, wait: float = 0.25) -> None:
        self.limit, self.send, self.wait = limit, send, wait
        self.answered = self.sends = 0
        self.sizes: list[tuple[float, int]] = []
        self.sent_at: list[float] = []
        self._tasks = [asyncio.ensure_future(self._one(n)) for n in range(requests)]

    async def _one(self, number: int) -> None:
        chance = random.Random(number)
        while True:
            async with self.limit.place() as place:
                self.sends += 1
                self.sent_at.append(now())
                place.outcome = outcome = await self.send()
            if outcome == "ok":
                self.answered += 1
            else:
                await asyncio.sleep(chance.uniform(0.2, 1) * self.wait)

    async def run(self, seconds: float) -> Load:
        end = now() + seconds
        while now() < end:
            self.sizes.append((now(), self.limit.size))
            await asyncio.sleep(min(0.1, max(end - now(), 0.001)))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self

    def late(self) -> list[int]:
        """The sizes of the second half."""
        return [size for _, size in self.sizes[len(self.sizes) // 2 :]]


async def unlimited() -> Outcome:
    await asyncio.sleep(ROUND)
    return "ok"


def queueing(places: int) -> Send:
    """A server that works on so many at a time, and lets the others wait."""
    queue = asyncio.Semaphore(places)

    async def send() -> Outcome:
        async with queue:
            await asyncio.sleep(ROUND)
        return "ok"

    return send


def batching() -> Send:
    """A language model: every answer takes longer the more there are at a time, yet more are answered."""
    at_once = 0

    async def send() -> Outcome:
        nonlocal at_once
        at_once += 1
        await asyncio.sleep(ROUND * (1 + at_once / 64))
        at_once -= 1
        return "ok"

    return send


def refusing(most: int) -> Send:
    """A server that says 429 beyond so many at a time."""
    at_once = 0

    async def send() -> Outcome:
        nonlocal at_once
        if at_once >= most:
            return "overload"
        at_once += 1
        await asyncio.sleep(ROUND)
        at_once -= 1
        return "ok"

    return send


def faulty(share: float, seconds: float, good: float = ROUND, seed: int = 1) -> Send:
    """A server of which this share of sends fails at random, after so many seconds."""
    chance = random.Random(seed)

    async def send() -> Outcome:
        bad = chance.random() < share
        await asyncio.sleep(seconds if bad else good)
        return "trouble" if bad else "ok"

    return send


def test_a_server_without_limits_gets_all_places_in_about_a_second() -> None:
    async def work() -> Load:
        return await Load(a_limit(), unlimited).run(5)

    load = simulated(work)
    assert next(at for at, size in load.sizes if size == 256) <= 1.0
    assert load.answered >= 0.85 * 5 * 256 / ROUND


def test_uneven_answers_do_not_hold_it_back() -> None:
    async def work() -> Load:
        chance = random.Random(1)

        async def send() -> Outcome:
            await asyncio.sleep(ROUND * chance.lognormvariate(0, 0.6))
            return "ok"

        return await Load(a_limit(), send).run(10)

    assert set(simulated(work).late()) == {256}


@pytest.mark.parametrize("places", [12, 40, 100, 200])
def test_a_server_that_queues_gets_what_it_works_on_and_no_long_queue(places: int) -> None:
    async def work() -> Load:
        return await Load(a_limit(1024), queueing(places), 4000).run(120)

    load = simulated(work)
    late = sorted(load.late())
    assert min(places, 32) <= late[len(late) // 2] <= max(2 * places, 32)
    assert load.answered >= 0.95 * 120 * places / ROUND


def test_chance_alone_makes_no_long_queue() -> None:
    """Answers of very uneven length, from a server that works on 40 at a time."""

    async def work() -> Load:
        chance, queue = random.Random(1), asyncio.Semaphore(40)

        async def send() -> Outcome:
            async with queue:
                await asyncio.sleep(ROUND * chance.lognormvariate(0, 0.6))
            return "ok"

        return await Load(a_limit(1024), send, 4000).run(600)

    late = sorted(simulated(work).late())
    assert 32 <= late[len(late) // 2] <= 160


def test_a_size_that_brought_nothing_is_tried_again_but_seldom() -> None:
    async def work() -> Load:
        return await Load(a_limit(1024), queueing(40), 4000).run(600)

    sizes = [size for _, size in simulated(work).sizes]
    beyond = sum(size > 80 for size in sizes) / len(sizes)
    assert 0 < beyond < 0.05


def test_a_server_that_grows_is_followed() -> None:
    async def work() -> Load:
        small, large = queueing(40), queueing(160)
        return await Load(a_limit(512), lambda: small() if now() < 60 else large(), 2000).run(300)

    assert min(simulated(work).late()) >= 120


def test_a_language_model_gets_all_places_although_its_answers_take_longer() -> None:
    async def work() -> Load:
        return await Load(a_limit(), batching()).run(30)

    assert set(simulated(work).late()) == {256}


@pytest.mark.parametrize("most", [5, 20, 100])
def test_refusals_keep_the_size_at_what_is_allowed(most: int) -> None:
    async def work() -> Load:
        return await Load(a_limit(), refusing(most)).run(60)

    load = simulated(work)
    late = sorted(load.late())
    assert 0.6 * most <= late[len(late) // 2] <= 1.3 * most
    assert load.answered >= 0.75 * 60 * most / ROUND
    assert load.sends - load.answered < 0.12 * load.sends


@pytest.mark.parametrize(("seconds", "good"), [(0.01, ROUND), (0.01, 5.0), (ROUND, ROUND), (5.0, ROUND)])
def test_random_faults_shrink_nothing(seconds: float, good: float) -> None:
    """One in twenty, at once or after a time out."""

    async def work() -> Load:
        return await Load(a_limit(), faulty(0.05, seconds, good)).run(300 * good)

    assert set(simulated(work).late()) == {256}


def test_faults_of_every_second_send_shrink_it() -> None:
    async def work() -> Load:
        return await Load(a_limit(), faulty(0.5, ROUND)).run(30)

    load = simulated(work)
    assert max(load.late()) < 32
    assert load.answered > 0


def test_places_that_nobody_wants_are_not_added() -> None:
    async def work() -> Load:
        return await Load(a_limit(), unlimited, requests=10).run(10)

    assert set(simulated(work).late()) == {32}


def test_a_server_that_is_away_is_probed_and_then_used_at_once() -> None:
    async def work() -> Load:
        async def send() -> Outcome:
            if 10 <= now() < 40:
                await asyncio.sleep(0.002)
                return "trouble"
            return await unlimited()

        return await Load(a_limit(), send).run(60)

    load = simulated(work)
    assert load.answered >= 0.9 * 30 * 256 / ROUND - 10 * 256 / ROUND  # back to the old rate with at most 10 s lost
    during = [at for at in load.sent_at if 10.3 <= at < 40]
    assert len(during) <= 15
    assert max(size for at, size in load.sizes if at > 51) == 256


def test_a_server_that_refuses_everything_is_probed_too() -> None:
    async def work() -> Load:
        async def send() -> Outcome:
            if 10 <= now() < 40:
                return "overload"
            return await unlimited()

        return await Load(a_limit(), send).run(60)

    load = simulated(work)
    assert len([at for at in load.sent_at if 10.3 <= at < 40]) <= 15
    assert max(load.late()) >= 128


def test_who_waits_for_a_server_that_stays_away_is_told() -> None:
    async def work() -> tuple[float, int]:
        limit = a_limit(patience=30)

        async def one() -> None:
            while True:
                async with limit.place() as place:
                    place.outcome = "trouble"
                    await asyncio.sleep(0.01)

        ends = await asyncio.gather(*(one() for _ in range(100)), return_exceptions=True)
        assert limit.in_flight == 0
        return now(), sum(isinstance(end, Down) for end in ends)

    at, told = simulated(work)
    assert told == 100
    assert 30 <= at < 60


def test_a_hold_stops_every_send() -> None:
    async def work() -> list[float]:
        limit = a_limit()
        load = Load(limit, unlimited, 100)
        await asyncio.sleep(1)
        limit.hold(3)
        limit.hold(1)  # a shorter one changes nothing
        await load.run(9)
        return load.sent_at

    sent = simulated(work)
    assert not [at for at in sent if 1.001 < at < 4]
    assert [at for at in sent if 4 <= at < 4.01]


def test_places_are_given_in_the_order_of_asking() -> None:
    async def work() -> list[int]:
        limit, order = a_limit(3), []

        async def one(number: int) -> None:
            async with limit.place() as place:
                order.append(number)
                assert limit.in_flight <= 3
                await asyncio.sleep(ROUND)
                place.outcome = "ok"

        await asyncio.gather(*(one(n) for n in range(50)))
        return order

    assert simulated(work) == list(range(50))


def test_who_goes_away_while_waiting_takes_no_place() -> None:
    async def work() -> int:
        limit = a_limit(2)

        async def one() -> None:
            async with limit.place() as place:
                await asyncio.sleep(ROUND)
                place.outcome = "ok"

        tasks = [asyncio.ensure_future(one()) for _ in range(20)]
        await asyncio.sleep(ROUND / 2)
        for task in tasks[1:18]:
            task.cancel()
        await asyncio.sleep(ROUND / 2)  # the moment in which a place is given: some are cancelled right then
        tasks[18].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not tasks[19].cancelled()
        return limit.in_flight

    assert simulated(work) == 0
