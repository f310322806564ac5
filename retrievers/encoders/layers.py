"""Pooling, and the layers after it, as torch modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster.cause import one_line
from retrievers.encoders.recipe import Layer, encoder_error
from retrievers.models import module_weights, read_json

_ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")


def pooled(hidden: Any, mask: Any, pooling: str) -> Any:
    """Returns one vector per text of the states of its tokens, shape (n, dim), by pooling "cls", "last" or "mean".

    `hidden` has the states, shape (n, tokens, dim), `mask` 1 for a token and 0 for padding, on either side, shape (n, tokens).
    """
    import torch

    if pooling == "mean":
        return torch.sum(hidden * mask.unsqueeze(-1).float(), dim=1) / mask.sum(dim=1, keepdim=True).float()
    first = mask.long().argmax(dim=1)
    place = first if pooling == "cls" else first + mask.long().sum(dim=1) - 1
    return hidden[torch.arange(len(hidden), device=hidden.device), place]


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

    said = read_json(folder / "config.json")
    activation = str(said.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = activation.rpartition(".")[2]
    unknown = None
    if not activation.startswith("torch.nn.") or name not in _ACTIVATIONS:
        unknown = f"activation {activation}"
    elif said.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        unknown = f"input {said['module_input_name']}"
    elif said.get("module_output_name") not in (None, "sentence_embedding"):
        unknown = f"output {said['module_output_name']}"
    elif said.get("use_residual"):
        unknown = "use_residual"
    if unknown:
        raise encoder_error(model, f"its layer {folder.name} has {unknown}, which is not done here; name another")
    try:
        linear = torch.nn.Linear(said["in_features"], said["out_features"], bias=bool(said.get("bias", True)))
        file = module_weights(folder)
        safe = file.suffix == ".safetensors"
        weights = load_file(file) if safe else torch.load(file, map_location="cpu", weights_only=True)
        linear.load_state_dict({key.removeprefix("linear."): weight.float() for key, weight in weights.items()})
    except Exception as e:  # of safetensors and torch: missing, corrupt, of another shape
        words = f"its layer {folder.name} cannot be loaded: {one_line(e, 200)}; fetch the whole model, or name another"
        raise encoder_error(model, words) from e
    return torch.nn.Sequential(linear, getattr(torch.nn, name)())
