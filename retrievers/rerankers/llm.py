"""LLM rerankers as BGE's of Gemma, through FlagEmbedding's `compute_score`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr

import numpy as np

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.batches import device_kind
from retrievers.models import open_flag_llm, resolved_dtype
from retrievers.rerankers.cross_encoder import LoadedReranker
from retrievers.settings import RerankSettings

# Tokens of a forward pass. FlagEmbedding keeps the logits of all positions over the whole vocabulary: for 512 tokens and
# Gemma's vocabulary of 256,000 a quarter of a gigabyte in half precision, so 32 pairs take 8 GB. If that does not
# fit, FlagEmbedding repeats the pass with three quarters of the batch until it fits.
_TOKENS = {"cpu": 4096, "cuda": 16_384}


class LlmReranker(LoadedReranker):
    """An LLM that scores pairs by the logit of "Yes" after the prompt."""

    def __init__(self, settings: RerankSettings, device: str = "cpu") -> None:
        super().__init__(settings, device)
        dtype = resolved_dtype(settings.dtype, device)
        if dtype == "float16" and device == "cpu":  # FlagEmbedding would silently use float32
            raise RetrieverError("model", f"rerank.dtype: FlagEmbedding computes no {dtype} with an LLM on {device}; take auto")
        self._opened = open_flag_llm(
            settings.model, dtype, device, settings.trust_remote_code,
            max_length=settings.max_length, prompt=settings.prompt,
        )  # fmt: skip
        self._batch = max(1, _TOKENS[device_kind(device)] // settings.max_length)

    def _encoded(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return list(pairs)  # FlagEmbedding tokenises them itself

    def _forward(self, encoded: list[tuple[str, str]]) -> np.ndarray:
        try:
            with redirect_stderr(io.StringIO()):  # progress bars, which cannot be disabled
                return np.array(self._opened.compute_score(encoded, batch_size=self._batch))
        except (IndexError, AttributeError) as e:  # of an empty batch: FlagEmbedding shrinks a failing batch down to it
            words = f"model {self._settings.model} scores not even one pair at a time on {self._device}"
            remedy = f"({type(e).__name__}: {one_line(e)}); lower rerank.max_length, or take another device"
            raise RetrieverError("cluster-small", f"rerank: {words} {remedy}") from e
