"""Completions from a server that speaks OpenAI's Chat Completions: a hosted API, or `vllm serve` and its like.

Many requests are in flight at a time, over connections that are kept; `limit.py` finds how many. What the server's state
causes (429, 503, no connection) is waited out, up to a patience; what is a request's own (500, time out, a broken answer)
is tried again a few times; either then ends as the data of its completion. What no request can survive, such as a wrong
key, is raised.

`chat.py` has the words of the protocol, `server.py` the connections, `usage.py` counts tokens where a server does not.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewriters.engines import Completion, Request, chat
from rewriters.engines.flow import Flow
from rewriters.engines.limit import Down, Limit, Outcome
from rewriters.engines.server import Server
from rewriters.engines.usage import Counter
from rewriters.errors import RewriterError

_log = logging.getLogger(__name__)

_AHEAD = 4  # requests under way per place: those that wait to be sent again leave no place empty
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 20.0  # seconds before a request is sent again, doubling
_RESERVED = ("messages", "model", "stream")
_LONGEST_MESSAGE = 300


@dataclass
class _Course:
    """One request on its way: what was sent so far, what came of it, and what is left out for its sake."""

    sends: int = 0
    own: int = 0  # failures that count as attempts
    seconds: float = 0.0
    since: float = 0.0  # when it was first sent
    left_out: set[str] = field(default_factory=set)


class OpenaiEngine:
    """The engine of one server and one model.

    base_url: what `/chat/completions` is put behind, usually ending in `/v1`. api_key_env: the environment variable with
    the key. max_in_flight: sends at a time, at most. timeout_seconds: of one send. attempts: sends of a request that
    fails by itself. patience_minutes: how long a request is kept for a server that is away or refuses. tokenizer: counts
    where the server reports no usage (see `usage.py`). args: more keys of the request body; they win over ours.

    Raises RewriterError for settings that cannot work; nothing is sent before `check`, `start` or `complete`.
    """

    kind = "openai"

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key_env: str | None = None,
        max_in_flight: int = 256,
        timeout_seconds: float = 60.0,
        attempts: int = 5,
        patience_minutes: float = 10.0,
        tokenizer: str | None = None,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        _check_numbers(max_in_flight=max_in_flight, attempts=attempts)
        _check_numbers(0.001, timeout_seconds=timeout_seconds)
        _check_numbers(0, patience_minutes=patience_minutes)
        if not model:
            raise RewriterError("engine 'openai' needs the name of a model; set rewrite.engine.model as the server lists it")
        self._max_in_flight = max_in_flight
        self._model, self._args = model, _checked(args or {})
        self._server = Server(base_url, api_key_env, timeout_seconds)
        self._attempts, self._patience = attempts, 60 * patience_minutes
        self._counter, self._told = Counter(model, tokenizer), False
        self._left_out: frozenset[str] = frozenset()  # fields that this server has refused
        self._taken: frozenset[str] = frozenset()  # and those that it has taken at least once
        self._trouble = chat.Failure("unavailable", "the server does not answer")  # the last one
        self._limit = Limit(max_in_flight, patience=self._patience)
        self._lock = threading.Lock()
        self._closed = False
        self._flow: Flow | None = None

    def check(self) -> None:
        """Ask the server for its models, and find the tokenizer.

        Raises RewriterError: no server there, TLS, the key, the address, no such model, no such tokenizer.
        """
        self._counter.check()
        flow = Flow(1)
        try:
            flow.run(self._server.check(self._model))
        finally:
            flow.close()

    def start(self) -> dict[str, float]:
        """Open what the requests go through. There is nothing to load, so nothing to report."""
        with self._lock:
            if self._closed:
                raise RewriterError("engine 'openai' is closed; run the same command again")
            if self._flow is None:
                self._flow = Flow(_AHEAD * self._max_in_flight)
                self._flow.run(self._server.open())
        return {}

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Every request once with its completion, as they come; threads share the places.

        Raises RewriterError where no request can succeed: the server refuses the key, the account or the address.
        """
        self.start()
        assert self._flow is not None
        return self._flow.stream(requests, self._answer)

    def identity(self) -> dict[str, Any]:
        """What decides which text comes out; not where the server is."""
        return {"kind": self.kind, "model": self._model, "args": self._args}

    def close(self) -> None:
        """End what is under way and give the connections back; a second call does nothing."""
        with self._lock:
            self._closed = True
            flow, self._flow = self._flow, None
        if flow is not None:
            flow.run(self._server.close())
            flow.close()

    async def _answer(self, request: Request) -> Completion:
        """Send one request until it is answered or given up."""
        course = _Course()
        while True:
            try:
                async with self._limit.place() as place:
                    fields = chat.body(self._model, request, self._args, self._left_out | course.left_out)
                    course.sends += 1
                    course.since = course.since or place.began
                    status, headers, content = await self._server.send(chat.encoded(fields))
                    end = chat.verdict(status, headers, content) if isinstance(content, bytes) else content
                    place.outcome = _outcome(end)
            except Down:
                away = f"; nothing else came for {self._patience / 60:g} minutes"
                return self._failed(self._trouble, course, away)
            course.seconds += place.seconds
            if isinstance(end, chat.Answer):
                self._learn(course.left_out, fields.keys())
                return await self._completed(request, end, course)
            if isinstance(content, bytes) and self._goes_without(status, content, fields, course):
                continue
            if chat.fatal(status):
                raise self._server.refusal(status, end.message)
            wait = self._wait(end, course)
            if wait is None:
                return self._failed(end, course)
            await asyncio.sleep(wait)

    def _goes_without(self, status: int, content: bytes, fields: Collection[str], course: _Course) -> bool:
        """Whether a refused request is worth sending again without fields that the server does not know."""
        if status not in chat.REFUSALS:
            return False
        more = chat.refused(content, fields) - self._args.keys()
        if not more and status != 404 and "response_format" in fields and "response_format" not in self._args:
            more = {"response_format"}  # the likeliest, where the server does not say
        course.left_out |= more
        return bool(more)

    def _learn(self, left_out: Collection[str], sent: Collection[str]) -> None:
        """The server has taken a request with these fields, and without those."""
        if not self._taken.issuperset(sent):
            self._taken = self._taken.union(sent)
        for name in sorted(set(left_out) - self._left_out - self._taken):
            instead = "max_completion_tokens is sent instead" if name == chat.RENAMED else "it is left out"
            _log.warning("%s does not take %s; from now on %s", self._server.base, name, instead)
            self._left_out |= {name}

    def _wait(self, failure: chat.Failure, course: _Course) -> float | None:
        """Seconds until a request is sent again, None where it is given up."""
        if failure.final:
            return None
        self._trouble = failure
        asked = failure.wait or 0.0
        wait = asked + random.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(course.sends - 1, 30)))
        course.own += failure.own
        if failure.own:
            return wait if course.own < self._attempts and asked <= self._patience else None
        left = course.since + self._patience - time.monotonic()
        if left <= 0 or asked > left:
            return None
        if asked and failure.reason == "rate_limited":
            self._limit.hold(asked)
        return min(wait, left)

    async def _completed(self, request: Request, answer: chat.Answer, course: _Course) -> Completion:
        prompt, completion = answer.prompt_tokens, answer.completion_tokens
        counted = prompt is None or completion is None
        if prompt is None:
            prompt = await asyncio.to_thread(self._counter.count, request.prompt)
        if completion is None:
            completion = await asyncio.to_thread(self._counter.count, answer.text)
        if counted and not self._told:
            self._told = True
            _log.warning("%s reports no usage; tokens are counted by %s", self._server.base, self._counter.source)
        return Completion(
            answer.text,
            answer.finish_reason,
            self._model,
            prompt_tokens=prompt,
            cached_tokens=answer.cached_tokens,
            completion_tokens=completion,
            usage="counted" if counted else "reported",
            seconds=course.seconds,
            attempts=course.sends,
        )

    def _failed(self, failure: chat.Failure, course: _Course, more: str = "") -> Completion:
        return Completion(
            None,
            None,
            self._model,
            seconds=course.seconds,
            attempts=course.sends,
            error_reason=failure.reason,
            error_message=self._server.safe(failure.message)[: _LONGEST_MESSAGE - len(more)] + more,
        )


def _outcome(end: chat.Answer | chat.Failure) -> Outcome:
    if isinstance(end, chat.Answer) or end.final:  # a refusal is a sign of life, too
        return "ok"
    return "overload" if end.reason == "rate_limited" else "trouble"


def _check_numbers(least: float = 1, **numbers: float) -> None:
    for name, value in numbers.items():
        if not value >= least:
            raise RewriterError(
                f"engine 'openai': {name} must be {least} or more, found: {value}; correct rewrite.engine.{name}"
            )


def _checked(args: Mapping[str, Any]) -> dict[str, Any]:
    for name in _RESERVED:
        if name in args:
            raise RewriterError(f"engine 'openai': args must not have {name}, which the engine sets itself; remove it")
    try:
        json.dumps(dict(args), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RewriterError(f"engine 'openai': args cannot be written as JSON: {error}; correct rewrite.engine.args") from None
    return dict(args)
