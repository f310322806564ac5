"""Rerankers, tiny and with random weights: of the kind of bge-reranker-v2-m3 (XLM-RoBERTa, one logit) and of -v2-gemma."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def make_tokenizer(texts: Sequence[str], tokens: int = 128) -> Any:
    """A tokenizer with the vocabulary of `texts` that takes so many tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = Tokenizer(models.Unigram())
    pieces.normalizer = normalizers.NFKC()
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=1000, special_tokens=special, unk_token="<unk>")
    pieces.train_from_iterator(list(texts) * 5, trainer)
    pieces.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", model_max_length=tokens, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def make_reranker(folder: Path, texts: Sequence[str], tokens: int = 128) -> Path:
    """Its files, in `folder`; the vocabulary is that of `texts`, and it takes so many tokens."""
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

    tokenizer = make_tokenizer(texts, tokens)
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=tokens + 2, type_vocab_size=1, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    XLMRobertaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_gemma(folder: Path, texts: Sequence[str]) -> Path:
    """A language model as bge-reranker-v2-gemma, whose score is the logit of "Yes"; its files, in `folder`."""
    import torch
    from transformers import GemmaConfig, GemmaForCausalLM

    tokenizer = make_tokenizer([*texts, "Yes No A: B: query passage"], 512)
    torch.manual_seed(0)
    config = GemmaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, intermediate_size=64, max_position_embeddings=512, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        initializer_range=0.3,
    )  # fmt: skip
    GemmaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
