"""A server that speaks Chat Completions, with the faults that real ones have.

It runs on a thread (`with FakeServer() as s`) and answers "answer to: PROMPT". What goes wrong is told by the prompt (`fail`),
or by `answer`.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from aiohttp import web

HANG = 60.0
Body = dict[str, Any]
Answer = Callable[[Body], "Reply | None"]


@dataclass(frozen=True)
class Reply:
    """A fault in place of a good answer. fault: cut, hang or reset, for what is no HTTP answer."""

    status: int = 200
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    fault: str | None = None


def refusal(status: int, message: str, **more: str) -> Reply:
    """An error as OpenAI words it."""
    return Reply(status, json.dumps({"error": {"message": message} | more}).encode(), {"Content-Type": "application/json"})


def completion(text: object = "fine", usage: object = None, finish_reason: object = "stop", **more: object) -> Body:
    """A good answer's JSON."""
    message = {"role": "assistant", "content": text}
    return {
        "object": "chat.completion",
        "model": "what-the-server-calls-itself",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        **({} if usage is None else {"usage": usage}),
    } | more


def after(seconds: float) -> str:
    """A point in time, as a header says it."""
    return formatdate(time.time() + seconds, usegmt=True)


FAULTS: dict[str, Reply] = {
    "500": refusal(500, "the engine fell over"),
    "503": refusal(503, "overloaded"),
    "429": Reply(429, b'{"error": {"message": "slow down"}}', {"Retry-After": "1"}),
    "cut": Reply(fault="cut"),
    "half": Reply(content=json.dumps(completion()).encode()[:60]),
    "empty": Reply(content=b'{"choices": []}'),
    "stream": Reply(content=b'data: {"choices": [{"index": 0, "delta": {"content": "fine"}}]}\n\ndata: [DONE]\n\n'),
    "hang": Reply(fault="hang"),
    "html": Reply(content=b"<html><body>please log in</body></html>", headers={"Content-Type": "text/html"}),
    "reset": Reply(fault="reset"),
    "401": refusal(401, "Incorrect API key"),
}


class FakeServer:
    """The server, its faults, and what it saw.

    models: what GET /models lists, or the reply to it. seconds: that every answer takes. answer: a body's reply, None for
    the good answer. text: what that says.
    """

    path = "/v1/chat/completions"
    text_path: str | None = "/v1/completions"

    def __init__(
        self,
        models: list[str] | Reply | None = None,
        *,
        seconds: float = 0.0,
        key: str | None = None,
        usage: bool = True,
        completion_tokens: int = 3,
        answer: Answer | None = None,
        text: Callable[[Body], str] | None = None,
    ) -> None:
        self.models: list[str] | Reply = ["tiny"] if models is None else models
        self.seconds, self.key, self.usage, self.answer = seconds, key, usage, answer
        self.port, self.text, self._completion_tokens = 0, text, completion_tokens
        self.together = 0  # answers wait until so many have been in flight at a time
        self.given, self.allowed = 0, math.inf  # good answers; the ones after so many wait until more are allowed
        self.aliases: set[str] = set()  # models that it has and does not list
        self.bodies: list[Body] = []
        self.paths: list[str] = []  # of the bodies
        self.sends: Counter[str] = Counter()  # by prompt
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[int] = set()
        self.in_flight = self.most_in_flight = self.listings = 0
        self._faults: dict[str, tuple[Reply, float]] = {}
        self._shown: Counter[str] = Counter()
        self._peers: defaultdict[object, int] = defaultdict(lambda: len(self._peers))

    @property
    def address(self) -> str:
        """Its base_url."""
        return f"http://127.0.0.1:{self.port}/v1"

    def fail(self, prompt: str, fault: str | Reply, times: float = float("inf")) -> None:
        """A prompt's first `times` sends end so; the ones after it well."""
        self._faults[prompt] = (FAULTS[fault] if isinstance(fault, str) else fault, times)

    def __enter__(self) -> FakeServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self.listen())
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self.leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def go(self) -> None:
        """Stop listening, and drop all connections."""
        self._run(self.leave())

    def come_back(self) -> None:
        """Listen again, where it was."""
        self._run(self.listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(300)

    async def listen(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/models", self._list)
        app.router.add_post(self.path, self._complete)
        if self.text_path is not None:
            app.router.add_post(self.text_path, self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, backlog=2048)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def leave(self) -> None:
        await self._runner.cleanup()

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.listings += 1
        if self._stranger(request):
            return await self._reply(request, FAULTS["401"])
        if isinstance(self.models, Reply):
            return await self._reply(request, self.models)
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        prompt = self.prompt(body)
        self.times.append(time.monotonic())
        self.bodies.append(body)
        self.paths.append(request.path)
        self.headers.append(dict(request.headers))
        self.sends[prompt] += 1
        if request.transport is not None:
            self.connections.add(self._peers[request.transport.get_extra_info("peername")])
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self._stranger(request):
                return await self._reply(request, FAULTS["401"])
            reply = self._fault(prompt) or (self.answer(body) if self.answer else None)
            if reply is None and isinstance(self.models, list) and body["model"] not in {*self.models, *self.aliases}:
                reply = refusal(404, f"The model `{body['model']}` does not exist", code="model_not_found")
            if reply is not None:
                return await self._reply(request, reply)
            while self.most_in_flight < self.together or self.given >= self.allowed:
                await asyncio.sleep(0.01)
            self.given += 1
            await asyncio.sleep(self.seconds)
            text = self.text(body) if self.text else f"answer to: {prompt}"
            return web.json_response(self.good(text, body))
        finally:
            self.in_flight -= 1

    def prompt(self, body: Body) -> str:
        """The prompt of a request."""
        return str(body["prompt"] if "prompt" in body else body["messages"][0]["content"])

    def good(self, text: str, body: Body) -> Body:
        """A good answer; to a prompt that is no message its choice has a text in place of one."""
        tokens = {"prompt_tokens": len(self.prompt(body).split()), "completion_tokens": self._completion_tokens}
        answer = completion(text, tokens if self.usage else None)
        if "prompt" in body:
            del answer["choices"][0]["message"]
            answer["choices"][0]["text"] = text
        return answer

    def stranger(self, headers: Mapping[str, str], key: str) -> bool:
        """Returns True if a request does not have the key."""
        return headers.get("Authorization") != f"Bearer {key}"

    def _stranger(self, request: web.Request) -> bool:
        return self.key is not None and self.stranger(request.headers, self.key)

    def _fault(self, prompt: str) -> Reply | None:
        if prompt in self._faults:
            reply, times = self._faults[prompt]
            self._shown[prompt] += 1
            return reply if self._shown[prompt] <= times else None
        return None

    async def _reply(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        assert request.transport is not None
        if reply.fault == "hang":
            await asyncio.sleep(HANG)
        if reply.fault == "reset":
            request.transport.abort()  # type: ignore[attr-defined]
        if reply.fault == "cut":
            content = json.dumps(completion()).encode()
            response = web.StreamResponse(headers={"Content-Length": str(len(content) + 100)})
            await response.prepare(request)
            await response.write(content)
            request.transport.close()
            return response
        headers = {"Content-Type": "application/json"} | reply.headers
        return web.Response(status=reply.status, body=reply.content, headers=headers)
