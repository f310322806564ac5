"""Dense encoders: a transformer, pooling and the layers after it, as the model was made, give vectors of length 1.

`retrievers/encoders/recipe.py` reads how it was made. `open_encoder` opens one here, or at a server
(`retrievers/served/encoder.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cluster.errors import RetrieverError
from retrievers.batches import CHUNK, TEXT_TOKENS, device_kind, in_order, made_ahead
from retrievers.encoders.forward import Encoded, dense_dim, open_layers, open_passes
from retrievers.encoders.recipe import Recipe, behaves_causally, check_pooling, encoder_error, read_recipe
from retrievers.models import (
    description,
    max_positions,
    model_identity,
    open_transformer,
    read_json,
    resolve_model,
    resolved_dtype,
)
from retrievers.ranking import distinct
from retrievers.retriever import BUILD, SearchText, error_context
from retrievers.served.encoder import OpenaiEncoder
from retrievers.served.server import TextRefused
from retrievers.settings import AnyEncoderSettings, EncoderSettings, OpenaiEncoderSettings


class TextEncoder(Protocol):
    """Makes vectors of texts."""

    @property
    def dim(self) -> int:
        """Length of the vectors."""

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns one vector of length 1 per text, shape (n, dim), float32."""


def open_encoder(settings: AnyEncoderSettings, device: str = "cpu", *, patient: bool = False) -> TextEncoder:
    """Returns an encoder on a device, "cpu" or "cuda:0", or at a server, which is waited for where `patient`."""
    if isinstance(settings, OpenaiEncoderSettings):
        return OpenaiEncoder(settings, patient=patient)
    return Encoder(settings, device)


@contextmanager
def refusals_named(texts: Sequence[str], doc_ids: Sequence[str]) -> Iterator[None]:
    """Names the document whose text a server refuses, where passages are encoded."""
    try:
        yield
    except TextRefused as refused:
        items = [SearchText(text, "passage") for text in texts]
        named = repr(doc_ids[items.index(refused.item)]) if refused.item in items else ""
        problem = f"document {named} is refused by the {refused}; change its text, or name another model"
        raise RetrieverError("model", f"corpus: {problem}") from None


def encoder_identity(settings: AnyEncoderSettings, *, patient: bool = False) -> dict[str, Any]:
    """Returns the values that determine the vectors, as JSON; loads no weights. `dtype: auto` is that of a CPU."""
    if isinstance(settings, OpenaiEncoderSettings):
        return OpenaiEncoder(settings, patient=patient).identity()
    _check_architecture(settings.model)
    dtype = resolved_dtype(settings.dtype, "cpu")
    return {
        "model": model_identity(settings.model, code=settings.trust_remote_code),
        **read_recipe(settings).identity(settings.model),
        "max_length": settings.max_length or model_max_length(description(settings.model)),
        **({"dtype": dtype} if dtype != "float32" else {}),
        **({"trust_remote_code": True} if settings.trust_remote_code else {}),
    }


def encoder_differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> str:
    """Returns the differences of two identities, for a message; empty if their vectors are compatible.

    Precision does not count: it changes vectors by rounding only, and a CPU may search an index that a GPU built.
    """
    keys = [key for key in {**requested, **stored} if key != "dtype" and stored.get(key) != requested.get(key)]
    return ", ".join(f"{key} {stored.get(key)!r} against {requested.get(key)!r}" for key in keys)


def checked_encoder(
    name: str, where: str, settings: AnyEncoderSettings, built: Mapping[str, Any] | None, built_name: object, *, patient: bool
) -> dict[str, Any]:
    """Returns the identity of a retriever's encoder; refuses an index, which `where` names, `built` with another one."""
    with error_context(f"retrieve.retrievers.{name}.encoder"):
        identity = encoder_identity(settings, patient=patient)
    if built is not None and (differ := encoder_differences(built, identity)):
        problem = f"{where} was built with encoder {built_name}, the config asks for {settings.model} ({differ})"
        raise RetrieverError("index-other", f"{problem}; set the encoder it was built with, or build it again: {BUILD}")
    return identity


def model_max_length(folder: Path) -> int:
    """Returns the limit of sentence_bert_config.json, else of the tokenizer, and never more than the model's positions."""
    positions = max_positions(read_json(folder / "config.json"))
    named = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    limit = read_json(folder / "tokenizer_config.json").get("model_max_length") or positions
    return int(min(positions, named or limit))


def encoder_notes(settings: AnyEncoderSettings) -> tuple[str, ...]:
    """Returns notes for people on what was guessed of an encoder, a line each."""
    if isinstance(settings, OpenaiEncoderSettings):
        return ()
    return tuple(f"encoder {settings.model}: {note}" for note in read_recipe(settings).notes)


def encoder_dim(settings: AnyEncoderSettings) -> int:
    """Returns the length of an encoder's vectors, by the model's files or its server; loads no weights."""
    if isinstance(settings, OpenaiEncoderSettings):
        return OpenaiEncoder(settings).dim
    folder = description(settings.model)
    dense = [layer for layer in read_recipe(settings).layers if layer.kind == "Dense"]
    return dense_dim(settings.model, folder, dense[-1]) if dense else _hidden_size(settings.model, folder)


def _hidden_size(model: str, folder: Path) -> int:
    config = read_json(folder / "config.json")
    dim = next((config[key] for key in ("hidden_size", "dim", "d_model") if config.get(key)), None)
    if dim is None:
        raise encoder_error(model, "its config.json has no hidden_size; name another model")
    return int(dim)


