"""Loads models through FlagEmbedding, on one device and in one precision.

Its class is always given: by itself FlagEmbedding takes it from the last part of the path, which is a commit for models of
the hub. Callers must keep the returned object: when it is deleted, it moves its model to the CPU.

Of all functions here: `model` is a folder, `package:NAME` or a hub name; `dtype` "float32", "float16" or "bfloat16"; `device`
"cpu" or "cuda:0"; `trust_remote_code` says whether code beside the weights may run. They raise RetrieverError if there is no
such model, its files cannot be loaded, it needs code that is not trusted, or the device does not exist.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from cluster.cause import one_line
from cluster.errors import RetrieverError
from retrievers.models import disable_progress_bars, resolve_model

CLASSES = {
    "encoder": "encoder-only-base",
    "llm": "decoder-only-base",
}


def open_flag_encoder(model: str, dtype: str, device: str, trust_remote_code: bool) -> Any:
    """Returns a `FlagModel` whose `.model` is on the device, in the given precision; its pooling is not used."""

    def make(folder: str) -> Any:
        return _library().FlagAutoModel.from_finetuned(
            folder, model_class=CLASSES["encoder"], pooling_method="cls", devices=device, query_instruction_format="{}{}",
            use_fp16=dtype == "float16", use_bf16=dtype == "bfloat16", trust_remote_code=trust_remote_code,
        )  # fmt: skip

    return _load(f"encoder {model}", model, device, trust_remote_code, make)


def open_flag_reranker(
    model: str, architecture: str, dtype: str, device: str, trust_remote_code: bool, **arguments: Any
) -> Any:
    """Returns FlagEmbedding's reranker of an architecture, with its `.model` on the device, in the given precision.

    `architecture` is a key of `CLASSES`; `arguments` are further ones of FlagEmbedding's class.
    """

    def make(folder: str) -> Any:
        if architecture != "encoder":
            arguments["use_bf16"] = dtype == "bfloat16"
        opened = _library().FlagAutoReranker.from_finetuned(
            folder, model_class=CLASSES[architecture], devices=device, use_fp16=dtype == "float16",
            trust_remote_code=trust_remote_code, **arguments,
        )  # fmt: skip
        if architecture == "encoder":
            # FlagReranker loads weights in the precision of their file. Buffers are not converted: the frequencies of rotary
            # positions stay float32, as when transformers loads a model.
            import torch

            for weight in opened.model.parameters():
                weight.data = weight.data.to(getattr(torch, dtype))
        elif dtype == "float16":
            opened.model.half()  # FlagEmbedding would do so at the first call, with all weights on the device in float32
        return opened

    return _load(f"rerank: model {model}", model, device, trust_remote_code, make)


def open_transformer(what: str, model: str, kind: str, dtype: str, device: str, trust_remote_code: bool) -> Any:
    """Returns a model that FlagEmbedding has no class for: its `.tokenizer`, and `.model` on the device in the given precision.

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


def _library() -> Any:
    """Returns the package FlagEmbedding.

    Its first import loads 4,600 modules and frees next to nothing, while Python's garbage collector would look through all of
    them again and again: 4.2 s of CPU time with it, 3.0 s without (two cores).
    """
    if "FlagEmbedding" not in sys.modules:
        collects = gc.isenabled()
        gc.disable()
        try:
            importlib.import_module("FlagEmbedding")
            gc.freeze()
            atexit.register(gc.unfreeze)  # the library's own checks at the end want all objects freed
        finally:
            if collects:
                gc.enable()
    return sys.modules["FlagEmbedding"]


def _load(what: str, model: str, device: str, trust_remote_code: bool, make: Callable[[str], Any]) -> Any:
    folder = resolve_model(model, code=trust_remote_code)
    _library()
    disable_progress_bars()
    try:
        opened = make(str(folder))
    except Exception as e:  # corrupt weights, an architecture unknown here
        if not trust_remote_code and "trust_remote_code" in str(e):
            raise RetrieverError(
                "model",
                f"{what} needs code that lies beside its weights; set trust_remote_code: true if you trust it, or name another",
            ) from e
        raise RetrieverError("model", f"{what} cannot be loaded: {type(e).__name__}: {one_line(e)}; name another") from e
    try:
        opened.model.to(device).eval()
    except (RuntimeError, AssertionError) as e:
        raise RetrieverError(
            "cluster-small",
            f"{what}: no device {device} here, or no memory there: {one_line(e)}; set cluster.retrieve.gpus and "
            "cluster.rerank.gpus as they should be",
        ) from e
    return opened
