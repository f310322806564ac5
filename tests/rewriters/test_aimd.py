"""The AIMD limit against simulated servers, on a clock that jumps from one event to the next."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from rewriters.engines.openai.aimd import DECREASE, INITIAL, LONGEST_BACKOFF, AimdLimit, Outcome, PatienceExceededError

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


def a_limit(max_in_flight: int = 256, patience: float = math.inf) -> AimdLimit:
    random.seed(1)  # of the backoff
    return AimdLimit(max_in_flight, patience)


class Load:
    """Requests that are sent through the limit until each is answered, and what came of them."""

    def __init__(self, limit: AimdLimit, send: Send, requests: int = 2000, wait: float = 0.25) -> None:
        self.limit, self.send, self.wait = limit, send, wait
        self.answered = self.sends = 0
        self.limits: list[tuple[float, int]] = []  # over time
        self.sent_at: list[float] = []
        self._tasks = [asyncio.ensure_future(self._one(n)) for n in range(requests)]

    async def _one(self, number: int) -> None:
        chance = random.Random(number)
        while True:
            async with self.limit.slot() as place:
                self.sends += 1
                self.sent_at.append(now())
                place.outcome = outcome = await self.send()
            if outcome == "ok":
                self.answered += 1
            else:
                await asyncio.sleep(chance.uniform(0.2, 1) * self.wait)

    async def run(self, seconds: float, stop: bool = True) -> Load:
        end = now() + seconds
        while now() < end:
            self.limits.append((now(), self.limit.limit))
            await asyncio.sleep(min(0.1, max(end - now(), 0.001)))
        if not stop:
            return self
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self

    def late(self) -> list[int]:
        """The limits of the second half."""
        return [limit for _, limit in self.limits[len(self.limits) // 2 :]]


async def unlimited() -> Outcome:
    await asyncio.sleep(ROUND)
    return "ok"


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


def refusing(places: int) -> Send:
    """A server that says 429 beyond so many at a time."""
    at_once = 0

    async def send() -> Outcome:
        nonlocal at_once
        if at_once >= places:
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
        return "failure" if bad else "ok"

    return send


def uneven(sigma: float = 0.6) -> Send:
    chance = random.Random(1)

    async def send() -> Outcome:
        await asyncio.sleep(ROUND * chance.lognormvariate(0, sigma))
        return "ok"

    return send


def away(outcome: Outcome) -> Send:
    """A server whose sends end so from second 10 to 40."""

    async def send() -> Outcome:
        if 10 <= now() < 40:
            await asyncio.sleep(0.002)
            return outcome
        return await unlimited()

    return send


def loaded(send: Send, seconds: float, requests: int = 2000, most: int = 256) -> Load:
    async def work() -> Load:
        return await Load(a_limit(most), send, requests).run(seconds)

    load: Load = simulated(work)
    return load


def test_a_server_without_limits_gets_all_places_in_about_a_second() -> None:
    load = loaded(unlimited, 5)
    assert next(at for at, limit in load.limits if limit == 256) <= 1.0
    assert load.answered >= 0.85 * 5 * 256 / ROUND


SLOW = pytest.mark.slow
FAILURES = [(0.01, ROUND, ()), (0.01, 5.0, SLOW), (ROUND, ROUND, SLOW), (5.0, ROUND, ())]  # one send in twenty, at once or late


@pytest.mark.parametrize(
    ("send", "seconds"),
    [
        pytest.param(uneven(), 10, marks=SLOW, id="uneven answers"),
        pytest.param(batching(), 30, id="a language model, whose answers take longer the more there are"),
        *(pytest.param(faulty(0.05, seconds, good), 60 * good, marks=marks) for seconds, good, marks in FAILURES),
    ],
)
def test_what_is_no_overload_decreases_nothing(send: Send, seconds: float) -> None:
    assert set(loaded(send, seconds).late()) == {256}


@SLOW
@pytest.mark.parametrize(("places", "refused"), [(5, 0.16), (20, 0.05), (100, 0.01)])
def test_a_server_that_refuses_requests_is_used_at_85_percent_of_its_places(places: int, refused: float) -> None:
    async def work() -> tuple[Load, int, int]:
        load = Load(a_limit(), refusing(places))
        await load.run(20, stop=False)
        answered, sends = load.answered, load.sends
        await load.run(100)
        return load, load.answered - answered, load.sends - sends

    load, answered, sends = simulated(work)
    assert answered >= 0.85 * 100 * places / ROUND
    assert sends - answered < refused * sends
    assert max(load.late()) <= places + 1


def test_one_decrease_per_round_trip_whatever_number_of_requests_is_refused() -> None:
    async def work() -> list[int]:
        limit, limits = a_limit(), [INITIAL]

        async def one() -> None:
            async with limit.slot() as place:
                await asyncio.sleep(ROUND)
                place.outcome = "ok" if now() > 2.5 * ROUND else "overload"
            limits.append(limit.limit)

        # 8 requests per round trip: fewer than make an outage
        for _ in range(3):
            await asyncio.gather(*(one() for _ in range(8)))
        return limits

    assert sorted(set(simulated(work)), reverse=True) == [INITIAL, int(INITIAL * DECREASE), int(INITIAL * DECREASE**2)]


def test_failures_of_every_second_request_decrease_the_limit() -> None:
    load = loaded(faulty(0.5, ROUND), 30)
    assert max(load.late()) < 32
    assert load.answered > 0


def test_unused_places_are_not_added_to() -> None:
    assert set(loaded(unlimited, 10, requests=10).late()) == {32}


@SLOW
def test_a_server_that_is_away_is_probed_and_then_used_at_once() -> None:
    load = loaded(away("failure"), 60)
    assert load.answered >= 0.9 * 30 * 256 / ROUND - 10 * 256 / ROUND  # back to the old rate with at most 10 s lost
    assert len([at for at in load.sent_at if 10.3 <= at < 40]) <= 15
    assert max(limit for at, limit in load.limits if at > 51) == 256


def test_waiting_requests_end_when_the_patience_is_over() -> None:
    async def work() -> tuple[float, int]:
        limit = a_limit(patience=30)

        async def one() -> None:
            while now() < 30:  # its own patience
                async with limit.slot() as place:
                    place.outcome = "failure"
                    await asyncio.sleep(0.01)

        ends = await asyncio.gather(*(one() for _ in range(100)), return_exceptions=True)
        assert limit.in_flight == 0
        return now(), sum(isinstance(end, PatienceExceededError) for end in ends)

    at, told = simulated(work)
    assert told == 99  # all but the one that was sent last
    assert 30 <= at < 30 + LONGEST_BACKOFF + 1


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
            async with limit.slot() as place:
                order.append(number)
                assert limit.in_flight <= 3
                await asyncio.sleep(ROUND)
                place.outcome = "ok"

        await asyncio.gather(*(one(n) for n in range(50)))
        return order

    assert simulated(work) == list(range(50))


def test_a_cancelled_request_takes_no_place() -> None:
    async def work() -> int:
        limit = a_limit(2)

        async def one() -> None:
            async with limit.slot() as place:
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
