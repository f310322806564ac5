"""LLM rerankers (plain, layerwise and lightweight) through FlagEmbedding's `compute_score`."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any, TextIO, cast

import numpy as np

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.batches import device_kind
from retrievers.flag_models import open_flag_reranker
from retrievers.models import resolved_dtype
from retrievers.rerankers.cross_encoder import LoadedReranker
from retrievers.settings import RerankSettings

# Tokens of a forward pass. FlagEmbedding keeps the logits of all positions over the whole vocabulary: for 512 tokens and
# Gemma's vocabulary of 256,000 a quarter of a gigabyte in half precision, so 32 pairs take 8 GB. If that does not
# fit, FlagEmbedding repeats the pass with three quarters of the batch until it fits.
_TOKENS = {"cpu": 4096, "cuda": 16_384}


def check_loads(settings: RerankSettings, architecture: str) -> None:
    """Refuses the architectures whose code in FlagEmbedding is written for transformers 4, which vLLM does not work with.

    Raises:
        RetrieverError: It is one of them, and its model may not bring code of its own.
    """
    if architecture in ("layerwise", "lightweight") and not settings.trust_remote_code:
        raise RetrieverError(
            "model-unfit",
            f"rerank: model {settings.model} is {architecture}, and FlagEmbedding has the code of those for transformers 4 "
            f"alone, found {importlib.metadata.version('transformers')}; name another, such as BAAI/bge-reranker-v2-gemma, or "
            "set rerank.trust_remote_code: true where the code beside its weights works",
        )


class LlmReranker(LoadedReranker):
    """An LLM that scores pairs by the logit of "Yes" after the prompt, or by the head of a layer."""

    def __init__(self, settings: RerankSettings, architecture: str, device: str = "cpu") -> None:
        """Loads the model; `architecture` is that of `checked_architecture`, and not "encoder".

        Raises:
            RetrieverError: The model cannot be loaded, the device does not exist, or it does not support the precision.
        """
        super().__init__(settings, device)
        dtype = resolved_dtype(settings.dtype, device)
        if dtype == ("float16" if device == "cpu" else "float32" if architecture == "layerwise" else None):
            raise RetrieverError(  # FlagEmbedding would silently use the other precision
                "model-unfit",
                f"rerank.dtype: FlagEmbedding computes no {dtype} with architecture {architecture} on {device}; take auto",
            )
        arguments: dict[str, Any] = {"max_length": settings.max_length, "prompt": settings.prompt}
        if settings.query_instruction is not None:
            arguments["query_instruction_for_rerank"] = settings.query_instruction
        if settings.passage_instruction is not None:
            arguments["passage_instruction_for_rerank"] = settings.passage_instruction
        if architecture in ("layerwise", "lightweight"):
            arguments["cutoff_layers"] = None if settings.cutoff_layer is None else [settings.cutoff_layer]
        if architecture == "lightweight":
            arguments |= {"compress_ratio": settings.compress_ratio, "compress_layers": list(settings.compress_layers)}
        self._opened = open_flag_reranker(settings.model, architecture, dtype, device, settings.trust_remote_code, **arguments)
        self._batch = max(1, _TOKENS[device_kind(device)] // settings.max_length)

    def _encoded(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return list(pairs)  # FlagEmbedding tokenises them itself

    def _forward(self, encoded: list[tuple[str, str]]) -> np.ndarray:
        try:
            with redirect_stderr(cast("TextIO", _WithoutBars(sys.stderr))):
                return np.array(self._opened.compute_score(encoded, batch_size=self._batch))
        except (IndexError, AttributeError) as e:  # of an empty batch: FlagEmbedding shrinks a failing batch down to it
            raise RetrieverError(
                "device",
                f"rerank: model {self._settings.model} scores not even one pair at a time on {self._device} "
                f"({type(e).__name__}: {one_line(e)}); lower rerank.max_length, or take another device",
            ) from e


class _WithoutBars:
    """A stream that drops progress bars; those of FlagEmbedding cannot be disabled."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._after_bar = False

    def write(self, text: str) -> int:
        """Writes a text, unless it is a progress bar or the end of its line."""
        bar = text.startswith("\r") or (self._after_bar and text == "\n")
        self._after_bar = text.startswith("\r")
        return len(text) if bar else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
