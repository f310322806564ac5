"""The protocols Chat Completions and Completions: builds request bodies and parses responses, without any network.

A prompt that the model is to go on with, in place of answering it, goes to Completions; all else to Chat Completions.

Models differ in the fields that they take beside the messages: reasoning models of OpenAI take no `temperature` but 1 and no
`max_tokens`; Claude takes `temperature` or `top_p`. A field that only guides the answer is left out for a server that refuses
it, each for its own error; `max_tokens` is then sent under its newer name.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import Any, ClassVar, NamedTuple

from cluster.cause import one_line
from cluster.http import FATAL, parsed_json, retry_after
from rewriters.engines import Request

RENAMED = "max_tokens"  # sent as max_completion_tokens if refused, so nothing is lost
# The fields that a request can go without, each with the words by which errors name it.
_WORDS = {
    "response_format": re.compile(r"response_format|json_schema|\bschema\b|structured|guided|grammar", re.I),
    "output_config": re.compile(r"output_config|output[ _]format|json_schema|\bschema\b|structured", re.I),  # of Claude
    "chat_template_kwargs": re.compile(r"chat_template", re.I),
    "skip_special_tokens": re.compile(r"skip_special_tokens", re.I),
    "temperature": re.compile(r"\btemperature\b", re.I),
    "top_p": re.compile(r"\btop_p\b", re.I),
    "seed": re.compile(r"\bseed\b", re.I),
    "stop": re.compile(r"\bstop\b", re.I),
}
_BY_VALUE = ("temperature", "top_p")  # another value may be taken
_NEWER_NAME = re.compile(r"max_completion_tokens", re.I)
# Errors of the prompt, which name fields only in passing ("max_tokens is too large: the context length is ...").
_CODES_OF_PROMPT = frozenset(
    {"context_length_exceeded", "string_above_max_length", "content_filter", "content_policy_violation"}
)
_OF_THE_PROMPT = re.compile(
    r"context[ _](?:length|window|size)|maximum (?:model|input|prompt)? ?length|max_model_len|prompt is too long"
    r"|content[ _](?:filter|management|policy)|moderation|flagged",
    re.I,
)
FILTERED = re.compile(r"content_filter|content_policy_violation|responsible_?ai_?policy_?violation", re.I)
"""Codes of errors by which a server's filter refuses a prompt."""


class ErrorDetails(NamedTuple):
    """The content of an error response."""

    message: str  # in words
    named: tuple[str, ...] | None = None  # the fields that it lists as refused; None: no such list
    code: str = ""  # its name for the error; "": none


def error_details(content: bytes) -> ErrorDetails:
    """Returns the content of an error response, JSON as of `details_of`."""
    try:
        return details_of(parsed_json(content[:100_000]))
    except (ValueError, RecursionError):
        return ErrorDetails(content[:2_000].decode("utf-8", "replace"))


def refused_fields(error: ErrorDetails, body: Mapping[str, Any], fixed: Collection[str]) -> frozenset[str]:
    """Returns the fields of a request that an error refuses: of several in a sentence the first.

    `fixed` are those that the config sets, which are sent whatever comes.
    """
    message, named, code = error
    open_to = body.keys() - set(fixed)
    searched = message if named is None else " ".join(named)
    at = {name: match.start() for name, pattern in _WORDS.items() if name in open_to and (match := pattern.search(searched))}
    if code in _CODES_OF_PROMPT or (_OF_THE_PROMPT.search(message) and (named is None or not at)):
        return frozenset()
    if RENAMED in open_to and _NEWER_NAME.search(message):
        return frozenset({RENAMED})
    if named is None and at:
        first = min(at, key=lambda name: at[name])
        # "`temperature` and `top_p` cannot both be specified": the rarer one goes.
        at = {"top_p" if first == "temperature" and "top_p" in at else first: 0}
    return frozenset(_key(name, body) for name in at)


