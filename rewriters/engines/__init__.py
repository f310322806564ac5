"""What answers requests: one protocol for every engine, and the door from settings to one.

    vllm.py       vLLM inside the worker
    openai.py     a server with OpenAI's Chat Completions
    recorded.py   completions from a file

An engine takes requests and yields completions with what they used. What goes wrong with one request is data of its
completion; what goes wrong with the engine itself is raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rewriters.errors import RewriterError, unknown_name


@dataclass(frozen=True)
class Request:
    """One call for one query.

    name: "dmqr" for the joint call, else the strategy's name. prompt: the rendered text. prompt_hash: of the
    template, 16 hex digits. schema: the JSON schema that the answer should follow, or None for plain text.
    """

    query_id: str
    query: str
    name: str
    prompt: str
    prompt_hash: str
    schema: dict[str, Any] | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Completion:
    """What came of a request. Either `text` (valid Unicode) or `error_reason` is there.

    finish_reason: "stop", or "length" where the token limit cut the text. cached_tokens: those of prompt_tokens that
    a prefix cache had. usage: who says so, "reported" by the engine or "counted" here with a tokenizer (None: nobody).
    seconds: in flight, over all attempts; those of requests that run together overlap. attempts: how often it was sent.
    """

    text: str | None
    finish_reason: str | None
    model: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    usage: str | None = None
    seconds: float = 0.0
    attempts: int = 1
    error_reason: str | None = None
    error_message: str | None = None


class Engine(Protocol):
    """One engine of one worker. It is opened with its settings; nothing heavy happens before `start`.

    check: RewriterError for what would make all work vain (no server, no such model); a job asks before it begins.
    start: makes it ready, seconds by what they were spent on (load, warm_up); a second call does nothing.
    complete: yields every request once with its completion, in the order in which they come; it raises only what ends
    the whole engine. Several threads may call it at a time.
    identity: JSON-able, what decides which text comes out. close: gives everything back; a second call does nothing.
    """

    kind: str

    def check(self) -> None: ...

    def start(self) -> dict[str, float]: ...

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]: ...

    def identity(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


def open_engine(settings: Mapping[str, Any]) -> Engine:
    """The engine that `settings` describe: `kind`, and that engine's own keys.

    Raises RewriterError for an unknown kind or key, and for what the engine cannot be opened with.
    """
    kind = settings.get("kind")
    if kind not in _ENGINES:
        raise unknown_name("engine kind", kind, _ENGINES)
    engine = _ENGINES[kind]()
    known = inspect.signature(engine).parameters
    given = {key: value for key, value in settings.items() if key != "kind"}
    for unknown in given.keys() - known.keys():
        raise unknown_name(f"key of engine {kind!r}", unknown, known)
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and not given.get(name):
            raise RewriterError(f"engine {kind!r} needs {name}; set rewrite.engine.{name}")
    return engine(**given)


def _vllm() -> Callable[..., Engine]:
    from rewriters.engines.vllm import VllmEngine

    return VllmEngine


def _openai() -> Callable[..., Engine]:
    from rewriters.engines.openai import OpenaiEngine

    return OpenaiEngine


def _recorded() -> Callable[..., Engine]:
    from rewriters.engines.recorded import RecordedEngine

    return RecordedEngine


_ENGINES = {"vllm": _vllm, "openai": _openai, "recorded": _recorded}  # each imports its libraries only when it is asked for
