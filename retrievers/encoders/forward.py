"""Forward passes over batches of tokenised texts, padded, or one text after the other on GPUs; pooling and layers after it.

Padding is not the reason for the second way, batches of similar length have little of it: with a mask of padding the general
kernel of attention runs, without one FlashAttention's. A cross-encoder of 24 layers and 1,024 dimensions, float16, 5,000 pairs
of 300 tokens on an H200: 3.6 s padded (2.6 % of it padding), 2.3 s unpadded, where the chip's matrix product alone took 1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.cause import one_line
from retrievers.batches import length_batches, packed_batches
from retrievers.encoders.recipe import Layer, encoder_error
from retrievers.models import module_weights, read_json

Encoded = Mapping[str, list[list[int]]]  # what a tokenizer gives of texts, a list for each of them
Attention = Callable[[Any, Any, Any, Any, int, float], Any]

_UNPADDED = "dmqr-unpadded"  # its name among the ways of attention of transformers
_KINDS = ("bert", "roberta", "xlm-roberta")  # those that hand all arguments on to attention
_CAPABILITY = (8, 0)  # Ampere: the first that FlashAttention has kernels for


def open_passes(network: Any, tokenizer: Any, device: str, tokens: int) -> Padded | Unpadded:
    """Returns the passes of a network on its device: unpadded where both can do so, else padded; of so many tokens at most."""
    if device != "cpu" and _fits_unpadded(network):
        import torch

        if torch.cuda.get_device_capability(device) >= _CAPABILITY:
            return Unpadded(network, device, tokens)
    return Padded(network, tokenizer, device, tokens)


def _fits_unpadded(network: Any) -> bool:
    """True if a network is one of transformers' own encoders, with sizes and a precision that FlashAttention has."""
    import torch

    config, own = network.config, type(network).__module__.startswith("transformers.models.")
    return (
        own
        and config.model_type in _KINDS
        and not config.is_decoder
        and network.dtype in (torch.float16, torch.bfloat16)
        and config.hidden_size // config.num_attention_heads in range(8, 257, 8)
    )


class Padded:
    """Texts of similar length side by side, the shorter ones filled up with padding; for every network."""

    def __init__(self, network: Any, tokenizer: Any, device: str, tokens: int) -> None:
        self._network, self._tokenizer, self._device, self._tokens = network, tokenizer, device, tokens

    def batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        return length_batches(lengths, self._tokens)

    def logits(self, encoded: Encoded, part: np.ndarray) -> Any:
        return self._network(**self._batch(encoded, part, None)).logits.view(-1).float()

    def pooled(self, encoded: Encoded, part: np.ndarray, pooling: str) -> Any:
        # On the right, whatever side the tokenizer has: positions that are counted from the left are then a text's own.
        batch = self._batch(encoded, part, "right")
        hidden = self._network(**batch, return_dict=True).last_hidden_state
        return pooled(hidden, batch["attention_mask"], pooling).float()

    def _batch(self, encoded: Encoded, part: np.ndarray, side: str | None) -> Any:
        """Returns a batch that is padded on a side; None: the tokenizer's own, by which heads were trained."""
        batch = {key: [values[i] for i in part] for key, values in encoded.items()}
        return self._tokenizer.pad(batch, padding_side=side, return_tensors="pt").to(self._device)


class Unpadded:
    """Texts one after the other in one row, each attending to itself alone (FlashAttention; Dao, 2023, arXiv 2307.08691)."""

    def __init__(self, network: Any, device: str, tokens: int, attention: Attention | None = None) -> None:
        """Sets the network's attention; it takes no padded batches afterwards.

        `attention` makes states of shape (tokens, heads, size) of query, key and value, each of this shape, the bounds of the
        texts, shape (n + 1,), the longest text and the scale; None: FlashAttention.
        """
        import transformers

        attend = attention or _flash_attention

        def of_one_row(module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any) -> tuple[Any, None]:
            queries, keys, values = (states.transpose(1, 2)[0] for states in (query, key, value))
            return attend(queries, keys, values, given["bounds"], given["longest"], given["scaling"])[None], None

        transformers.AttentionInterface.register(_UNPADDED, of_one_row)
        network.set_attn_implementation(_UNPADDED)
        self._network, self._device, self._tokens = network, device, tokens

    def batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        return packed_batches(lengths, self._tokens)

    def logits(self, encoded: Encoded, part: np.ndarray) -> Any:
        """Returns the output of the network's head for the state of each text's first token."""
        states, bounds = self._states(encoded, part)
        first, pooler = states[bounds[:-1]].unsqueeze(1), getattr(self._network.base_model, "pooler", None)
        return self._network.classifier(first if pooler is None else pooler(first)).view(-1).float()

    def pooled(self, encoded: Encoded, part: np.ndarray, pooling: str) -> Any:
        states, bounds = self._states(encoded, part)
        return pooled_states(states, bounds, pooling).float()

    def _states(self, encoded: Encoded, part: np.ndarray) -> tuple[Any, Any]:
        """Returns the last layer's state of each token, shape (tokens, dim), and the bounds of the texts, shape (n + 1,)."""
        import torch

        config = self._network.config
        lengths = np.array([len(encoded["input_ids"][i]) for i in part])
        given = {key: np.concatenate([np.array(values[i]) for i in part]) for key, values in encoded.items()}
        given["position_ids"] = _positions(given["input_ids"], lengths, config)
        bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)).to(self._device)
        rows = {key: torch.from_numpy(values)[None].to(self._device) for key, values in given.items()}
        states = self._network.base_model(**rows, bounds=bounds, longest=int(lengths.max()), return_dict=True)
        return states.last_hidden_state[0], bounds


