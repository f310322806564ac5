"""Completions from a Chat Completions server: a hosted API, or `vllm serve` and its like; of plain text, from Completions.

Many requests are in flight at a time, over persistent connections; `aimd.py` limits how many. Failures due to the
server's state (429, 503, no connection) are retried within a patience; failures of the request itself (500, timeout, an
invalid response) use up one of its attempts. A request that still fails ends as an error in its completion. A failure
common to all requests, such as a wrong key, is raised.

`protocol.py` builds and parses messages and knows which of their fields servers refuse, `server.py` has the
connections, `token_count.py` counts what is not reported.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cluster.errors import RewriterError
from cluster.http import OF_ONE, Refusals, may_repeat
from cluster.outages import answered, failed, pause
from rewriters.engines import Completion, Request, SendGate
from rewriters.engines.event_loop import EventLoopThread
from rewriters.engines.openai.aimd import LONGEST_BACKOFF, AimdLimit, PatienceExceededError
from rewriters.engines.openai.protocol import RENAMED, ChatProtocol, ChatResponse, RequestFailure, refused_fields, sent_fields
from rewriters.engines.openai.server import ChatServer
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.engines.settings import ServerEngineSettings

_log = logging.getLogger(f"dmqr.{__name__}")

_PENDING_PER_PLACE = 4  # requests in memory: those that wait for a retry leave no place empty
_RESERVED_ARGS = {"messages", "model", "stream"}
_MAX_MESSAGE = 300  # characters of an error message


@dataclass
class _RequestState:
    tier: str | None  # that the latest answer was billed by
    first_sent: float = 0.0  # by `time.monotonic`: the patience begins there
    sends: int = 0
    attempts_used: int = 0
    latency: float | None = None  # of the last send
    omitted: set[str] = field(default_factory=set)  # what the server refused in this request (`refused_fields`)
    left_out: tuple[str, ...] = ()  # of the last send
    spent: Counter[str] = field(default_factory=Counter)  # tokens, also of answers that were no completions


class OpenaiEngine:
    """The engine of one server and one model."""

    kind = "openai"
    protocol = ChatProtocol()

    def __init__(self, settings: ServerEngineSettings) -> None:
        """Checks the settings; sends nothing. Raises RewriterError if a setting cannot work."""
        for name in _RESERVED_ARGS & settings.args.keys():
            line = f"engine {self.kind!r}: args must not have {name}, which the engine sets itself; remove it"
            raise RewriterError("engine-setting", line)
        self._settings, self._model, self._args = settings, settings.model, settings.args
        self._server = ChatServer(settings, self.protocol)
        self._service = f"LLM server {self._server.base}"
        self._patience = 60 * settings.patience_minutes
        self._counter, self._warned_of_usage = TokenCounter(settings.model), False
        self._omitted: frozenset[str] = frozenset()  # what this server refuses (`refused_fields`)
        self._accepted: frozenset[str] = frozenset()  # what it has taken at least once
        self._latest_failure = RequestFailure("unavailable", "the server does not answer")
        self._limit = AimdLimit(settings.max_in_flight, self._patience)
        self._refusals, self._probing = Refusals(), asyncio.Lock()
        self._lock = threading.Lock()
        self._closed = False
        self._event_loop: EventLoopThread | None = None

    def check(self) -> None:
        """Asks the server for its models, or for a completion if it does not list this one."""
        with closing(EventLoopThread(1)) as event_loop:
            event_loop.run(self._server.check(self._model, self._args))

    def start(self) -> dict[str, float]:
        """Opens the event loop and the HTTP session. Returns no times, since nothing is loaded."""
        with self._lock:
            if self._closed:
                raise RewriterError("worker-died", f"engine {self.kind!r} is closed; run the same command again")
            if self._event_loop is None:
                self._event_loop = EventLoopThread(_PENDING_PER_PLACE * self._settings.max_in_flight)
                self._event_loop.run(self._server.open())
        return {}

    def complete(self, requests: Sequence[Request], gate: SendGate | None = None) -> Iterator[tuple[Request, Completion]]:
        """Yields requests with their completions. Raises RewriterError if the server refuses the key, account or address."""
        self.start()
        assert self._event_loop is not None
        return self._event_loop.stream(requests, partial(self._complete_one, gate=gate), gate)

    def identity(self) -> dict[str, Any]:
        return {"kind": self.kind, "model": self._model, "args": self._args}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            event_loop, self._event_loop = self._event_loop, None
        if event_loop is not None:
            event_loop.run(self._server.close())
            event_loop.close()

    async def _complete_one(self, request: Request, gate: SendGate | None) -> Completion:
        state, protocol = _RequestState(self._settings.asked_tier), self.protocol
        path = protocol.text_path if request.as_text else protocol.path
        while True:
            try:
                async with self._limit.slot() as slot:
                    if gate is not None:
                        gate.sending(request)
                    omitted = self._omitted | state.omitted
                    body, state.left_out = protocol.request_body(self._model, request, self._args, omitted)
                    sent = time.monotonic()
                    state.sends, state.first_sent = state.sends + 1, state.first_sent or sent
                    result = await self._server.send(body, path)
                    state.latency = time.monotonic() - sent
                    if isinstance(result, ChatResponse) or result.final:  # a server that rejects a request works
                        slot.outcome = "ok"
                    else:
                        slot.outcome = "overload" if result.reason == "rate_limited" else "failure"
            except PatienceExceededError:
                suffix = f"; nothing else came for {self._patience / 60:g} minutes"
                return self._failed(self._latest_failure, state, suffix)
            if isinstance(result, ChatResponse):
                answered(self._service)
                self._refusals.answered()
                self._learn(state.omitted, sent_fields(body))
                return await self._completed(request, result, state)
            state.spent.update(result.usage)
            state.tier = result.tier or state.tier
            if result.details is not None and result.may_be_of_a_field:
                refused = refused_fields(result.details, body, self._args.keys())
                state.omitted |= refused
                if refused:
                    continue
            if result.is_fatal and not await self._refused_alone(result):
                raise self._server.fatal_error(result, path)
            delay = self._retry_delay(result, state)
            if delay is None:
                return self._failed(result, state)
            await asyncio.sleep(delay)

    async def _refused_alone(self, failure: RequestFailure) -> bool:
        """Returns True if the server refuses this request, and not all of them; where that is open, another one is sent."""
        if self._refusals.refused(failure.status):
            return True
        if failure.status not in OF_ONE:
            return False
        async with self._probing:
            if self._refusals.others_answered():  # another refused request has asked meanwhile
                return True
            body = self.protocol.probe_body(self._model, self._args, self._omitted)
            result = await self._server.send(body, self.protocol.path)
            if isinstance(result, RequestFailure):
                return not result.is_fatal
            self._refusals.answered()
            message = "%s refuses single requests (%s), and answers others: the queries of those fail"
            _log.warning(message, self._server.base, self._server.redact(failure.message))
        return True

    def _learn(self, omitted: Collection[str], sent: frozenset[str]) -> None:
        """Omits for all requests what helped this one, unless the server has taken it before."""
        if not self._accepted.issuperset(sent):
            self._accepted |= sent
        for name in sorted(set(omitted) - self._omitted - self._accepted):
            instead = "max_completion_tokens is sent instead" if name == RENAMED else "it is left out"
            _log.warning("%s does not take %s; from now on %s", self._server.base, name, instead)
            self._omitted |= {name}

    def _retry_delay(self, failure: RequestFailure, state: _RequestState) -> float | None:
        """Returns the seconds until a request is sent again, None if it is given up."""
        if failure.final:
            return None
        self._latest_failure = failure
        failed(self._service, self._server.redact(failure.message).replace(f" from {self._server.base}", ""), self._patience)
        asked = failure.retry_after or 0.0
        delay = asked + pause(state.sends, longest=LONGEST_BACKOFF, least=0)
        if failure.uses_attempt:
            state.attempts_used += 1
            return delay if may_repeat(state.attempts_used) and asked <= self._patience else None
        patience_left = state.first_sent + self._patience - time.monotonic()
        if patience_left <= 0 or asked > patience_left:
            return None
        if asked and failure.reason == "rate_limited":
            self._limit.hold(asked)
        return min(delay, patience_left)

    async def _completed(self, request: Request, response: ChatResponse, state: _RequestState) -> Completion:
        prompt = "\n\n".join(filter(None, (request.system, request.prompt)))
        texts = {"prompt_tokens": prompt, "completion_tokens": response.text}
        counted = {name: text for name, text in texts.items() if name not in response.usage}
        for name, text in counted.items():
            state.spent[name] += await asyncio.to_thread(self._counter.count, text)
        if counted and not self._warned_of_usage:
            self._warned_of_usage = True
            _log.warning("%s reports no usage; tokens are counted by %s", self._server.base, self._counter.source)
        state.spent.update(response.usage)
        state.tier = response.tier or self._settings.asked_tier  # and not that of an answer before
        usage, left_out = "counted" if counted else "reported", ", ".join(state.left_out) or None
        return self._completion(state, response.text, response.finish_reason, usage=usage, left_out=left_out)

    def _failed(self, failure: RequestFailure, state: _RequestState, suffix: str = "") -> Completion:
        message = self._server.redact(failure.message)[: _MAX_MESSAGE - len(suffix)] + suffix
        return self._completion(state, None, None, error_reason=failure.reason, error_message=message)

    def _completion(self, state: _RequestState, text: str | None, finish_reason: str | None, **more: Any) -> Completion:
        return Completion(
            text, finish_reason, self._model, attempts=state.sends, latency=state.latency,
            tier=state.tier, **{**state.spent, **more},
        )  # fmt: skip
