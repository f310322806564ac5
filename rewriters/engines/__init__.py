"""The protocol of all engines, and `open_engine`, which makes one from settings.

    vllm/         vLLM inside the worker
    openai/       a server with OpenAI's Chat Completions
    anthropic.py  Anthropic's Messages API
    recorded.py   completions from a file

An engine takes requests and yields completions with their usage. The failure of one request is data of its completion;
the failure of the engine itself is raised.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster.errors import RewriterError
from cluster.plugins import module_beside, own_errors
from rewriters.engines.settings import EngineSettings


@dataclass(frozen=True)
class Request:
    """One call for one query."""

    query_id: str
    query: str
    name: str  # "dmqr" for the joint call, else the name of the strategy or step
    prompt: str  # the rendered text
    prompt_hash: str  # of the templates of prompt and system message, 16 hex digits
    schema: dict[str, Any] | None = None  # the JSON schema that the answer should follow, or None for plain text
    decoding: Mapping[str, Any] = field(default_factory=dict)
    recorded_as: str = ""  # its name in recordings, without parameters; "": the name
    sample: int = 0  # from 0, of several answers to one prompt
    engine: str = ""  # the strategy whose own engine answers it; "": the common one
    variables: str = ""  # the hash of the values of other variables than the query and its context; "": there are none
    shared: int = 0  # characters that the prompt begins with, as do those of other queries
    system: str = ""  # the rendered system message, the same for all queries; "": none
    as_text: bool = False  # whether the model continues the raw prompt, in place of answering it as a message
    marks: tuple[str, ...] = ()  # texts that stay in the answer though they be special tokens
    document: str | None = None  # doc_id of the document that it is about; of several with one text the first

    @property
    def base(self) -> str:
        """Returns its name without parameters, by which recordings and keys know it."""
        return self.recorded_as or self.name

    @property
    def sent_schema(self) -> dict[str, Any] | None:
        """Returns the schema without the lengths of texts, which the reader checks.

        A grammar that counts characters costs more than the model: the joint schema with them takes xgrammar 10 s to compile
        and 0.77 ms a token, without 0.03 s and 0.05 ms, and bare vLLM with a model of 8B on an H200 answers 62 joint requests a
        second in place of 16. OpenAI's own servers refuse them.
        """
        if self.schema is None:
            return None
        properties = {
            name: {word: part for word, part in value.items() if word != "maxLength"}
            for name, value in self.schema["properties"].items()
        }
        return self.schema | {"properties": properties}

    @property
    def form(self) -> dict[str, Any]:
        """Returns the identity beside prompt, decoding and schema; empty of messages whose answers have no marks."""
        return ({"as_text": True} if self.as_text else {}) | ({"marks": list(self.marks)} if self.marks else {})


@dataclass(frozen=True)
class Completion:
    """The outcome of a request: a text (valid Unicode) or the reason of an error."""

    text: str | None
    finish_reason: str | None  # stop, length (the token limit cut it), content_filter, or refusal: the server says it is one
    model: str
    prompt_tokens: int = 0
    cached_tokens: int = 0  # those of prompt_tokens that a prefix cache had
    completion_tokens: int = 0
    usage: str | None = None  # "reported" by the engine, or "counted" here with a tokenizer; None: nobody says
    seconds: float = 0.0  # of the busy time of its worker, as the job shares it out; engines leave it
    attempts: int = 1  # how often it was sent
    error_reason: str | None = None
    error_message: str | None = None
    latency: float | None = None  # seconds from the last send to its end; None: nothing was sent
    left_out: str | None = None  # what it was sent without, since the server does not take it, between commas
    cache_write_tokens: int = 0  # those that were written to a prefix cache, where the server says so
    tier: str | None = None  # of prices: the one that the server reports ("standard": its default), else the one asked for


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of an object with exactly these properties."""
    return {"type": "object", "properties": dict(properties), "required": list(properties), "additionalProperties": False}


class SendGate(Protocol):
    """Decides which requests are sent, and hears of each send; called on the engine's event loop."""

    async def admit(self, request: Request) -> bool:
        """Returns True if the request may be sent; waits as long as that is not known.

        An engine asks once for each request, and before it takes one of its places in flight: the answer may have to wait
        for requests that wait for a place.
        """
        ...

    def sending(self, request: Request) -> None:
        """Hears that the request is sent now; called before each send."""
        ...


class Engine(Protocol):
    """One engine of one worker; nothing expensive happens before `start`."""

    kind: str

    def check(self) -> None:
        """Raises RewriterError if no request can succeed (no server, no such model); a job calls it first."""

    def start(self) -> dict[str, float]:
        """Makes the engine ready. Returns the seconds of each step (load, warm_up); a second call does nothing."""

    def complete(self, requests: Sequence[Request], gate: SendGate | None = None) -> Iterator[tuple[Request, Completion]]:
        """Yields every request once with its completion, in the order of completion, but for those that the gate refuses.

        Raises only failures of the whole engine. Several threads may call it at a time.
        """

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide the text, as JSON values."""

    def close(self) -> None:
        """Releases everything; a second call does nothing."""


def open_engine(settings: EngineSettings) -> Engine:
    """Returns the engine of these settings, not started, its libraries not imported; RewriterError if a value cannot work."""
    module, _, name = getattr(settings, "opener", "").partition(":")
    loaded = module_beside(type(settings), module)
    if not hasattr(loaded, name):
        wrong = f"has no class {name}" if name else f"{type(settings).__name__} names no engine"
        remedy = 'give it `opener: ClassVar[str] = ":Engine"`, with the name of the class of the engine'
        raise RewriterError("plugin", f"{loaded.__file__}: {wrong}; {remedy}")
    with errors_of_engine(settings, "__init__"):
        engine: Engine = getattr(loaded, name)(settings)
    return engine


def errors_of_engine(settings: EngineSettings, method: str) -> AbstractContextManager[None]:
    """Says in one line what a method of a plug-in's engine raises."""
    return own_errors(type(settings), f"{settings.opener.rpartition(':')[2]}.{method} failed", RewriterError)