def _positions(ids: np.ndarray, lengths: np.ndarray, config: Any) -> np.ndarray:
    """Returns the position of each token in its text as its network counts: from 0, or after the padding's and without it."""
    shifted = config.model_type != "bert"
    counts = (ids != config.pad_token_id if shifted else np.ones_like(ids)).astype(np.int64)
    counted, begins = np.cumsum(counts), np.cumsum(lengths) - lengths
    within = counted - np.repeat(counted[begins] - counts[begins], lengths)
    return within * counts + config.pad_token_id if shifted else within - 1


def _flash_attention(query: Any, key: Any, value: Any, bounds: Any, longest: int, scale: float) -> Any:
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(query, key, value, bounds, bounds, longest, longest, scale=scale)


_ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")


def pooled(hidden: Any, mask: Any, pooling: str) -> Any:
    """Returns one vector per text of the states of its tokens, shape (n, dim), by pooling "cls", "last" or "mean".

    `hidden` has the states, shape (n, tokens, dim), `mask` 1 for a token and 0 for padding, on either side, shape (n, tokens).
    """
    import torch

    if pooling == "mean":
        return torch.sum(hidden * mask.unsqueeze(-1).float(), dim=1) / mask.sum(dim=1, keepdim=True).float()
    first = mask.long().argmax(dim=1)
    at = first if pooling == "cls" else first + mask.long().sum(dim=1) - 1
    return hidden[torch.arange(len(hidden), device=hidden.device), at]


def pooled_states(states: Any, bounds: Any, pooling: str) -> Any:
    """Returns one vector per text, as `pooled` does, of the states of texts one after the other, shape (tokens, dim).

    `bounds` are where each text begins, and the end of the last one, shape (n + 1,).
    """
    import torch

    if pooling == "mean":
        return torch.segment_reduce(states.float(), "mean", lengths=bounds.diff(), axis=0)
    return states[bounds[:-1] if pooling == "cls" else bounds[1:] - 1]


def open_layers(
    model: str, folder: Path, layers: Sequence[Layer], device: str, dim: int
) -> tuple[list[Callable[..., Any]], int]:
    """Returns the layers after pooling as functions of float32 vectors of length `dim`, and the length of their output."""
    import torch

    opened: list[Callable[..., Any]] = []
    for layer in layers:
        if layer.kind == "Normalize":
            opened.append(lambda vectors: torch.nn.functional.normalize(vectors, dim=-1))
            continue
        opened.append(_dense(model, folder / layer.path).to(device).eval())
        dim = dense_dim(model, folder, layer)
    return opened, dim


def dense_dim(model: str, folder: Path, layer: Layer) -> int:
    """Returns the length of the vectors that a Dense layer makes, by its config.json."""
    dim = read_json(folder / layer.path / "config.json").get("out_features")
    if not isinstance(dim, int):
        raise encoder_error(model, f"{layer.path}/config.json is not here; fetch the whole model")
    return dim


def _dense(model: str, folder: Path) -> Any:
    import torch
    from safetensors.torch import load_file

    values = read_json(folder / "config.json")
    activation = str(values.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = activation.rpartition(".")[2]
    unknown = None
    if not activation.startswith("torch.nn.") or name not in _ACTIVATIONS:
        unknown = f"activation {activation}"
    elif values.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        unknown = f"input {values['module_input_name']}"
    elif values.get("module_output_name") not in (None, "sentence_embedding"):
        unknown = f"output {values['module_output_name']}"
    elif values.get("use_residual"):
        unknown = "use_residual"
    if unknown:
        raise encoder_error(model, f"its layer {folder.name} has {unknown}, which is not done here; name another")
    try:
        linear = torch.nn.Linear(values["in_features"], values["out_features"], bias=bool(values.get("bias", True)))
        file = module_weights(folder)
        safe = file.suffix == ".safetensors"
        weights = load_file(file) if safe else torch.load(file, map_location="cpu", weights_only=True)
        linear.load_state_dict({key.removeprefix("linear."): weight.float() for key, weight in weights.items()})
    except Exception as e:  # of safetensors and torch: missing, corrupt, of another shape
        problem = f"its layer {folder.name} cannot be loaded: {one_line(e, 200)}; fetch the whole model, or name another"
        raise encoder_error(model, problem) from e
    return torch.nn.Sequential(linear, getattr(torch.nn, name)())
