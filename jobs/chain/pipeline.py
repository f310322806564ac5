"""The order of the stages, written once: `CHAIN`.

One row is one query in every stage; every stage is a map; a block is a shard. Each stage's class declares its input and output
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from cluster.metrics.table import MetricSample
from cluster.run.pools import Pool
from cluster.run.stage import Stage, Worker, link
from jobs.chain.chosen import choosing_of
from jobs.chain.error_counts import added_failures
from jobs.chain.cuts import cuts_of
from jobs.chain.metric_samples import exports_metrics, rewrite_samples, score_samples
from jobs.chain.stages.fuse import Fuse
from jobs.chain.stages.order import Order
from jobs.chain.stages.read import Read
from jobs.chain.stages.retrieve import Retrieve, without_lists
from jobs.chain.stages.rewrite import Rewrite
from jobs.chain.stages.score import Score, without_scores
from jobs.chain.stages.write import Write
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.pools import device
from jobs.job.prepare import Prepared
from jobs.job.request_shares import reranker_settings, sharing_workers, worker_settings
from jobs.job.shipping import absolute
from jobs.tables import SHARD
from retrievers.hybrid.settings import all_indexed, indexed_identities
from rewriters.strategy import searched_as_one


@dataclass(frozen=True)
class Step:
    """One stage of the chain."""

    name: str
    worker: Callable[..., Worker]
    pool: str | None = None  # key of the config's `cluster`; None: a stateless stage, run as tasks
    costs_as: str | None = None  # value of `costs.stage` where it differs from the name
    fallback: Callable[[pa.Table, Exception], pa.Table] | None = None


CHAIN = (
    Step("read", Read),
    Step("rewrite", Rewrite, "rewrite"),
    Step("retrieve", Retrieve, "retrieve", fallback=without_lists),
    Step("fuse", Fuse),
    Step("score", Score, "rerank", "rerank", without_scores),  # only with a reranker
    Step("order", Order),
    Step("write", Write),
)
COSTED = tuple(dict.fromkeys(step.costs_as or step.name for step in CHAIN))  # the values of `costs.stage`, in chain order


def stages(prepared: Prepared, pools: Mapping[str, Pool], start: int) -> list[Stage]:
    """Returns the stages of a run, linked, with the constructor arguments of their workers.

    Args:
        prepared: the job.
        pools: the sized pools of `jobs.job.pools.requested_pools`.
        start: the number of this start of the run, from 1.
    """
    settings = _settings(prepared, pools, start)
    samples = _samples(prepared)
    chain = [
        Stage(
            step.name,
            step.worker,
            settings[step.name],
            pool=pools.get(step.pool) if step.pool else None,
            concurrent_blocks=_blocks(prepared.config) if step.name == "rewrite" else 1,
            fallback=step.fallback,
            counts=partial(added_failures, stage=step.costs_as or step.name) if step.name != "write" else None,
            samples=samples.get(step.name),
            cost_stage=step.costs_as or "",
        )
        for step in CHAIN
        if step.name in settings
    ]
    return link(chain, SHARD)


def _settings(prepared: Prepared, pools: Mapping[str, Pool], start: int) -> dict[str, dict[str, Any]]:
    """Returns the constructor arguments of each stage's workers; stages left out are not run."""
    config, run = prepared.config, prepared.storage.root
    workers = sharing_workers(config, pools)
    retrievers = {
        name: absolute(worker_settings(retriever, prepared.indexes.get(name, {}), workers))
        for name, retriever in config.retrieve.retrievers.items()
    }
    documents = next(iter(all_indexed(retrievers).items()))
    settings: dict[str, dict[str, Any]] = {
        "read": {"run": run},
        "rewrite": {
            "engine": prepared.engine,
            "rewriting": prepared.rewriting,
            "run": run,
            "start": start,
            "gpus": pools["rewrite"].gpus if "rewrite" in pools else 0.0,
            "prices": prepared.prices if config.limits.max_cost_usd is not None else None,
            "unsaved_seconds": config.limits.unsaved_seconds,
        },
        "retrieve": {
            "retrievers": retrievers,
            "identities": prepared.indexes,
            "routes": config.retrieve.routes,
            "depth": config.retrieve.depth,
            "fuse": config.fuse,
            "dense": config.dense_retriever if config.used_redundancy == "cosine" else None,
            "device": device(pools["retrieve"]),
            "run": run if config.retrieve.keep_runs else None,
            "cuts": cuts_of(config, prepared.rewriting.cuts),
            "typos": config.retrieve.typos,
            "as_one": searched_as_one(prepared.rewriting.pool),
            "drift": prepared.rewriting.guards.settings.drift,
            "filters": config.retrieve.filters,
            "choosing": choosing_of(config),
        },
        "fuse": {"settings": config.fuse.model_copy(update={"redundancy": config.used_redundancy}), "documents": documents},
        "order": {"combine": config.rerank.combine, "keep": config.rerank.keep},
        "write": {
            "run": run,
            "planned": len(config.rewrite.planned),
            "start": start,
            "keep_candidates": config.fuse.keep_candidates,
        },
    }
    if config.rerank.kind != "none":
        settings["score"] = {
            "settings": absolute(reranker_settings(config.reranking, workers)),
            "documents": documents,
            "corpus": indexed_identities(prepared.indexes).get(documents[0], {}).get("corpus"),
            "device": device(pools["rerank"]),
            "typos": config.retrieve.typos,
        }
    return settings


def _samples(prepared: Prepared) -> dict[str, Callable[[pa.Table], Sequence[MetricSample]]]:
    """Returns stage -> what it finds in a block for the metrics; none where none are exported."""
    if not exports_metrics(prepared.config):
        return {}
    raw = prepared.identity.get("rerank", {}).get("raw_scores", False)  # of a server; not every one gives logits
    logits = prepared.config.rerank.kind == "cross_encoder" or raw
    return {"rewrite": rewrite_samples, "order": partial(score_samples, logits=logits)}


def _blocks(config: Config) -> int:
    return engine.blocks_in_flight(config.rewrite.engine, config.cluster.shard_size) if config.rewrite.engine else 1
