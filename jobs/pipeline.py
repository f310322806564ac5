"""The order of the stages, written once.

    shard -> read -> QUERIES -> rewrite -> REWRITTEN -> retrieve -> RETRIEVED -> fuse -> FUSED -> rerank -> RERANKED -> write

One row is one query all the way; every stage is a map; a block is a shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cluster
import jobs
import retrievers
import rewriters
from cluster.session import Pool, PoolWish
from cluster.stage import Stage
from jobs import engine
from jobs.config import Config
from jobs.engine_config import Openai, Vllm
from jobs.failures import failures
from jobs.fuse import Fuse
from jobs.prepare import Prepared
from jobs.read import Read
from jobs.rerank import Rerank, fused_order
from jobs.retrieve import Retrieve, without_lists
from jobs.retriever_opening import asking, capped, opened
from jobs.rewrite import Rewrite
from jobs.tables import COMMITTED, FUSED, QUERIES, RERANKED, RETRIEVED, REWRITTEN, SHARD
from jobs.write import Write

_FILES = {"index", "model", "ca_file"}


def wishes(config: Config) -> dict[str, PoolWish]:
    """The pools that the job needs, as the config has them."""
    encodes = config.dense_retriever is not None
    pools = {"retrieve": PoolWish(**config.cluster.retrieve.model_dump(), device=encodes)}
    if config.rewrite.planned:
        pools = {"rewrite": _rewriting(config)} | pools
    if config.rerank.kind != "none":
        pools["rerank"] = PoolWish(**config.cluster.rerank.model_dump(), device=True)
    return capped(config, pools)


def stages(prepared: Prepared, pools: Mapping[str, Pool], start: int) -> list[Stage]:
    """The stages of a run, with what their workers are built from."""
    config, run = prepared.config, prepared.storage.root
    sharing = sum(pools[name].workers for name in asking(config))
    retrievers = {
        name: _absolute(opened(retriever, prepared.indexes.get(name, {}), sharing))
        for name, retriever in config.retrieve.retrievers.items()
    }
    rewrite = {
        "engine": prepared.engine,
        "strategies": config.rewrite.planned,
        "calls": config.rewrite.calls,
        "decoding": config.rewrite.decoding.model_dump(),
        "run": run,
        "start": start,
        "gpus": pools["rewrite"].gpus if "rewrite" in pools else 0.0,
    }
    retrieve = {
        "retrievers": retrievers,
        "identities": prepared.indexes,
        "routes": config.retrieve.routes,
        "depth": config.retrieve.depth,
        "dense": config.dense_retriever if config.used_redundancy == "cosine" else None,
        "device": device(pools["retrieve"]),
    }
    fuse = {"settings": config.fuse.model_dump()}
    rerank = {
        "settings": _absolute(config.reranking),
        "documents": next(iter(retrievers.items())),
        "corpus": prepared.indexes.get(next(iter(retrievers)), {}).get("corpus"),
        "device": device(pools["rerank"]) if "rerank" in pools else "cpu",
    }
    write = {
        "run": run,
        "planned": len(config.rewrite.planned),
        "keep_runs": config.retrieve.keep_runs,
        "start": start,
    }
    in_fused_order = partial(fused_order, keep=config.rerank.keep)
    line = [
        Stage("read", Read, {"run": run}, SHARD, QUERIES),
        Stage("rewrite", Rewrite, rewrite, QUERIES, REWRITTEN, pools.get("rewrite"), blocks=_blocks(config)),
        Stage("retrieve", Retrieve, retrieve, REWRITTEN, RETRIEVED, pools["retrieve"], fallback=without_lists),
        Stage("fuse", Fuse, fuse, RETRIEVED, FUSED),
        Stage("rerank", Rerank, rerank, FUSED, RERANKED, pools.get("rerank"), fallback=in_fused_order),
    ]
    counted = [replace(stage, counts=partial(failures, stage=stage.name)) for stage in line]
    return [*counted, Stage("write", Write, write, RERANKED, COMMITTED)]


def _rewriting(config: Config) -> PoolWish:
    """A vLLM engine computes, on as many accelerators as its arguments say; one worker is enough to talk to a server."""
    wish = PoolWish(**config.cluster.rewrite.model_dump())
    if isinstance(config.rewrite.engine, Vllm):
        gpus = float(config.rewrite.engine.gpus) if wish.gpus is None else wish.gpus
        return replace(wish, gpus=gpus, device=True, fills=True)
    if isinstance(config.rewrite.engine, Openai):
        return replace(wish, workers=wish.workers or 1)
    return wish


def _blocks(config: Config) -> int:
    return engine.blocks(config.rewrite.engine, config.cluster.shard_size) if config.rewrite.engine else 1


def _absolute(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose names of files are absolute: a worker of another Ray has another current folder."""
    return {
        key: _absolute(value)
        if isinstance(value, dict)
        else str(Path(value).absolute())
        if key in _FILES and value and not (key == "index" and settings.get("kind") == "elastic") and Path(value).exists()
        else value
        for key, value in settings.items()
    }


def code() -> list[str]:
    """The folders of the four packages, for workers on machines that have not installed them."""
    return [str(Path(package.__path__[0])) for package in (cluster, jobs, retrievers, rewriters)]


def device(pool: Pool) -> str:
    """Where a worker of the pool computes; Ray shows each worker its own accelerator as the first."""
    return "cuda:0" if pool.gpus else "cpu"
