"""Rerankers of the architectures of BGE's that are language models, tiny and with random weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.retrievers.tiny_reranker import make_tokenizer

LAYERS = 4
FIRST_SCORE = 2  # the first layer that a layerwise one has a head for
_SIZES = {
    "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "intermediate_size": 64, "max_position_embeddings": 512, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    "initializer_range": 0.3,
}  # fmt: skip
_HEADS = {"start_layer": FIRST_SCORE, "layer_sep": 1, "layer_wise": True, "head_multi": True, "head_type": "simple"}


def make_gemma(folder: Path, texts: Sequence[str]) -> Path:
    """As bge-reranker-v2-gemma: the score is the logit of "Yes"."""
    import torch
    from transformers import GemmaConfig, GemmaForCausalLM

    tokenizer = make_tokenizer([*texts, "Yes No A: B: query passage"], 512)
    torch.manual_seed(0)
    GemmaForCausalLM(GemmaConfig(vocab_size=len(tokenizer), **_SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_layerwise(folder: Path, texts: Sequence[str]) -> Path:
    """As bge-reranker-v2-minicpm-layerwise: a head after each of the later layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    said = {"architectures": ["LayerWiseMiniCPMForCausalLM"], "model_type": "minicpm", "scale_emb": 12, "dim_model_base": 16}
    return _with_heads(folder, texts, LlamaForCausalLM, LlamaConfig, said)


def make_lightweight(folder: Path, texts: Sequence[str]) -> Path:
    """As bge-reranker-v2.5-gemma2-lightweight: heads, and passages that are compressed on the way."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    said = {"architectures": ["CostWiseGemmaForCausalLM"], "model_type": "cost_wise_gemma"}
    return _with_heads(folder, texts, Gemma2ForCausalLM, Gemma2Config, said)


def _with_heads(folder: Path, texts: Sequence[str], network: Any, config: Any, said: dict[str, Any]) -> Path:
    """The weights of a network of the same shape, with one row per later layer in place of the head."""
    import torch
    from safetensors.torch import load_file, save_file

    tokenizer = make_tokenizer([*texts, "Yes No A: B: query passage"], 512)
    torch.manual_seed(0)
    network(config(vocab_size=len(tokenizer), tie_word_embeddings=False, **_SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    for place in range(LAYERS + 1 - FIRST_SCORE):
        weights[f"lm_head.{place}.linear_head.weight"] = torch.randn(1, _SIZES["hidden_size"])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | _HEADS | said))
    return folder
