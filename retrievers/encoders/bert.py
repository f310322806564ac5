"""BERT, RoBERTa and XLM-RoBERTa in PyTorch alone: importing transformers' networks takes seconds, and they only take padding.

The states of a padded batch equal transformers' bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from retrievers.models import module_weights, read_json, read_weights

_TYPES = ("bert", "roberta", "xlm-roberta")


def open_bert(folder: Path, classifies: bool, dtype: Any) -> Bert | None:
    """Returns the network of a folder; None if it is of another type, or needs what only transformers does."""
    import torch

    config = read_json(folder / "config.json")
    special = config.get("is_decoder") or "auto_map" in config or "quantization_config" in config
    special = special or config.get("position_embedding_type", "absolute") != "absolute"
    if config.get("model_type") not in _TYPES or config.get("hidden_act") != "gelu" or special:
        return None
    with suppress(FileNotFoundError, KeyError, AttributeError):  # weights in several files, or by other names
        read = read_weights(module_weights(folder))
        named = {name.removeprefix("bert.").removeprefix("roberta."): weight for name, weight in read.items()}
        parts = ("embeddings.", "encoder.", *(("pooler.", "classifier.") if classifies else ()))
        network = Bert(config, {name: named[name].to(dtype) for name in named if name.startswith(parts)}, classifies)
        network(torch.zeros((1, 1), dtype=torch.int64), torch.ones((1, 1)))  # all weights are there, and fit
        return network
    return None


class Bert:
    """A loaded network, called as one of transformers."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Any], classifies: bool) -> None:
        self.config, self.weights, self._classifies = SimpleNamespace(**config), weights, classifies
        self.dtype = weights["embeddings.word_embeddings.weight"].dtype
        self._is_bert = config["model_type"] == "bert"
        self._eps, self._padding = float(config["layer_norm_eps"]), int(config["pad_token_id"])

    def to(self, device: str) -> Bert:
        """Moves the weights to a device."""
        self.weights = {name: weight.to(device) for name, weight in self.weights.items()}
        return self

    def __call__(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None, **_: Any) -> SimpleNamespace:
        """Returns the last layer's states of a padded batch, and the logits of a cross-encoder."""
        from torch.nn.functional import scaled_dot_product_attention

        mask = None if attention_mask.all() else attention_mask[:, None, None].bool()

        def attend(*states: Any) -> Any:
            query, key, value = (each.transpose(1, 2) for each in states)
            return scaled_dot_product_attention(query, key, value, mask).transpose(1, 2)

        states = self.states(input_ids, token_type_ids, self.positions(input_ids), attend)
        return SimpleNamespace(last_hidden_state=states, logits=self.logits(states[:, 0]) if self._classifies else None)

    def positions(self, ids: Any) -> Any:
        """Returns the position of each token: from 0, or after that of padding, which stays there."""
        import torch

        if self._is_bert:
            return torch.arange(ids.shape[-1], device=ids.device).expand_as(ids)
        counted = ids.ne(self._padding).long()
        return counted.cumsum(-1) * counted + self._padding

    def states(self, ids: Any, types: Any, positions: Any, attend: Callable[..., Any]) -> Any:
        """Returns the last layer's states, of shape (..., tokens, dim); ids, types (or None) and positions: (..., tokens).

        `attend` makes states of query, key and value, each of shape (..., tokens, heads, size).
        """
        import torch
        from torch.nn.functional import embedding, gelu

        types = torch.zeros_like(ids) if types is None else types
        named = zip(("word", "token_type", "position"), (ids, types, positions), strict=True)
        word, kind, position = (embedding(rows, self.weights[f"embeddings.{name}_embeddings.weight"]) for name, rows in named)
        states = self._norm("embeddings", word + kind + position)
        for number in range(self.config.num_hidden_layers):
            layer = f"encoder.layer.{number}"
            parts = (self._linear(f"{layer}.attention.self.{part}", states) for part in ("query", "key", "value"))
            heads = (part.unflatten(-1, (self.config.num_attention_heads, -1)) for part in parts)
            attended = self._linear(f"{layer}.attention.output.dense", attend(*heads).flatten(-2))
            states = self._norm(f"{layer}.attention.output", attended + states)
            inner = gelu(self._linear(f"{layer}.intermediate.dense", states))
            states = self._norm(f"{layer}.output", self._linear(f"{layer}.output.dense", inner) + states)
        return states

    def logits(self, first: Any) -> Any:
        """Returns the logits by the states of first tokens, shape (n, dim)."""
        dense, out = ("pooler.dense", "classifier") if self._is_bert else ("classifier.dense", "classifier.out_proj")
        return self._linear(out, self._linear(dense, first).tanh())

    def _linear(self, name: str, states: Any) -> Any:
        from torch.nn.functional import linear

        return linear(states, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, states: Any) -> Any:
        from torch.nn.functional import layer_norm

        weight, bias = (self.weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return layer_norm(states, weight.shape, weight, bias, self._eps)
