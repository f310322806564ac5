"""The example of the docs for servers at home, and the event loop that engines share."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request
from rewriters.engines.event_loop import EventLoopThread
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import OpenaiSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal


def test_the_provider_is_the_host_without_credentials() -> None:
    settings = {"kind": "openai", "model": "m", "base_url": "https://user:secret@api.example.org:8443/v1"}
    assert OpenaiSettings.model_validate(settings).provider == "api.example.org:8443"


PAGE = Path(__file__).parents[2] / "docs" / "engines-and-indexes.md"
ANSWER = json.dumps({"general": "knots that hold a loop", "keyword": "knot loop rope"})


def example() -> dict[str, Any]:
    """The engine that docs/engines-and-indexes.md shows for Ollama."""
    section = PAGE.read_text(encoding="utf-8").partition("### Ollama, llama.cpp, LM Studio")[2]
    block = re.search(r"```yaml\n(.*?)```", section, re.S)
    assert block is not None
    engine: dict[str, Any] = yaml.safe_load(block[1])["rewrite"]["engine"]
    return engine


def without_schemas(body: Body) -> Reply | None:
    """As LM Studio and older builds of llama.cpp refuse what they cannot make a grammar of."""
    return refusal(400, "'response_format.type' must be 'text'") if "response_format" in body else None


@pytest.mark.parametrize(
    ("models", "answer", "left_out"),
    [
        (["llama3.2:latest", "qwen3:8b"], None, None),  # Ollama
        (["/models/qwen3-8b-q4.gguf"], None, None),  # llama-server, which takes any name
        (["qwen3:8b"], without_schemas, "response_format"),
        (Reply(content=b'{"error": "Unexpected endpoint or method. (GET /v1/models)"}'), without_schemas, "response_format"),
    ],
    ids=["Ollama", "llama.cpp", "no schemas", "no list"],
)
def test_the_example_of_the_docs_rewrites(models: Any, answer: Any, left_out: str | None) -> None:
    rewriter = Rewriter(Rewriting(load_pool(["general", "keyword"]), decoding={"max_tokens": 64, "temperature": 0.0}))
    query = Query("q1", "knot for a fixed loop")
    with FakeServer(
        models, usage=False, text=lambda _: f"<think>\nhm\n</think>\n```json\n{ANSWER}\n```", answer=answer
    ) as server:
        server.aliases.add("qwen3:8b")
        engine = OpenaiEngine(OpenaiSettings(**example() | {"base_url": server.address}))
        engine.check()
        answers = list(engine.complete(rewriter.requests(query)))
        engine.close()
        assert {body["model"] for body in server.bodies} == {"qwen3:8b"}
        assert all("Authorization" not in headers for headers in server.headers)
    found = rewriter.read(query, answers)
    assert {rewrite.strategy: rewrite.text for rewrite in found.rewrites} == json.loads(ANSWER)
    ((_, done),) = answers
    assert (done.usage, done.left_out) == ("counted", left_out)
    assert done.prompt_tokens > 0 < done.completion_tokens


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
    stop = threading.Event()  # of a thread that looks up a name, which nobody can stop
    event_loop._loop.call_soon_threadsafe(event_loop._loop.run_in_executor, None, lambda: stop.wait(9) or heard.append("name"))
    event_loop.close()
    stop.set()
    caller.join(PATIENCE)
    assert heard == ["the engine was closed while requests were under way; run the same command again"]
