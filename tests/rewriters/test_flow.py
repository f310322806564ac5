"""Requests in flight: each answered once, bounded over all calls, and nothing left when a call ends early."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from rewriters.engines import Completion, Request
from rewriters.engines.flow import Flow
from rewriters.errors import RewriterError

AHEAD = 4


class Answers:
    """Takes a moment for each request, and counts how many are under way."""

    def __init__(self) -> None:
        self.now = self.most = self.sent = 0

    async def __call__(self, request: Request) -> Completion:
        self.now, self.sent = self.now + 1, self.sent + 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(60 if request.query == "slow" else 0.01)
            if request.query == "broken":
                raise RewriterError("the engine is gone")
        finally:
            self.now -= 1
        return Completion(request.query, "stop", "m")


@pytest.fixture
def flow() -> Iterator[Flow]:
    flow = Flow(AHEAD)
    yield flow
    flow.close()
    flow.close()


def requests(*queries: object) -> list[Request]:
    return [Request(str(query), str(query), "keyword", "p", "h") for query in queries]


def settled(answers: Answers) -> bool:
    end = time.monotonic() + 5
    while answers.now and time.monotonic() < end:
        time.sleep(0.01)
    return answers.now == 0


def test_every_request_is_answered_once_and_few_are_under_way(flow: Flow) -> None:
    answers = Answers()
    answered = list(flow.stream(requests(*range(20)), answers))
    assert sorted(int(completion.text or "") for _, completion in answered) == list(range(20))
    assert all(asked.query == completion.text for asked, completion in answered)
    assert answers.most == AHEAD


def test_calls_share_the_places_and_none_waits_for_the_slowest_of_another(flow: Flow) -> None:
    answers, done = Answers(), threading.Event()
    slow = flow.stream(requests("slow", 0, 1), answers)
    assert {next(slow)[0].query, next(slow)[0].query} == {"0", "1"}
    threading.Thread(target=lambda: (list(flow.stream(requests(*range(20)), answers)), done.set()), daemon=True).start()
    assert done.wait(5)
    slow.close()  # type: ignore[attr-defined]
    assert settled(answers)


def test_what_ends_the_engine_ends_the_call_after_what_came_before(flow: Flow) -> None:
    answers = Answers()
    came = []
    with pytest.raises(RewriterError, match="the engine is gone"):  # noqa: PT012
        for asked, _ in flow.stream(requests(0, 1, 2, 3, "broken", *range(4, 40)), answers):
            came.append(asked.query)
    assert {"0", "1", "2"} <= set(came)
    assert settled(answers)
    assert answers.sent < 40
    assert len(list(flow.stream(requests(*range(9)), answers))) == 9  # the places are free again


def test_a_caller_that_stops_early_leaves_nothing_under_way(flow: Flow) -> None:
    answers = Answers()
    stream = flow.stream(requests(0, *["slow"] * 30), answers)
    assert next(stream)[0].query == "0"
    stream.close()  # type: ignore[attr-defined]
    assert settled(answers)
    assert len(list(flow.stream(requests(*range(9)), answers))) == 9


def test_requests_that_raise_while_they_are_made(flow: Flow) -> None:
    def broken() -> Iterator[Request]:
        yield from requests(0)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(flow.stream(broken(), Answers()))


def test_a_flow_that_is_closed_says_so_to_whoever_still_waits() -> None:
    flow, heard = Flow(AHEAD), []

    def call() -> None:
        try:
            list(flow.stream(requests("slow"), answers))
        except RewriterError as error:
            heard.append(str(error))

    answers = Answers()
    caller = threading.Thread(target=call)
    caller.start()
    while not answers.now:
        time.sleep(0.01)
    flow.close()
    caller.join(5)
    assert heard == ["the engine was closed while requests were under way; run the same command again"]
