"""Errors of servers whose HTTP status is not what they mean, as OpenRouter, OpenAI, Anthropic, Tavily and others send them."""

import json
from typing import Any

import pytest

RATE_LIMIT = {"message": "Rate limit exceeded: free-models-per-min.", "code": 429, "metadata": {"provider_name": "P"}}
NO_TEXT = {"role": "assistant", "content": None}
QUOTA = {"message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota"}
LOW_CREDIT = {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}
WAITED_FOR: dict[str, Any] = {
    "429 in a 200": {"error": RATE_LIMIT},
    "429 in a 200 with a choice": {"choices": [{"finish_reason": "stop", "message": NO_TEXT}], "error": RATE_LIMIT},
    "429 of a choice": {"choices": [{"finish_reason": "error", "message": NO_TEXT, "error": RATE_LIMIT}]},
    "a code in words": {"error": {"message": "slow down", "code": "rate_limit_exceeded"}},
    "overloaded": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "Brave's form": {"type": "ErrorResponse", "error": {"status": 429, "code": "RATE_LIMITED", "detail": "too many"}},
}
"""Errors that come with HTTP 200, and are sent again without using up an attempt."""
NO_ACCESS: dict[str, tuple[int, Any]] = {
    "401 in a 200": (200, {"error": {"code": 401, "message": "No auth credentials found"}}),
    "402 in a 200": (200, {"error": {"code": "402", "message": "Insufficient credits"}}),
    "OpenAI's quota": (429, {"error": QUOTA}),
    "a quota in a 200": (200, {"error": QUOTA}),
    "a provider's quota": (429, {"error": {"code": 429, "message": "Provider error", "metadata": {"raw": json.dumps(QUOTA)}}}),
    "Anthropic's credit": (400, {"type": "error", "error": LOW_CREDIT}),
    "Tavily's plan": (432, {"detail": {"error": "This request exceeds your plan's set usage limit."}}),
}
"""Status and content of what no request can get past: it ends the run at once, as 401 and 402 do."""
QUOTES: dict[str, Any] = {
    "in the message": {"error": {"message": 'the text "what is \\"insufficient_quota\\"" is too long', "code": "bad"}},
    "as the input": {"detail": [{"msg": "too long", "type": "too_long", "input": {"type": "insufficient_quota"}}]},
    "alone": {"error": {"message": "insufficient_quota", "code": 400, "param": "insufficient_quota"}},
}
"""Content of a 400 that quotes a query about an account without credit."""

quotes = pytest.mark.parametrize("content", [json.dumps(one).encode() for one in QUOTES.values()], ids=QUOTES)
waited_for = pytest.mark.parametrize("content", [json.dumps(one).encode() for one in WAITED_FOR.values()], ids=WAITED_FOR)
no_access = pytest.mark.parametrize(
    ("status", "content"), [(status, json.dumps(one).encode()) for status, one in NO_ACCESS.values()], ids=NO_ACCESS
)
