"""Dense encoders in the style of BGE: a transformer with CLS or mean pooling gives vectors of length 1.

`open_encoder` opens one here, or at a server (`retrievers/served/encoder.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cluster.errors import RetrieverError, nearest
from retrievers.batches import CHUNK, TEXT_TOKENS, device_kind, length_batches
from retrievers.flag_models import open_flag_encoder
from retrievers.models import (
    max_positions,
    model_config,
    model_identity,
    read_json,
    resolve_model,
    resolved_dtype,
)
from retrievers.retriever import SearchText, distinct
from retrievers.served.client import TextRefused
from retrievers.served.encoder import OpenaiEncoder
from retrievers.settings import AnyEncoderSettings, EncoderSettings, OpenaiEncoderSettings

KINDS = ("query", "passage")


class TextEncoder(Protocol):
    """Makes vectors of texts."""

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        ...

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns one vector of length 1 per text, shape (n, dim), float32."""
        ...


def open_encoder(settings: AnyEncoderSettings, device: str = "cpu", *, patient: bool = False) -> TextEncoder:
    """Returns the encoder of a config's `encoder`.

    Args:
        settings: The config's `encoder`.
        device: "cpu" or "cuda:0"; not used for a server.
        patient: Wait for a server that is away, as a worker does.

    Raises:
        RetrieverError: There is no such model, it is no encoder, it cannot be loaded, or its server is away.
    """
    if isinstance(settings, OpenaiEncoderSettings):
        return OpenaiEncoder(settings, patient=patient)
    return Encoder(settings, device)


def encoded_passages(encoder: TextEncoder, texts: Sequence[str]) -> np.ndarray:
    """Returns the vectors of the passages of an index, shape (n, dim), float32.

    Raises:
        RetrieverError: A server refuses one of them, so that there can be no index of all.
    """
    try:
        return encoder.encode([SearchText(text, "passage") for text in texts])
    except TextRefused as refused:
        raise RetrieverError(
            "model-unfit", f"a passage is refused by the {refused}; change the passage, or the model"
        ) from None


def encoder_identity(settings: AnyEncoderSettings, device: str = "cpu", *, patient: bool = False) -> dict[str, Any]:
    """Returns what determines the vectors, as JSON values; the weights by content or commit. Loads no weights.

    Args:
        settings: The config's `encoder`.
        device: Where the encoder would run; it determines the precision for `dtype: auto`.
        patient: Wait for a server that is away, as a worker does.

    Raises:
        RetrieverError: There is no such model, it is no encoder, or its server is away.
    """
    if isinstance(settings, OpenaiEncoderSettings):
        return OpenaiEncoder(settings, patient=patient).identity()
    _check_architecture(settings.model)
    dtype = resolved_dtype(settings.dtype, device)
    return {
        "model": model_identity(settings.model, code=settings.trust_remote_code),
        "pooling": settings.pooling,
        "query_prefix": settings.query_prefix,
        "passage_prefix": settings.passage_prefix,
        "max_length": settings.max_length or model_max_length(resolve_model(settings.model)),
        **({"dtype": dtype} if dtype != "float32" else {}),
        **({"trust_remote_code": True} if settings.trust_remote_code else {}),
    }


def encoder_differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> str:
    """Returns the differences of two identities, for a message; empty if their vectors are compatible.

    Precision does not count: it changes vectors by rounding only, and a CPU may search an index that a GPU built.
    """
    keys = [key for key in {**requested, **stored} if key != "dtype" and stored.get(key) != requested.get(key)]
    return ", ".join(f"{key} {stored.get(key)!r} against {requested.get(key)!r}" for key in keys)


def model_max_length(folder: Path) -> int:
    """Returns the most tokens of a text for a model.

    It is the limit of sentence_bert_config.json, else that of the tokenizer, and never more than the model's positions.
    """
    positions = max_positions(read_json(folder / "config.json"))
    named = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    limit = read_json(folder / "tokenizer_config.json").get("model_max_length") or positions
    return int(min(positions, named or limit))


def encoder_dim(settings: AnyEncoderSettings) -> int:
    """Returns the length of an encoder's vectors, by the model's config.json or its server; loads no weights.

    Raises:
        RetrieverError: There is no such model, its config.json does not have it, or its server is away.
    """
    if isinstance(settings, OpenaiEncoderSettings):
        return OpenaiEncoder(settings).dim
    config = model_config(settings.model)
    dim = next((config[key] for key in ("hidden_size", "dim", "d_model") if config.get(key)), None)
    if dim is None:
        raise RetrieverError("model-unfit", f"encoder {settings.model}: its config.json has no hidden_size; name another model")
    return int(dim)


