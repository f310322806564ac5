"""Encoders of every architecture that is opened, tiny and with random weights, in the files that sentence-transformers has."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.retrievers.tiny_reranker import make_tokenizer

DIM = 32
TOKENS = 48
COMMON = {
    "hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "initializer_range": 0.3,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
_DECODER = {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64}
_SHIFTED = {"max_position_embeddings": TOKENS + 2, "type_vocab_size": 1}
NETWORKS: dict[str, dict[str, Any]] = {  # model_type -> what its config needs beside the common sizes
    "bert": {"max_position_embeddings": TOKENS},
    "xlm-roberta": _SHIFTED,
    "roberta": _SHIFTED,
    "mpnet": _SHIFTED,
    "camembert": _SHIFTED,
    "distilbert": {"dim": DIM, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": TOKENS},
    "electra": {"embedding_size": 16, "max_position_embeddings": TOKENS},
    "albert": {"embedding_size": 16, "max_position_embeddings": TOKENS},
    "deberta-v2": {"max_position_embeddings": TOKENS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "modernbert": {"max_position_embeddings": 64, "cls_token_id": 0, "sep_token_id": 2, "local_attention": 8},
    "nomic_bert": {"max_position_embeddings": 64},
    "mistral": _DECODER | {"sliding_window": 8},
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "gemma": _DECODER,
    "gemma2": _DECODER | {"sliding_window": 8},
    "gemma3_text": _DECODER | {"sliding_window": 8, "use_bidirectional_attention": True},
}


def make_encoder(
    folder: Path, kind: str, texts: Sequence[str], pooling: str | None = "mean", *, dense: Sequence[int] = (),
    prompts: dict[str, str] | None = None, end: bool = False, left: bool = False, bare: bool = False,
) -> Path:  # fmt: skip
    """Its files, in `folder`.

    Args:
        folder: Made if it is not there.
        kind: A key of `NETWORKS`.
        texts: Whose vocabulary it has.
        pooling: As sentence-transformers calls it; None: it has no modules.json.
        dense: Sizes of Dense layers after pooling, with a Normalize at the end.
        prompts: Of config_sentence_transformers.json.
        end: Whether the tokenizer writes no start token and an end token, as those of decoders do.
        left: Whether it pads on the left.
        bare: Whether the weights are of the network for causal LMs.
    """
    import torch
    from tokenizers import processors
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(texts, TOKENS)
    if end:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
        )
    if left:
        tokenizer.padding_side = "left"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = COMMON | NETWORKS[kind] | {"vocab_size": len(tokenizer)}
    made = AutoConfig.for_model(kind, **sizes)
    (AutoModelForCausalLM if bare else AutoModel).from_config(made).save_pretrained(folder)
    if pooling is None:
        return folder
    modules = ["Transformer", "Pooling"]
    _write(folder / "1_Pooling", word_embedding_dimension=DIM, pooling_mode=pooling)
    _write_dense(folder, dense)
    modules += ["Dense"] * len(dense) + ["Normalize"]
    kinds = [
        {"idx": n, "name": str(n), "path": f"{n}_{name}" if n else "", "type": f"sentence_transformers.models.{name}"}
        for n, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(kinds))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": TOKENS, "do_lower_case": False}))
    if prompts is not None:
        said = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(said))
    return folder


def _write(folder: Path, **said: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said))


def _write_dense(folder: Path, sizes: Sequence[int]) -> None:
    """Dense layers as LaBSE (Tanh, with bias) and EmbeddingGemma (Identity, without) have them, in turns."""
    import torch
    from safetensors.torch import save_file

    before = DIM
    for n, size in enumerate(sizes):
        path, bias = folder / f"{n + 2}_Dense", n % 2 == 0
        activation = "torch.nn.modules.activation.Tanh" if bias else "torch.nn.modules.linear.Identity"
        _write(path, in_features=before, out_features=size, bias=bias, activation_function=activation)
        weights = {"linear.weight": torch.randn(size, before)} | ({"linear.bias": torch.randn(size)} if bias else {})
        save_file(weights, path / "model.safetensors", {"format": "pt"})
        before = size
