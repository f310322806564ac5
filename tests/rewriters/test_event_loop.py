"""Each request is answered once, the pending ones are bounded over all calls, and a call that ends early leaves none."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request
from rewriters.engines.event_loop import EventLoopThread

MAX_PENDING = 4
PATIENCE = 300.0  # seconds, of a test with a busy machine


class Answers:
    """Takes a moment for each request, and counts how many are under way."""

    def __init__(self) -> None:
        self.now = self.most = self.sent = 0

    async def __call__(self, request: Request) -> Completion:
        self.now, self.sent = self.now + 1, self.sent + 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(3600 if request.query == "slow" else 0.01)
            if request.query == "broken":
                raise RewriterError("worker-died", "the engine is gone")
        finally:
            self.now -= 1
        return Completion(request.query, "stop", "m")


@pytest.fixture
def event_loop() -> Iterator[EventLoopThread]:
    event_loop = EventLoopThread(MAX_PENDING)
    yield event_loop
    event_loop.close()
    event_loop.close()


def requests(*queries: object) -> list[Request]:
    return [Request(str(query), str(query), "keyword", "p", "h") for query in queries]


def settled(answers: Answers) -> bool:
    end = time.monotonic() + PATIENCE
    while answers.now and time.monotonic() < end:
        time.sleep(0.01)
    return answers.now == 0


def test_every_request_is_answered_once_and_few_are_under_way(event_loop: EventLoopThread) -> None:
    answers = Answers()
    answered = list(event_loop.stream(requests(*range(20)), answers))
    assert sorted(int(completion.text or "") for _, completion in answered) == list(range(20))
    assert all(asked.query == completion.text for asked, completion in answered)
    assert answers.most == MAX_PENDING


def test_calls_share_the_places_and_none_waits_for_the_slowest_of_another(event_loop: EventLoopThread) -> None:
    answers, done = Answers(), threading.Event()
    slow = event_loop.stream(requests("slow", 0, 1), answers)
    assert {next(slow)[0].query, next(slow)[0].query} == {"0", "1"}
    threading.Thread(target=lambda: (list(event_loop.stream(requests(*range(20)), answers)), done.set()), daemon=True).start()
    assert done.wait(PATIENCE)
    slow.close()  # type: ignore[attr-defined]
    assert settled(answers)


def test_what_ends_the_engine_ends_the_call_after_what_came_before(event_loop: EventLoopThread) -> None:
    answers = Answers()
    came = []
    with pytest.raises(RewriterError, match="the engine is gone"):  # noqa: PT012
        for asked, _ in event_loop.stream(requests(0, 1, 2, 3, "broken", *range(4, 40)), answers):
            came.append(asked.query)
    assert {"0", "1", "2"} <= set(came)
    assert settled(answers)
    assert answers.sent < 40
    assert len(list(event_loop.stream(requests(*range(9)), answers))) == 9  # the places are free again


def test_a_caller_that_stops_early_leaves_nothing_under_way(event_loop: EventLoopThread) -> None:
    answers = Answers()
    stream = event_loop.stream(requests(0, *["slow"] * 30), answers)
    assert next(stream)[0].query == "0"
    stream.close()  # type: ignore[attr-defined]
    assert settled(answers)
    assert len(list(event_loop.stream(requests(*range(9)), answers))) == 9


def test_requests_that_raise_while_they_are_made(event_loop: EventLoopThread) -> None:
    def broken() -> Iterator[Request]:
        yield from requests(0)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(event_loop.stream(broken(), Answers()))


def test_a_closed_event_loop_ends_waiting_calls_with_an_error() -> None:
    event_loop, heard = EventLoopThread(MAX_PENDING), []

    def call() -> None:
        try:
            list(event_loop.stream(requests("slow"), answers))
        except RewriterError as error:
            heard.append(str(error))

    answers = Answers()
    caller = threading.Thread(target=call)
    caller.start()
    while not answers.now:
        time.sleep(0.01)
    event_loop.close()
    caller.join(PATIENCE)
    assert heard == ["the engine was closed while requests were under way; run the same command again"]
