"""The engine of a stage that calls an LLM: from the config's words to what a worker opens, and to what identifies it."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.copies import copied, fresh, said_of
from cluster.s3 import S3Storage
from cluster.stage import pulse
from cluster.storage import remote
from jobs.engine_config import Engine, Recorded, Vllm
from jobs.part import ConfigError
from retrievers.models import local_folder, model_identity
from retrievers.retriever import named
from rewriters.engines import Engine as RunningEngine
from rewriters.engines import open_engine
from rewriters.errors import RewriterError

MOST_BLOCKS = 8  # shards that a worker has under way: each one is held in memory, and a process brings it there


def resolve(engine: Engine) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a worker opens the engine with, and the engine's identity for the fingerprint.

    Names of files become absolute (a worker may have another current folder), a hub model's revision becomes the commit
    that it is now. Nothing is asked of a server here: `check` does that.

    Raises RewriterError, RetrieverError or ConfigError: one line.
    """
    settings = engine.model_dump()
    weights: dict[str, Any] = {}
    if isinstance(engine, Vllm):
        with named("rewrite.engine.model"):
            settings["weights"], weights["weights"] = _weights(engine.model, engine.revision)
        commit = weights["weights"].removeprefix("commit:")
        settings["revision"] = commit if commit != weights["weights"] else None
        if engine.lora:
            with named("rewrite.engine.lora"):
                settings["lora"], weights["lora_weights"] = _weights(engine.lora, None)
            settings["lora_name"] = engine.lora
    if isinstance(engine, Recorded) and not remote(engine.path):
        settings["path"] = str(Path(engine.path).absolute())
    opened = open_here(settings)
    try:
        return settings, opened.identity() | weights
    finally:
        opened.close()


def open_here(settings: Mapping[str, Any]) -> RunningEngine:
    """`rewriters.engines.open_engine`; completions that lie on S3 are copied once to each machine that reads them."""
    url = settings.get("path", "")
    if settings["kind"] != "recorded" or not remote(url):
        return open_engine(settings)
    folder, _, name = url.rpartition("/")
    copy = fresh(lambda: _copied(S3Storage(folder), name))
    with said_of(url, copy / name, RewriterError):
        return open_engine({**settings, "path": str(copy / name)})


def _copied(storage: S3Storage, name: str) -> Path:
    entry = storage.stat(name)
    if entry is None:
        raise RewriterError(f"recorded completions {storage.url(name)}: there is no such object; correct rewrite.engine.path")
    copy = copied(storage, [entry], f"{entry.etag} {entry.size}", name=name, tell=pulse)
    assert copy is not None
    return copy


def check(settings: dict[str, Any], local: bool) -> None:
    """RewriterError for what would make all work vain: a server that is not there, a wrong key, an unknown model.

    local: workers run on this machine, so what they need must be installed here.
    """
    if settings["kind"] == "recorded":  # read whole when it was resolved
        return
    if settings["kind"] == "vllm" and not local and importlib.util.find_spec("vllm") is None:
        return
    engine = open_here(settings)
    try:
        engine.check()
    finally:
        engine.close()


def blocks(engine: Engine, shard_size: int) -> int:
    """How many shards a worker needs under way to keep its engine busy: twice what it works on at a time, so that the
    slowest requests of one shard leave no place empty."""
    if isinstance(engine, Recorded):
        return 1
    in_flight = engine.args.get("max_num_seqs", 256) if isinstance(engine, Vllm) else engine.max_in_flight
    return max(2, min(MOST_BLOCKS, 1 + math.ceil(2 * int(in_flight) / shard_size)))


def _weights(name: str, revision: str | None) -> tuple[str, str]:
    """The folder or hub name of weights, and what identifies them."""
    folder = local_folder(name)
    if folder is not None:
        return str(folder.absolute()), model_identity(name)
    if revision and "@" in name:
        raise ConfigError(f"rewrite.engine.model: {name!r} carries a revision; put it into rewrite.engine.revision")
    identity = model_identity(f"{name}@{revision}" if revision else name)
    return (name if revision else f"{name.partition('@')[0]}@{identity.removeprefix('commit:')}"), identity