def _check_architecture(model: str) -> None:
    """Checks that a model's states are those of one text: neither an encoder-decoder nor one for images."""
    config = read_json(description(model) / "config.json")
    wrong = [name for name in config.get("architectures") or [] if name.endswith("ForConditionalGeneration")]
    if wrong or config.get("is_encoder_decoder"):
        what = wrong[0] if wrong else "an encoder-decoder"
        raise encoder_error(model, f"the model is no encoder, its architecture is {what}; name another")


class Encoder:
    """A loaded encoder; its vectors equal those of sentence-transformers, scaled to length 1.

    Vectors change by about 1e-7 with their batch (other padding, other order of additions); compare them, and all that is
    computed from them, with a tolerance. Cost: one tokenizer call per `CHUNK` texts, one forward pass per length-sorted batch.
    """

    def __init__(self, settings: EncoderSettings, device: str = "cpu") -> None:
        """Loads the model on this device: other workers use other GPUs of the node."""
        self.settings, model = settings, settings.model
        _check_architecture(model)
        self.recipe: Recipe = read_recipe(settings)
        folder = resolve_model(model, code=settings.trust_remote_code)
        config = read_json(folder / "config.json")
        self.max_length = settings.max_length or model_max_length(folder)
        positions = max_positions(config)
        if self.max_length > positions:
            problem = f"max_length {self.max_length} is more than the {positions} tokens that the model has positions for"
            raise encoder_error(model, f"{problem}; set encoder.max_length to {positions} or less")
        dtype = resolved_dtype(settings.dtype, device)
        self._opened = open_transformer(f"encoder {model}", model, "AutoModel", dtype, device, settings.trust_remote_code)
        self._network, self._tokenizer = self._opened.model, self._opened.tokenizer
        if self.recipe.pooling != "last":
            check_pooling(settings, self.recipe, causal=behaves_causally(self._network, device))
        hidden = int(getattr(self._network.config, "hidden_size", 0) or _hidden_size(model, folder))
        self._layers, self.dim = open_layers(model, folder, self.recipe.layers, device, hidden)
        self._passes = open_passes(self._network, self._tokenizer, device, TEXT_TOKENS[device_kind(device)])
        self._lower = bool(read_json(folder / "sentence_bert_config.json").get("do_lower_case"))
        self._prefix = {"query": self.recipe.query_prefix, "passage": self.recipe.passage_prefix}
        self._end = self._missing_end(folder) if self.recipe.pooling == "last" else None

    def _missing_end(self, folder: Path) -> int | None:
        """Returns the end token that the tokenizer's config.json asks for after each text, where the tokenizer adds none.

        transformers 5 leaves `add_eos_token` to the template in tokenizer.json, which does not always have it. The state of
        another last token is not the one that the model was trained to give.
        """
        if not read_json(folder / "tokenizer_config.json").get("add_eos_token"):
            return None
        end: int | None = self._tokenizer.eos_token_id
        return None if self._tokenizer("a")["input_ids"][-1:] == [end] else end

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns one vector of length 1 per text, shape (n, dim), float32; equal texts of one kind are encoded once."""
        unique, inverse = distinct(texts)
        prefixed = [self._prefix[each.kind] + each.text for each in unique]
        if self._lower:
            from tokenizers.normalizers import Lowercase  # by character, as such models were trained

            prefixed = [Lowercase().normalize_str(text) for text in prefixed]
        chunks = (prefixed[start : start + CHUNK] for start in range(0, len(prefixed), CHUNK))
        none = np.empty((0, self.dim), dtype=np.float32)
        return np.concatenate([none, *map(self._vectors, made_ahead(self._encoded, chunks))])[inverse]

    def _vectors(self, encoded: Encoded) -> np.ndarray:
        import torch

        def compute(part: np.ndarray) -> torch.Tensor:
            vectors = self._passes.pooled(encoded, part, self.recipe.pooling)
            for layer in self._layers:
                vectors = layer(vectors)
            return torch.nn.functional.normalize(vectors, dim=-1)

        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        vectors = in_order(self._passes.batches(lengths), compute)
        if not np.isfinite(vectors).all():
            dtype = str(self._network.dtype).removeprefix("torch.")
            problem = f"vectors are not finite in {dtype}; set encoder.dtype to bfloat16 or float32"
            raise encoder_error(self.settings.model, problem)
        return vectors

    def _encoded(self, texts: list[str]) -> Encoded:
        """Returns the ids of the texts' tokens, and what else the tokenizer gives for each; every text has one at least."""
        room = self.max_length - (self._end is not None)
        encoded: Encoded = self._tokenizer(texts, truncation=True, max_length=room, return_attention_mask=False)
        for number, ids in enumerate(encoded["input_ids"]):
            if self._end is None and ids:
                continue
            ids.append(self._tokenizer.pad_token_id if self._end is None else self._end)
            for key, values in encoded.items():
                if key != "input_ids":
                    values[number].append(0)
        return encoded


class RecentVectors:
    """An encoder that caches the vectors of its last call, for callers that embed texts and then search with them."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._recent: dict[SearchText, np.ndarray] = {}

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns the vectors of `Encoder.encode`."""
        unique, inverse = distinct(texts)
        new = [text for text in unique if text not in self._recent]
        known = {text: self._recent[text] for text in unique if text in self._recent}
        known |= dict(zip(new, self._encoder.encode(new), strict=True))
        self._recent = known
        vectors = np.array([known[text] for text in unique], dtype=np.float32)
        return vectors.reshape(len(unique), self._encoder.dim)[inverse]
