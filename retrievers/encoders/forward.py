"""Forward passes over batches of tokenised texts, padded, or one text after the other on GPUs; pooling and layers after it.

Padding is not the reason for the second way, batches of similar length have little of it: with a mask of padding the general
kernel of attention runs, without one FlashAttention's. A cross-encoder of 24 layers and 1,024 dimensions, float16, 5,000 pairs
of 300 tokens on an H200: 3.6 s padded (2.6 % of it padding), 2.3 s unpadded, where the chip's matrix product alone took 1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from cluster.cause import one_line
from retrievers.batches import length_batches, packed_batches
from retrievers.encoders.bert import Bert
from retrievers.encoders.recipe import Layer, encoder_error
from retrievers.models import module_weights, read_json, read_weights

Encoded = Mapping[str, list[list[int]]]  # what a tokenizer gives of texts, a list for each of them

_CAPABILITY = (8, 0)  # Ampere: the first that FlashAttention has kernels for
_HEAD_SIZES = range(8, 257, 8)  # those that it takes


def open_passes(network: Any, tokenizer: Any, device: str, tokens: int) -> Padded | Unpadded:
    """Returns the passes of a network on its device: unpadded where both can do so, else padded; of at most `tokens`."""
    import torch

    if device != "cpu" and isinstance(network, Bert) and network.dtype in (torch.float16, torch.bfloat16):
        head_size = network.config.hidden_size // network.config.num_attention_heads
        if head_size in _HEAD_SIZES and torch.cuda.get_device_capability(device) >= _CAPABILITY:
            return Unpadded(network, device, tokens)
    return Padded(network, tokenizer, device, tokens)


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

    def __init__(self, network: Bert, device: str, tokens: int) -> None:
        self._network, self._device, self._tokens = network, device, tokens

    def batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        return packed_batches(lengths, self._tokens)

    def logits(self, encoded: Encoded, part: np.ndarray) -> Any:
        """Returns the output of the network's head for the state of each text's first token."""
        states, bounds = self._states(encoded, part)
        return self._network.logits(states[bounds[:-1]]).view(-1).float()

    def pooled(self, encoded: Encoded, part: np.ndarray, pooling: str) -> Any:
        states, bounds = self._states(encoded, part)
        return pooled_states(states, bounds, pooling).float()

    def _states(self, encoded: Encoded, part: np.ndarray) -> tuple[Any, Any]:
        """Returns the last layer's state of each token, shape (tokens, dim), and the bounds of the texts, shape (n + 1,)."""
        import torch

        def one_row(rows: Sequence[Any]) -> Any:
            return torch.cat([torch.as_tensor(row) for row in rows]).to(self._device)

        texts = [torch.tensor(encoded["input_ids"][i]) for i in part]
        lengths = [len(ids) for ids in texts]
        bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=self._device)
        types = one_row([encoded["token_type_ids"][i] for i in part]) if "token_type_ids" in encoded else None
        positions = one_row([self._network.positions(ids) for ids in texts])

        def attend(query: Any, key: Any, value: Any) -> Any:
            return _flash_attention(query, key, value, bounds, max(lengths))

        return self._network.states(one_row(texts), types, positions, attend), bounds


def _flash_attention(query: Any, key: Any, value: Any, bounds: Any, longest: int) -> Any:
    """Returns states of the shape of query, key and value, (tokens, heads, size); `bounds` are those of the texts."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(query, key, value, bounds, bounds, longest, longest)


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
        raise encoder_error(model, f"{layer.path}/config.json is missing; fetch the whole model")
    return dim


def _dense(model: str, folder: Path) -> Any:
    import torch

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
        raise encoder_error(model, f"its layer {folder.name} has {unknown}, which is not supported; name another")
    try:
        linear = torch.nn.Linear(values["in_features"], values["out_features"], bias=bool(values.get("bias", True)))
        weights = read_weights(module_weights(folder))
        linear.load_state_dict({key.removeprefix("linear."): weight.float() for key, weight in weights.items()})
    except Exception as e:  # of safetensors and torch: missing, corrupt, of another shape
        problem = f"its layer {folder.name} cannot be loaded: {one_line(e, 200)}; fetch the whole model, or name another"
        raise encoder_error(model, problem) from e
    return torch.nn.Sequential(linear, getattr(torch.nn, name)())
