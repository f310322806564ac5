"""Which networks are causal: the state of a token knows nothing of the tokens after it, so that only the last one knows all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# `model_type`s of transformers that have a class for causal LMs and none for masked LMs; tests compare the two.
CAUSAL_TYPES = frozenset(
    {
        "arcee", "bitnet", "bloom", "codegen", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5", "exaone4",
        "falcon", "falcon_h1", "falcon_mamba", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text",
        "gemma4", "gemma4_text", "glm", "glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "granite",
        "granitemoe", "granitemoehybrid", "helium", "jamba", "lfm2", "llama", "llama4", "llama4_text", "mamba", "mamba2",
        "minicpm3", "ministral", "ministral3", "mistral", "mixtral", "modernbert-decoder", "mpt", "nemotron", "olmo",
        "olmo2", "olmo3", "olmoe", "opt", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_text",
        "qwen3_moe", "qwen3_next", "recurrent_gemma", "rwkv", "seed_oss", "smollm3", "stablelm", "starcoder2", "vaultgemma",
        "xglm", "zamba", "zamba2",
    }
)  # fmt: skip


def is_causal(config: Mapping[str, Any]) -> bool:
    """Returns whether transformers makes a causal network of a model's config.json.

    Decoders that were trained with attention in both directions say so there (`is_causal`, `use_bidirectional_attention`).
    """
    if config.get("is_causal") is False or config.get("use_bidirectional_attention"):
        return False
    kind = str(config.get("model_type"))
    generates = any(str(name).endswith("ForCausalLM") for name in config.get("architectures") or [])
    return kind in CAUSAL_TYPES or generates or bool(config.get("is_decoder"))


def behaves_causally(network: Any, device: str) -> bool:
    """Returns whether the state of a loaded network's first token is the same whatever follows it. Cost: one small pass.

    It also finds what config.json does not tell: code beside the weights, and types that are not in `CAUSAL_TYPES`.
    """
    import torch

    words = int(getattr(network.config, "vocab_size", 0) or 32)
    first, *others = (words // part for part in (2, 3, 4, 5, 6))
    ids = torch.tensor([[first, others[0], others[1]], [first, others[2], others[3]]], device=device)
    with torch.inference_mode():
        hidden = network(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).last_hidden_state
    one, other = hidden[0, 0].float(), hidden[1, 0].float()
    return float((one - other).norm()) <= 1e-4 * float(one.norm())
