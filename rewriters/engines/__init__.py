"""What answers requests: one protocol for every engine, and the door from settings to one.

    recorded.py   completions from a file

An engine takes requests and yields completions with what they used. What goes wrong with one request is data of its
completion; what goes wrong with the engine itself is raised.
"""

from __future__ import annotations

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
    a prefix cache had. seconds: the engine's busy time for this request. attempts: how often it was sent.
    """

    text: str | None
    finish_reason: str | None
    model: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1
    error_reason: str | None = None
    error_message: str | None = None


class Engine(Protocol):
    """One engine, opened once per worker.

    complete: yields every request once with its completion, in the order in which they come; it raises only what ends
    the whole engine. identity: JSON-able, what decides which text comes out. close: gives everything back; a second
    call does nothing.
    """

    kind: str

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]: ...

    def identity(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


def open_engine(settings: Mapping[str, Any]) -> Engine:
    """The engine that `settings` describe: `kind`, and that engine's own keys.

    Raises RewriterError for an unknown kind or key, and for what the engine cannot be opened with.
    """
    kind = settings.get("kind")
    if kind not in _OPENERS:
        raise unknown_name("engine kind", kind, _OPENERS)
    return _OPENERS[kind]({key: value for key, value in settings.items() if key != "kind"})


def _open_recorded(settings: Mapping[str, Any]) -> Engine:
    from rewriters.engines.recorded import RecordedEngine

    allowed = {"path"}
    for unknown in settings.keys() - allowed:
        raise unknown_name("key of engine 'recorded'", unknown, allowed)
    if not settings.get("path"):
        raise RewriterError("engine 'recorded' needs the path of its file, such as path: recorded/completions.jsonl")
    return RecordedEngine(settings["path"])


_OPENERS: dict[str, Callable[[Mapping[str, Any]], Engine]] = {"recorded": _open_recorded}
