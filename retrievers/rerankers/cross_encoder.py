"""Cross-encoders: checks of the settings before the model is loaded, the reranker with an encoder, and that of an LLM."""

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.batches import CHUNK, PAIR_TOKENS, device_kind, in_order, made_ahead
from retrievers.encoders.forward import Encoded, open_passes
from retrievers.encoders.recipe import is_causal
from retrievers.models import (
    description,
    max_positions,
    model_identity,
    open_flag_llm,
    open_transformer,
    read_json,
    resolved_dtype,
)
from retrievers.ranking import distinct
from retrievers.retriever import error_context
from retrievers.settings import RerankSettings

# The score of a pair changes by up to 6e-6 with its batch (CPU, float32, MiniLM). Rounding removes nearly all of it, so that
# two runs of one job give equal rows and equal pairs tie. On a GPU in half precision the differences are larger; compare such
# scores with a tolerance.
_DECIMALS = 4
_FINITE_IN = {
    "float16": "set rerank.dtype to bfloat16 or float32",
    "bfloat16": "set rerank.dtype to float32, or name another",
    "float32": "name another",
}
_IDENTITY_KEYS = ("dtype", "prompt", "trust_remote_code")  # settings that determine the scores, apart from model and length


def non_default_settings(settings: RerankSettings) -> dict[str, Any]:
    """Returns the settings that determine scores and differ from their defaults, without model and length."""
    values = {key: getattr(settings, key) for key in _IDENTITY_KEYS}
    return {key: value for key, value in values.items() if value != RerankSettings.model_fields[key].default}


def checked_architecture(settings: RerankSettings) -> str:
    """Returns encoder, llm or qwen3, by the model's config.json alone, after a check of the settings."""
    with error_context("rerank.model"):
        config = read_json(description(settings.model) / "config.json")
    architecture = _architecture(settings.model, config)
    if settings.prompt is not None and architecture == "encoder":
        problem = f"rerank.prompt is a key of language models, and {settings.model} is an encoder"
        raise RetrieverError("model", f"{problem}; remove it")
    positions = max_positions(config)
    if not 16 <= settings.max_length <= positions:
        problem = f"max_length {settings.max_length} does not fit {settings.model}"
        raise RetrieverError("model", f"rerank: {problem}; give 16 to {positions}")
    classifies = any(name.endswith("ForSequenceClassification") for name in config.get("architectures") or [])
    if architecture == "encoder" or (architecture == "qwen3" and classifies):
        labels = len(config.get("id2label") or range(config.get("num_labels") or 2))  # as transformers reads it
        if labels != 1:
            problem = f"rerank: model {settings.model} has {labels} labels, a reranker has 1"
            raise RetrieverError("model", f"{problem}; name another")
    return architecture


def _architecture(model: str, config: Mapping[str, Any]) -> str:
    """Returns the architecture by the model's files; FlagEmbedding goes by the model's name, which a folder may lack.

    A language model reranks by the question that it was trained on. Where nothing says which that is, none is guessed.
    """
    names = [str(name) for name in config.get("architectures") or []]
    classifies = any(name.endswith("ForSequenceClassification") for name in names)
    if not classifies and not any(name.endswith("ForCausalLM") for name in names):
        what = f"its architecture is {names[0]}" if names else "its config.json names no architecture"
        raise RetrieverError("model", f"rerank: model {model} is no cross-encoder: {what}; name another")
    if is_qwen3_reranker(model, config):
        return "qwen3"
    if classifies and not is_causal(config):
        return "encoder"
    if not classifies and config.get("model_type") == "gemma":  # bge-reranker-v2-gemma
        return "llm"
    problem = f"is a language model ({names[0]}), and its files do not say with what question it was trained to rerank"
    remedy = "name another, or score with a class of your own (docs/python.md)"
    raise RetrieverError("model", f"rerank: model {model} {problem}; {remedy}")


def is_qwen3_reranker(model: str, config: Mapping[str, Any]) -> bool:
    """Returns True if a model's name or files say that it is a Qwen3-Reranker, and not another model of that architecture."""
    if config.get("model_type") != "qwen3":
        return False
    names = (Path(model.partition("@")[0]).name, str(config.get("_name_or_path") or ""))
    if config.get("is_original_qwen3_reranker") or any("qwen3-reranker" in name.lower() for name in names):
        return True
    folder = description(model)
    file = folder / "chat_template.jinja"
    template = file.read_text(encoding="utf-8") if file.is_file() else ""
    template = template or str(read_json(folder / "tokenizer_config.json").get("chat_template") or "")
    return "<Instruct>" in template and "<Document>" in template


def cross_encoder_identity(settings: RerankSettings) -> dict[str, Any]:
    """Returns the identity of the scores: weights, length, precision and the settings that differ from their defaults."""
    with error_context("rerank.model"):
        weights = model_identity(settings.model, code=settings.trust_remote_code)
    fixed = {"model": weights, "max_length": settings.max_length, "dtype": resolved_dtype(settings.dtype, "cpu")}
    return {"kind": "cross_encoder", **non_default_settings(settings), **fixed}


def rounded_scores(scores: np.ndarray) -> np.ndarray:
    """Returns scores rounded so that they do not depend on their batch; 0.0 instead of -0.0."""
    result: np.ndarray = np.round(scores, _DECIMALS) + 0.0
    return result


