"""Loads models through transformers, and language models that rerank through FlagEmbedding, whose import takes seconds.

Of all functions here: `model` is a folder, `package:NAME` or a hub name; `dtype` "float32", "float16" or "bfloat16"; `device`
"cpu" or "cuda:0"; `trust_remote_code` says whether code beside the weights may run. They raise RetrieverError if there is no
such model, its files cannot be loaded, it needs code that is not trusted, or the device does not exist.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.models import resolve_model


def open_flag_llm(model: str, dtype: str, device: str, trust_remote_code: bool, **arguments: Any) -> Any:
    """Returns FlagEmbedding's reranker of a language model, with its `.model` on the device, in the given precision.

    Its class is given: by itself FlagEmbedding takes it from the last part of the path, which is a commit for models of the
    hub. Callers must keep the returned object: when it is deleted, it moves its model to the CPU. `arguments` are further
    ones of the class.
    """

    def make(folder: str) -> Any:
        opened = importlib.import_module("FlagEmbedding").FlagAutoReranker.from_finetuned(
            folder, model_class="decoder-only-base", devices=device, use_fp16=dtype == "float16", use_bf16=dtype == "bfloat16",
            trust_remote_code=trust_remote_code, **arguments,
        )  # fmt: skip
        if dtype == "float16":
            opened.model.half()  # FlagEmbedding would do so at the first call, with all weights on the device in float32
        return opened

    return _load(f"rerank: model {model}", model, device, trust_remote_code, make)


def open_transformer(what: str, model: str, kind: str, dtype: str, device: str, trust_remote_code: bool) -> Any:
    """Returns a model of transformers: its `.tokenizer`, and `.model` on the device in the given precision.

    `what` is its use and name, for messages; `kind` the class of transformers that opens it, such as "AutoModelForCausalLM".
    """

    def make(folder: str) -> Any:
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        network = getattr(transformers, kind).from_pretrained(
            folder, dtype=getattr(torch, dtype), trust_remote_code=trust_remote_code
        )
        return SimpleNamespace(tokenizer=tokenizer, model=network)

    return _load(what, model, device, trust_remote_code, make)


def _load(what: str, model: str, device: str, trust_remote_code: bool, make: Callable[[str], Any]) -> Any:
    folder = resolve_model(model, code=trust_remote_code)
    try:
        from transformers.utils import logging

        logging.disable_progress_bar()  # the output of a worker is no terminal
        opened = make(str(folder))
    except Exception as e:  # corrupt weights, an architecture unknown here
        if not trust_remote_code and "trust_remote_code" in str(e):
            words = "needs code that lies beside its weights; set trust_remote_code: true if you trust it, or name another"
            raise RetrieverError("model", f"{what} {words}") from e
        raise RetrieverError("model", f"{what} cannot be loaded: {type(e).__name__}: {one_line(e)}; name another") from e
    try:
        opened.model.to(device).eval()
    except (RuntimeError, AssertionError) as e:
        words = f"no device {device} here, or no memory there: {one_line(e)}"
        remedy = "set cluster.retrieve.gpus and cluster.rerank.gpus as they should be"
        raise RetrieverError("cluster-small", f"{what}: {words}; {remedy}") from e
    return opened
