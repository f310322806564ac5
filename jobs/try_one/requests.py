"""The requests of a query that was tried: what was sent, what came back, and what it took."""

from __future__ import annotations

from typing import Any

from jobs.chain.completions import CompletionRecord
from jobs.chain.engines import Engines
from rewriters.engines import Request

_COSTS = ("model", "tier", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds", "requests")


class TracedEngines(Engines):
    """Answers requests as a run does, and notes each with its answer and its costs."""

    def __init__(self, trace: list[dict[str, Any]], *settings: Any) -> None:
        """Appends to `trace`; `settings` are those of `Engines`."""
        super().__init__(*settings)
        self._trace = trace

    def cost(self, request: Request, one: CompletionRecord) -> dict[str, Any]:
        """Returns the cost entry of a completion, and notes the request."""
        spent, completion = super().cost(request, one), one.completion
        self._trace.append(
            {
                "request": request.name, "prompt": request.prompt, "prompt_hash": request.prompt_hash,
                "schema": request.sent_schema, "decoding": dict(request.decoding), "sample": request.sample,
                "answer": completion.text, "finish_reason": completion.finish_reason, "error": completion.error_reason,
                "message": completion.error_message, "document": request.document,
                **{name: spent[name] for name in _COSTS}, "reused": bool(spent["reused"]),
            }
        )  # fmt: skip
        return spent
