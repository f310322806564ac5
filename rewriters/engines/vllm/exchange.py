"""The parameters of a request to vLLM, and the meaning of its errors."""

from __future__ import annotations

from typing import Any

from cluster.errors import RewriterError
from rewriters.engines import Request
from rewriters.engines.schemas import without_keywords
from rewriters.engines.vllm.chat import Chat


class BrokenOffError(Exception):
    """vLLM ended an answer before its end."""


def sampling(request: Request, chat: Chat) -> Any:
    """Returns vLLM's parameters of a request."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    decoding = dict(request.decoding)
    decoding.pop("chat_template_kwargs", None)
    if not decoding.get("temperature"):
        decoding.pop("seed", None)  # greedy; a seed would only cost a generator per request
    # Harmony has channels around the answer, which the grammar of a schema knows nothing of.
    guided = request.schema is not None and not chat.is_harmony
    schema = StructuredOutputsParams(json=without_keywords(request.schema)) if guided else None
    # Only stop texts need the text while it grows; without them it is made once, at the end.
    return SamplingParams(
        **decoding,
        structured_outputs=schema,
        output_kind=RequestOutputKind.FINAL_ONLY,
        detokenize=bool(decoding.get("stop")),
        skip_special_tokens=not chat.keeps_special_tokens(request.marks),
        skip_clone=True,  # it is for this request alone, as those of vLLM's own server
    )


def failure_of(error: Exception) -> tuple[str, str, bool]:
    """Returns reason and message for what `generate` raised, and whether the engine is dead. Raises what is of no request."""
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    if isinstance(error, RewriterError):
        raise error
    message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if isinstance(error, EngineDeadError):
        return "engine_died", "the engine died while it worked on this request", True
    if isinstance(error, VLLMClientError | ValueError):
        return "bad_request", message, False
    return "broken_off" if isinstance(error, BrokenOffError) else "server_error", message, False
