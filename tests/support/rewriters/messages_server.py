"""A server that speaks Anthropic's Messages API, with a cache of the marked parts of prompts."""

from collections.abc import Mapping
from typing import Any

from tests.support.rewriters.fake_server import Body, FakeServer


def message(text: str, usage: Body | None = None, stop_reason: str = "end_turn", thought: str = "") -> Body:
    """A good answer's JSON."""
    thinking = [{"type": "thinking", "thinking": thought, "signature": "x"}] if thought else []
    return {
        "type": "message",
        "role": "assistant",
        "model": "what-the-server-calls-itself",
        "content": [*thinking, {"type": "text", "text": text}],
        "stop_reason": stop_reason,
        "usage": usage or {"input_tokens": 5, "output_tokens": 3},
    }


class MessagesServer(FakeServer):
    """The server; words are its tokens."""

    path = "/v1/messages"
    text_path = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._cached: set[str] = set()

    def prompt(self, body: Body) -> str:
        """The prompt of a request, whose parts may be marked."""
        content = body["messages"][0]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    def good(self, text: str, body: Body) -> Body:
        """A good answer, with what the cache did."""
        content = body["messages"][0]["content"]
        marked = "" if isinstance(content, str) else "".join(part["text"] for part in content if part.get("cache_control"))
        known, size = marked in self._cached, len(marked.split())
        self._cached.add(marked)
        usage = {"input_tokens": len(self.prompt(body).split()) - size, "output_tokens": self._completion_tokens}
        cached = {"cache_read_input_tokens": size if known else 0, "cache_creation_input_tokens": 0 if known else size}
        return message(text, usage | cached)

    def stranger(self, headers: Mapping[str, str], key: str) -> bool:
        """Returns True if a request does not have the key, or says no version."""
        return headers.get("x-api-key") != key or headers.get("anthropic-version") != "2023-06-01"