def sent_fields(body: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names in which `refused_fields` speaks of what a request has."""
    return frozenset(_key(name, body) for name in (*_WORDS, RENAMED) if name in body)


Body = tuple[dict[str, Any], tuple[str, ...]]
"""The fields of a request, and what was left out of it, sorted."""


def with_args(fields: Mapping[str, Any], args: Mapping[str, Any], omitted: Collection[str]) -> Body:
    """Returns the body of a request.

    Those of the config (`args`) take the place of others and are always sent, but for null. Of the others what a server refuses
    is left out.
    """
    own = {name: value for name, value in fields.items() if name not in args}
    refused = sent_fields(own).intersection(omitted)
    for name in refused - {RENAMED}:
        del own[name.split()[0]]
    if RENAMED in refused:
        own["max_completion_tokens"] = own.pop(RENAMED)
    return own | {name: value for name, value in args.items() if value is not None}, tuple(sorted(refused - {RENAMED}))


def _key(name: str, body: Mapping[str, Any]) -> str:
    return f"{name} {body[name]}" if name in _BY_VALUE else name


def details_of(body: Any) -> ErrorDetails:
    """Returns the details of an error, whatever its form: OpenAI's, Anthropic's, Mistral's, FastAPI's, or text.

    OpenRouter wraps the error of the provider, as a text, in one of its own.
    """
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict) and isinstance(error.get("message"), dict):  # Mistral
        error = error["message"]
    if not isinstance(error, dict):
        return ErrorDetails(str(error)[:2_000])
    detail, code = error.get("detail"), str(error.get("code") or "")
    if isinstance(detail, list) and detail and all(isinstance(one, dict) for one in detail):
        places = [list(map(str, one["loc"])) if isinstance(one.get("loc"), list) else [] for one in detail]
        message = "; ".join(f"{'.'.join(place)}: {one.get('msg', '')}" for place, one in zip(places, detail, strict=True))
        return ErrorDetails(message, tuple(name for place in places for name in place), code)
    message = str(next((error[key] for key in ("message", "detail", "error") if error.get(key)), error))[:2_000]
    message = re.split(r"['\"]input['\"]\s*:", message)[0]  # some servers quote the whole request after it
    wrapped = error["metadata"].get("raw") if isinstance(error.get("metadata"), dict) else None
    if isinstance(wrapped, str):
        inner = error_details(wrapped.encode("utf-8", "replace"))
        return inner._replace(message=f"{message}: {inner.message}")
    param = error.get("param")
    return ErrorDetails(message, (param,) if isinstance(param, str) and param else None, code)


# Status of a response -> the reason, and whether it is of the request: others are due to the server's state.
_FAILURES: dict[int, tuple[str, bool]] = {
    **dict.fromkeys((409, 500, *range(505, 600)), ("server_error", True)),
    **dict.fromkeys((502, 503, 504, 529, 520, 521, 522, 523), ("unavailable", False)),
    **dict.fromkeys((408, 524), ("timeout", True)),
    429: ("rate_limited", False),
}
# How servers say that an answer did not end by itself (all else: "stop"): OpenAI, OpenRouter, Mistral, Gemini, Claude,
# DeepSeek, GLM, vLLM. None: the server broke it off, and the request is sent again.
_FINISH_REASONS: dict[str, str | None] = {
    **dict.fromkeys(("length", "max_tokens", "model_length", "repetition"), "length"),
    **dict.fromkeys(
        ("content_filter", "safety", "recitation", "prohibited_content", "blocklist", "spii", "sensitive"), "content_filter"
    ),
    "refusal": "refusal",
    **dict.fromkeys(("error", "abort", "aborted", "network_error", "insufficient_system_resource")),
}
_DECODING = ("temperature", "top_p", "max_tokens", "seed")
_MAX_TOKEN_COUNT = 2**31
_TIER = re.compile(r"[a-z][a-z0-9_-]{0,39}")  # it becomes a part of names


Usage = Mapping[str, int]
"""Field of `Completion` -> the tokens that a server reports; a count that is missing or invalid is left out."""


@dataclass(frozen=True)
class ChatResponse:
    """A completion as the server sent it; finish_reason and tier as in `Completion`."""

    text: str
    finish_reason: str
    usage: Usage
    tier: str | None = None


@dataclass(frozen=True)
class RequestFailure:
    """Reason why one send of a request brought no completion."""

    reason: str  # the error's name in the tables
    message: str  # the server's or the system's words
    status: int = 0  # of the response; 0: none came
    details: ErrorDetails | None = None  # what the response says; None: its body did not come
    uses_attempt: bool = True  # False: due to the server's state, and retried within the patience
    final: bool = False  # it must not be retried
    retry_after: float | None = None  # seconds that the server asked to wait
    usage: Usage = field(default_factory=dict)  # the tokens that the server reports of it all the same
    tier: str | None = None  # that these are billed by, as in `Completion`

    @property
    def may_be_of_a_field(self) -> bool:
        """Returns True if the server may refuse one field of the request, so that another request without it may succeed."""
        return self.details is not None and self.status in (400, 404, 422, 501)

    @property
    def is_fatal(self) -> bool:
        """Returns True if no request can succeed: the key, the account or the address is wrong."""
        return self.status in FATAL or 300 <= self.status < 400


class ChatProtocol:
    """OpenAI's protocol; the other ones say where they differ."""

    path: ClassVar[str] = "/chat/completions"  # of messages, behind the base URL
    text_path: ClassVar[str] = "/completions"  # of a text that is no message

    def headers(self, key: str | None) -> dict[str, str]:
        """Returns the headers of a request beside its type."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def request_body(self, model: str, request: Request, args: Mapping[str, Any], omitted: Collection[str]) -> Body:
        """Returns the body of a request.

        `args` are more fields, which override the others; null: the field is not sent. `omitted` is what the server refuses, in
        the names of `refused_fields`.
        """
        decoding = request.decoding
        system = [{"role": "system", "content": request.system}] if request.system else []
        messages = [*system, {"role": "user", "content": request.prompt}]
        fields: dict[str, Any] = {"model": model}
        fields |= {"prompt": request.prompt} if request.as_text else {"messages": messages}
        fields |= sampling(decoding, _DECODING)
        more = ("stop",) if request.as_text else ("stop", "chat_template_kwargs")
        fields |= {name: decoding[name] for name in more if decoding.get(name)}
        if request.marks:  # else servers leave special tokens out of the text
            fields["skip_special_tokens"] = False
        if request.schema:
            # OpenAI takes names of letters, digits, _ and -, at most 64.
            name = re.sub(r"[^a-zA-Z0-9_-]", "_", request.base)[:64] or "answer"
            schema = {"name": name, "schema": request.sent_schema, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        return with_args(fields, args, omitted)

    def probe_body(self, model: str, args: Mapping[str, Any], omitted: Collection[str]) -> dict[str, Any]:
        """Returns a request to which nobody can object: it shows whether a server refuses all of them."""
        probe = Request("", "", "probe", "Say yes.", "", decoding={"max_tokens": 16})
        return self.request_body(model, probe, args, omitted)[0]

    def parse_response(self, status: int, headers: Mapping[str, str], content: bytes) -> ChatResponse | RequestFailure:
        """Returns the completion in an HTTP response, or why there is none."""
        if not 200 <= status < 300:
            return _failure(status, headers, content)
        body: Any = None
        try:
            body = _json_body(content)
            return self.completion(body)
        except ValueError as problem:
            details, reported = error_details(content), body if isinstance(body, dict) else {}
            is_broken = isinstance(problem, BrokenAnswerError)
            said = one_line(details.message, 200) or "nothing"
            message = str(problem) if is_broken else f"HTTP {status}, but {problem}: {said}"
            reason = "broken_off" if is_broken else "bad_answer"
            return RequestFailure(reason, message, status, details, usage=self.usage(reported), tier=_tier(reported))

    def completion(self, body: Any) -> ChatResponse:
        """Returns the completion in the JSON of a response. Raises ValueError with the problem in words."""
        if not isinstance(body, dict):
            raise ValueError("the body is not a completion")
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices:
            raise ValueError("it has no choices")
        choice = choices[0] if isinstance(choices[0], dict) else {}
        message = choice.get("message")
        if message is None and isinstance(choice.get("text"), str):  # of Completions
            message = {"content": choice["text"]}
        if not isinstance(message, dict):
            raise ValueError("its choice has no message")
        ended = choice.get("finish_reason")
        finish_reason = _FINISH_REASONS.get(ended.casefold(), "stop") if isinstance(ended, str) else "stop"
        if finish_reason is None:
            why = one_line(details_of(choice["error"]).message, 200) if choice.get("error") else "nothing more"
            raise BrokenAnswerError(f"the server broke its answer off (finish_reason {str(ended)[:40]}): {why}")
        text, refusal = _text(message.get("content")), message.get("refusal")
        if body.get("error") and not text.strip():
            raise ValueError("it holds an error")
        if isinstance(refusal, str) and refusal.strip() and not text.strip():
            text, finish_reason = refusal, "refusal"
        return ChatResponse(text, finish_reason, self.usage(body), _tier(body))

    def usage(self, body: Mapping[str, Any]) -> Usage:
        """Returns the tokens that the JSON of a response reports."""
        usage = body.get("usage")
        counts = token_counts(usage, prompt_tokens="prompt_tokens", completion_tokens="completion_tokens")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        cached = token_counts(details, cached_tokens="cached_tokens")
        return counts | {name: min(count, counts.get("prompt_tokens", 0)) for name, count in cached.items()}


class BrokenAnswerError(ValueError):
    """The server ended an answer before its end."""


def sampling(decoding: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Returns the values of a decoding that are sent; not top_p at 1, its default, which some servers take from nobody."""
    known = {name: decoding[name] for name in names if decoding.get(name) is not None}
    return {name: value for name, value in known.items() if (name, value) != ("top_p", 1)}


def token_counts(usage: Any, **names: str) -> dict[str, int]:
    """Returns field of `Completion` -> the count that is reported under a name; what is missing or invalid is left out."""
    counts = {field: usage.get(name) for field, name in names.items()} if isinstance(usage, dict) else {}
    return {field: count for field, count in counts.items() if type(count) is int and 0 <= count < _MAX_TOKEN_COUNT}


def _failure(status: int, headers: Mapping[str, str], content: bytes) -> RequestFailure:
    details = error_details(content)
    message = f"HTTP {status}: {one_line(details.message, 200) or responses.get(status, 'nothing more')}"
    if status not in _FAILURES:
        reason = "content_filter" if FILTERED.fullmatch(details.code) else "bad_request"
        return RequestFailure(reason, message, status, details, final=True)
    reason, uses_attempt = _FAILURES[status]
    return RequestFailure(reason, message, status, details, uses_attempt, retry_after=retry_after(headers))


def _json_body(content: bytes) -> Any:
    """Returns the parsed JSON. Raises ValueError with the problem in words."""
    try:
        return parsed_json(content)
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None


def _tier(body: Mapping[str, Any]) -> str | None:
    """Returns the tier that a response names; None where it names none, or repeats that the server was to choose."""
    name = str(body.get("service_tier") or "").casefold()
    if not _TIER.fullmatch(name) or name == "auto":
        return None
    return "standard" if name == "default" else name


def _text(content: object) -> str:
    """Returns the text of a message: its content is a string, null, or a list of parts, of which those of text count."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):  # others are reasoning
        parts = [part for part in content if isinstance(part, dict) and part.get("type", "text") in ("text", "output_text")]
        return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    raise ValueError("its message is not text")