def _check_architecture(model: str) -> None:
    """Checks that a model is an encoder: causal LLMs pool by their last token, which `pooling` does not offer."""
    config = model_config(model)
    wrong = [name for name in config.get("architectures") or [] if name.endswith(("ForCausalLM", "ForConditionalGeneration"))]
    if wrong or config.get("is_encoder_decoder"):
        what = wrong[0] if wrong else "an encoder-decoder"
        raise RetrieverError(
            "model-unfit", f"encoder {model}: the model is no encoder, its architecture is {what}; name another"
        )


class Encoder:
    """A loaded encoder; its vectors equal those of FlagEmbedding's `FlagModel`.

    Vectors change by about 1e-7 with their batch (other padding, other order of additions); compare them, and all that is
    computed from them, with a tolerance. Cost: one tokenizer call per `CHUNK` texts, one forward pass per length-sorted
    batch.
    """

    def __init__(self, settings: EncoderSettings, device: str = "cpu") -> None:
        """Loads the model.

        Args:
            settings: The config's `encoder`.
            device: "cpu" or "cuda:0"; never chosen automatically, because other workers use other GPUs of the node.

        Raises:
            RetrieverError: There is no such model, its files cannot be loaded, or the device does not exist.
        """
        self.settings = settings
        _check_architecture(settings.model)
        folder = resolve_model(settings.model, code=settings.trust_remote_code)
        self.max_length = settings.max_length or model_max_length(folder)
        positions = max_positions(read_json(folder / "config.json"))
        if self.max_length > positions:
            raise RetrieverError(
                "model-unfit",
                f"encoder {settings.model}: max_length {self.max_length} is more than the {positions} tokens that the "
                f"model has positions for; set encoder.max_length to {positions} or less",
            )
        dtype = resolved_dtype(settings.dtype, device)
        self._opened = open_flag_encoder(settings.model, settings.pooling, dtype, device, settings.trust_remote_code)
        self.dim = encoder_dim(settings)
        self._device = device
        self._tokens = TEXT_TOKENS[device_kind(device)]
        self._lower = bool(read_json(folder / "sentence_bert_config.json").get("do_lower_case"))
        self._prefix = {"query": settings.query_prefix, "passage": settings.passage_prefix}

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns one vector of length 1 per text, shape (n, dim), float32; equal texts of one kind are encoded once.

        Raises:
            RetrieverError: A kind is neither "query" nor "passage".
        """
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        unique, inverse = distinct([SearchText(text.text, text.kind) for text in texts])  # filters change no vector
        wrong = next((each.kind for each in unique if each.kind not in KINDS), None)
        if wrong is not None:
            raise RetrieverError("config-value", f"encoder: unknown kind of text {wrong!r}{nearest(wrong, KINDS)}")
        prefixed = [self._prefix[each.kind] + each.text for each in unique]
        if self._lower:
            from tokenizers.normalizers import Lowercase  # by character, as such models were trained

            prefixed = [Lowercase().normalize_str(text) for text in prefixed]
        vectors = np.empty((len(prefixed), self.dim), dtype=np.float32)
        for start in range(0, len(prefixed), CHUNK):
            part = prefixed[start : start + CHUNK]
            vectors[start : start + len(part)] = self._forward(part)
        encoded: np.ndarray = vectors[inverse]
        return encoded

    def _forward(self, texts: list[str]) -> np.ndarray:
        import torch

        tokenizer = self._opened.tokenizer
        encoded = tokenizer(texts, truncation=True, max_length=self.max_length, return_attention_mask=False)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        with torch.inference_mode():
            for part in length_batches(lengths, self._tokens):
                one = {key: [values[i] for i in part] for key, values in encoded.items()}
                batch = tokenizer.pad(one, return_tensors="pt").to(self._device)
                hidden = self._opened.model(**batch, return_dict=True).last_hidden_state
                pooled = self._opened.pooling(hidden, batch["attention_mask"])
                vectors[part] = torch.nn.functional.normalize(pooled.float(), dim=-1).cpu().numpy()
        return vectors


class RecentVectors:
    """An encoder that caches the vectors of its last call, for callers that embed texts and then search with them."""

    def __init__(self, encoder: TextEncoder) -> None:
        """Starts with an empty cache."""
        self._encoder = encoder
        self._recent: dict[SearchText, np.ndarray] = {}

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns the vectors of `Encoder.encode`."""
        unique, inverse = distinct([SearchText(text.text, text.kind) for text in texts])
        new = [text for text in unique if text not in self._recent]
        known = {text: self._recent[text] for text in unique if text in self._recent}
        known |= dict(zip(new, self._encoder.encode(new), strict=True))
        self._recent = known
        if not unique:
            return np.empty((0, self._encoder.dim), dtype=np.float32)
        vectors: np.ndarray = np.stack([known[text] for text in unique])[inverse]
        return vectors