class LoadedReranker:
    """A reranker whose model is loaded here; a class for each way of putting a pair together."""

    def __init__(self, settings: RerankSettings, device: str) -> None:
        """Keeps the settings, as `checked_architecture` accepts them, and the device, "cpu" or "cuda:0"."""
        self._settings, self._device = settings, device
        self._dtype = resolved_dtype(settings.dtype, device)

    def _open(self, kind: str) -> None:
        """Loads the model by a class of transformers."""
        settings = self._settings
        self._opened = open_transformer(
            f"rerank: model {settings.model}", settings.model, kind, self._dtype, self._device, settings.trust_remote_code
        )
        self._network, self._tokenizer = self._opened.model, self._opened.tokenizer

    def _ids(self, texts: Sequence[str], limit: int | None = None) -> list[list[int]]:
        """Returns the tokens of each text, the first `limit` at most."""
        encoded = self._tokenizer(
            list(texts), add_special_tokens=False, truncation=limit is not None, max_length=limit, return_attention_mask=False
        )
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """Returns the rounded score of each pair, shape (n,); equal pairs are scored once, `CHUNK` of them at a time."""
        unique, inverse = distinct(list(zip(queries, passages, strict=True)))
        chunks = (unique[start : start + CHUNK] for start in range(0, len(unique), CHUNK))
        scores = np.concatenate([np.empty(0), *map(self._forward, made_ahead(self._encoded, chunks))])
        if not np.isfinite(scores).all():
            problem = f"scores of model {self._settings.model} are not finite in {self._dtype}"
            raise RetrieverError("model", f"rerank: {problem}; {_FINITE_IN[self._dtype]}")
        return rounded_scores(scores[inverse])

    def _encoded(self, pairs: Sequence[tuple[str, str]]) -> Any:
        """Returns the input of `_forward` for the pairs; in a thread, while the device works on those before."""
        raise NotImplementedError

    def _forward(self, encoded: Any) -> np.ndarray:
        """Returns the scores of the pairs, shape (n,)."""
        raise NotImplementedError


class CrossEncoder(LoadedReranker):
    """A BGE-style cross-encoder with one logit per pair; its scores equal those of FlagEmbedding's `FlagReranker`.

    FlagReranker on transformers 5 decodes and tokenises every pair twice, one at a time. Cost: one tokenizer call per `CHUNK`
    pairs, one forward pass per length-sorted batch.
    """

    def __init__(self, settings: RerankSettings, device: str = "cpu") -> None:
        """Loads the model. A query gets three quarters of `max_length` at most; the passage is truncated to the rest."""
        super().__init__(settings, device)
        self._open("AutoModelForSequenceClassification")
        self._max_length = settings.max_length
        self._passes = open_passes(self._network, self._tokenizer, device, PAIR_TOKENS[device_kind(device)])

    def _truncated_queries(self, queries: Sequence[str]) -> dict[str, str]:
        """Returns each distinct query truncated to three quarters of the length, as FlagReranker does.

        The tokenizer's `only_second` fails for the whole call if a query leaves no room for its passage. Decoded tokens
        may give more tokens when they are encoded again, so a truncated query is counted again.
        """
        unique = list(dict.fromkeys(queries))
        room = self._max_length - self._tokenizer.num_special_tokens_to_add(pair=True) - 1
        limit = min(self._max_length * 3 // 4, room)
        truncated = {}
        for query, ids in zip(unique, self._ids(unique, limit + 1), strict=True):
            truncated[query] = query
            keep = limit if len(ids) > limit else len(ids)
            while keep < len(ids):
                text = self._tokenizer.decode(ids[:keep], skip_special_tokens=False, clean_up_tokenization_spaces=False)
                truncated[query] = text
                if len(self._ids([text], room + 1)[0]) <= room:
                    break
                keep = keep * 3 // 4
        return truncated

    def _encoded(self, pairs: Sequence[tuple[str, str]]) -> Encoded:
        truncated = self._truncated_queries([query for query, _ in pairs])
        queries, passages = [truncated[query] for query, _ in pairs], [passage for _, passage in pairs]
        encoded: Encoded = self._tokenizer(
            queries, passages, truncation="only_second", max_length=self._max_length, return_attention_mask=False
        )
        return encoded

    def _forward(self, encoded: Encoded) -> np.ndarray:
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        return in_order(self._passes.batches(lengths), partial(self._passes.logits, encoded))


# Tokens of a forward pass. FlagEmbedding keeps the logits of all positions over the whole vocabulary: for 512 tokens and
# Gemma's vocabulary of 256,000 a quarter of a gigabyte in half precision, so 32 pairs take 8 GB. If that does not
# fit, FlagEmbedding repeats the pass with three quarters of the batch until it fits.
_TOKENS = {"cpu": 4096, "cuda": 16_384}


class LlmReranker(LoadedReranker):
    """An LLM that scores pairs by the logit of "Yes" after the prompt."""

    def __init__(self, settings: RerankSettings, device: str = "cpu") -> None:
        super().__init__(settings, device)
        if self._dtype == "float16" and device == "cpu":  # FlagEmbedding would silently use float32
            raise RetrieverError("model", "rerank.dtype: FlagEmbedding computes no float16 with an LLM on cpu; take auto")
        self._opened = open_flag_llm(
            settings.model, self._dtype, device, settings.trust_remote_code,
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
            problem = f"model {self._settings.model} scores not even one pair at a time on {self._device}"
            remedy = f"({type(e).__name__}: {one_line(e)}); lower rerank.max_length, or take another device"
            raise RetrieverError("cluster-small", f"rerank: {problem} {remedy}") from e
