"""A causal language model of 2 layers with random weights, made on the spot: real files of a real architecture, 3 MB.

It writes nonsense, but as a model does: token by token, the same for the same prompt at temperature 0. The end-of-text
token is never likeliest, so free text has as many tokens as are asked for. With `quotes` it closes the strings of a JSON
object, as a trained model does, and its answers hang on the whole prompt, although every request has the same seed.
"""

import argparse
import difflib
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

CHAT = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{% endif %}"
)
SPECIAL = ["<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]


def make_model(folder: Path, *, quotes: bool = False, ends_thoughts: bool = False) -> Path:
    """A Llama with a byte-level BPE, in `folder`.

    With `quotes` a quotation mark has, at temperature 1, about one chance in fifteen after any token; with `ends_thoughts`
    the token `</think>` has.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    size = _tokenizer(folder)
    config = LlamaConfig(
        vocab_size=size, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, bos_token_id=None, eos_token_id=0,
        pad_token_id=1, tie_word_embeddings=False, dtype="float32",
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        model.lm_head.weight.mul_(8)  # logits far apart: which token is likeliest does not hang on the last bit
        model.lm_head.weight[: len(SPECIAL)] = 0  # of hundreds of others one is always above zero
        if quotes:
            _close_strings(model, _vocabulary(folder)['"'])
        if ends_thoughts:
            _close_strings(model, SPECIAL.index("</think>"))
    model.save_pretrained(folder)
    return folder


def _close_strings(model: Any, quote: int) -> None:
    """Gives a quotation mark a steady chance, and lets attention pick single tokens, which differ from prompt to prompt."""
    model.model.embed_tokens.weight[:, 0] = 0.1  # the same in every token, so a weight of it is a bias
    model.lm_head.weight[:, 0] = 0
    model.lm_head.weight[quote, 0] = 13
    for layer in model.model.layers:
        attention = layer.self_attn
        for projection, factor in ((attention.q_proj, 12), (attention.k_proj, 12), (attention.o_proj, 4)):
            projection.weight.mul_(factor)
        for into in (attention.q_proj, attention.k_proj):
            into.weight[:, 0] = 0
        for out in (attention.o_proj, layer.mlp.down_proj):
            out.weight[0] = 0


def _vocabulary(folder: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return found


def make_lora(folder: Path, model: Path) -> Path:
    """A LoRA adapter of `model` (rank 4, on the query and value projections), in `folder`."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((model / "config.json").read_text())
    hidden, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    generator = torch.Generator().manual_seed(1)
    rank, tensors = 4, {}
    for layer in range(config["num_hidden_layers"]):
        for name, out in (("q_proj", hidden), ("v_proj", hidden // heads * kv)):
            key = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(rank, hidden, generator=generator)
            tensors[f"{key}.lora_B.weight"] = torch.randn(out, rank, generator=generator)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
        "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": str(model),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def _tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = [inspect.getsource(module) for module in (argparse, difflib, textwrap)]  # English that no change of ours changes
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=1536, special_tokens=SPECIAL, initial_alphabet=alphabet))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|pad|>",
        "model_max_length": 4096, "chat_template": CHAT, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return int(tokenizer.get_vocab_size())
