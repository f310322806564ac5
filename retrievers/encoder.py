"""Texts to vectors: a BGE-style encoder, one transformer with CLS or mean pooling, vectors of length 1."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from retrievers.models import model_identity, quiet_loading, resolve_model
from retrievers.retriever import RetrieverError, SearchText, distinct, unknown

POOLINGS = ("cls", "mean")
KINDS = ("query", "passage")
_CHUNK = 4096  # texts tokenised and sorted at a time: bounds memory, still long enough to sort by length


class EncoderSettings(NamedTuple):
    """The config's ``encoder`` block. ``max_length`` in tokens; None: the model's own."""

    model: str
    pooling: str = "cls"
    query_prefix: str = ""
    passage_prefix: str = ""
    max_length: int | None = None


def encoder_settings(block: Mapping[str, Any]) -> EncoderSettings:
    """An ``encoder`` block, checked. Keys that stand for how fast, not what (``batch_size``), are left aside.

    Raises:
        RetrieverError: no model; unknown pooling or key; a length below 8.
    """
    allowed = {*EncoderSettings._fields, "batch_size"}
    for key in block:
        if key not in allowed:
            raise RetrieverError(unknown("key", key, sorted(allowed)))
    if not block.get("model"):
        raise RetrieverError("no model is named; give encoder.model a folder, package:NAME or a hub name")
    settings = EncoderSettings(**{k: v for k, v in block.items() if k in EncoderSettings._fields})
    if settings.pooling not in POOLINGS:
        raise RetrieverError(unknown("pooling", settings.pooling, POOLINGS))
    if settings.max_length is not None and settings.max_length < 8:
        raise RetrieverError(f"max_length {settings.max_length} is too short; set 8 or more")
    return settings


def encoder_identity(settings: EncoderSettings) -> dict[str, Any]:
    """What decides the vectors, as plain values; the weights by content or commit. Loads no weights into memory.

    Raises:
        RetrieverError: no such model.
    """
    return {
        "model": model_identity(settings.model),
        "pooling": settings.pooling,
        "query_prefix": settings.query_prefix,
        "passage_prefix": settings.passage_prefix,
        "max_length": settings.max_length or own_max_length(resolve_model(settings.model)),
    }


def own_max_length(folder: Path) -> int:
    """How many tokens a model takes by its own files: what sentence_bert_config.json says, else the tokenizer's limit,
    never more than the positions that the model has."""
    positions = own_positions(folder)
    named = _read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    limit = _read_json(folder / "tokenizer_config.json").get("model_max_length") or positions
    return int(min(positions, named or limit))


def encoder_dim(settings: EncoderSettings) -> int:
    """How long its vectors are, by the model's own files; loads no weights.

    Raises:
        RetrieverError: no such model; it does not say.
    """
    config = _read_json(resolve_model(settings.model) / "config.json")
    dim = next((config[key] for key in ("hidden_size", "dim", "d_model") if config.get(key)), None)
    if dim is None:
        raise RetrieverError(f"encoder {settings.model}: its config.json has no hidden_size; name another model")
    return int(dim)


def own_positions(folder: Path) -> int:
    """How many tokens a model has positions for."""
    config = _read_json(folder / "config.json")
    positions = int(config.get("max_position_embeddings") or 512)
    if "roberta" in str(config.get("model_type")):  # counted from pad_token_id + 1 there: 514 positions hold 512 tokens
        positions -= int(config.get("pad_token_id", 1)) + 1
    return positions


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return read
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise RetrieverError(f"model file {path} cannot be read: {type(e).__name__}: {e}; copy it again") from None


class Encoder:
    """A loaded encoder. Cost: one forward per batch of texts of like length.

    Vectors move by about 1e-7 with the batch they are computed in (another padding, another order of additions), so
    compare them, and what is computed from them, with a tolerance.
    """

    def __init__(self, settings: EncoderSettings, device: str = "cpu", batch_size: int | None = None) -> None:
        """
        Args:
            device: "cpu", "cuda:0". Never chosen for you: a worker must not take a neighbour's card.
            batch_size: texts in a forward; None: 32 on a CPU, 256 on a GPU.

        Raises:
            RetrieverError: no such model, or its files cannot be loaded.
        """
        folder = resolve_model(settings.model)
        self.settings = settings
        self.max_length = settings.max_length or own_max_length(folder)
        self.batch_size = batch_size or (32 if device == "cpu" else 256)
        positions = own_positions(folder)
        if self.max_length > positions:
            raise RetrieverError(
                f"encoder {settings.model}: max_length {self.max_length} is more than the {positions} tokens that the "
                f"model has positions for; set encoder.max_length to {positions} or less"
            )
        self._net = _load(folder, settings, self.max_length, device)
        self.dim = int(self._net.get_embedding_dimension() or 0)
        self._prefix = {"query": settings.query_prefix, "passage": settings.passage_prefix}

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """One vector per text: shape (n, dim), float32, length 1. A (text, kind) that is there twice is encoded once.

        Raises:
            RetrieverError: a kind that is neither "query" nor "passage".
        """
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        once, inverse = distinct([SearchText(*text) for text in texts])
        wrong = next((each.kind for each in once if each.kind not in KINDS), None)
        if wrong is not None:
            raise RetrieverError(f"encoder: {unknown('kind of text', wrong, KINDS)}")
        prefixed = [self._prefix[each.kind] + each.text for each in once]
        vectors = np.empty((len(prefixed), self.dim), dtype=np.float32)
        for start in range(0, len(prefixed), _CHUNK):
            part = self._net.encode(
                prefixed[start : start + _CHUNK],
                batch_size=self.batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=False,  # the last module does it
            )
            vectors[start : start + len(part)] = part
        encoded: np.ndarray = vectors[inverse]
        return encoded


class RecentVectors:
    """An encoder that remembers the texts of its last call: whoever embeds texts and then searches with them encodes once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._recent: dict[SearchText, np.ndarray] = {}

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """As `Encoder.encode`."""
        once, inverse = distinct([SearchText(*text) for text in texts])
        new = [text for text in once if text not in self._recent]
        known = {text: self._recent[text] for text in once if text in self._recent}
        known |= dict(zip(new, self._encoder.encode(new), strict=True))
        self._recent = known
        if not once:
            return np.empty((0, self._encoder.dim), dtype=np.float32)
        vectors: np.ndarray = np.stack([known[text] for text in once])[inverse]
        return vectors


def _load(folder: Path, settings: EncoderSettings, max_length: int, device: str) -> Any:
    """The modules built by hand, since a BGE folder need not have sentence-transformers' own files, and those it has
    may name another pooling than the config does."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    quiet_loading()
    lower = bool(_read_json(folder / "sentence_bert_config.json").get("do_lower_case"))
    try:
        words = Transformer(
            str(folder),
            model_kwargs={"dtype": torch.float32, "local_files_only": True},
            processor_kwargs={"model_max_length": max_length, "local_files_only": True},
            config_kwargs={"local_files_only": True},
            do_lower_case=lower,
        )
        pooling = Pooling(words.get_embedding_dimension(), pooling_mode=settings.pooling)
        return SentenceTransformer(modules=[words, pooling, Normalize()], device=device).eval()
    except Exception as e:  # corrupt weights, an architecture unknown here, no such device
        line = " ".join(str(e).split())[:300]
        what = f"encoder {settings.model}: cannot be loaded on {device}"
        raise RetrieverError(f"{what}: {type(e).__name__}: {line}; name another model") from e
