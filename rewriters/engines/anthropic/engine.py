"""Completions from Anthropic's Messages API: the engine of `openai/`, which speaks another protocol."""

from __future__ import annotations

from typing import ClassVar

from rewriters.engines.anthropic import protocol
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.openai.protocol import ChatProtocol


class AnthropicEngine(OpenaiEngine):
    """The engine of one model of Anthropic's; requests, failures and their retries are those of `OpenaiEngine`."""

    kind = "anthropic"
    protocol: ClassVar[ChatProtocol] = ChatProtocol(
        protocol.PATH, protocol.headers, protocol.request_body, protocol.parse_response
    )
