"""The order of the stages, written once: `CHAIN`. A run is a job of one arm, an ablation of many.

One row is one query in every stage; every stage is a map; a block is a shard. Each stage's class declares its input and output
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from cluster.metrics.table import MetricSample
from cluster.run.pools import Pool
from cluster.run.stage import Stage, Worker, link
from jobs.chain.arms.requests import called
from jobs.chain.arms.shared_work import AnsweredBy, OpenedBy, Reading, SharedWork
from jobs.chain.metric_samples import exports_metrics, rewrite_samples, score_samples
from jobs.chain.stages.counts import added_failures
from jobs.chain.stages.fuse import Fuse
from jobs.chain.stages.order import Order
from jobs.chain.stages.read import Read
from jobs.chain.stages.retrieve import Retrieve, without_lists
from jobs.chain.stages.rewrite import Rewrite, RewriteFurther, ToRead
from jobs.chain.stages.score import Score, without_scores
from jobs.chain.stages.write import Write
from jobs.chain.store.files import StoreFiles
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.pools import device
from jobs.job.prepare import Prepared
from jobs.job.request_shares import Workers, reranker_settings, sharing_workers, worker_settings
from jobs.job.shipping import absolute
from jobs.tables import SHARD
from retrievers.settings import RerankSettings

Fallback = Callable[[pa.Table, Exception], pa.Table]


@dataclass(frozen=True)
class Step:
    """One stage of the chain."""

    name: str
    worker: Callable[..., Worker]
    pool: str | None = None  # key of the config's `cluster`; None: a stateless stage, run as tasks
    costs_as: str | None = None  # value of `costs.stage` where it differs from the name
    fallback: Fallback | None = None


CHAIN = (
    Step("read", Read),
    Step("rewrite", Rewrite, "rewrite"),  # once for each common engine
    Step("retrieve", Retrieve, "retrieve", fallback=without_lists),
    Step("fuse", Fuse),
    Step("score", Score, "rerank", "rerank", without_scores),  # only with a reranker
    Step("order", Order),
    Step("write", Write),
)
COSTED = tuple(dict.fromkeys(step.costs_as or step.name for step in CHAIN))  # the values of `costs.stage`, in chain order


def stages(
    prepared: Prepared,
    work: SharedWork,
    pooled: Config,
    pools: Mapping[str, Pool],
    rerankers: Sequence[RerankSettings],
    start: int,
    store: StoreFiles,
) -> list[Stage]:
    """Returns the stages of a job, linked, with the constructor arguments of their workers.

    Args:
        prepared: The job.
        work: Of its arms.
        pooled: The config whose pools it needs.
        pools: The sized pools.
        rerankers: Of all arms.
        start: The number of this start of the job, from 1.
        store: What other jobs have made.
    """
    workers = sharing_workers(pooled, pools, rerankers)
    work = _for_workers(work, workers)
    settings = _settings(prepared, work, pools, start, store)
    samples = _samples(prepared, work)
    found = []
    for step in CHAIN:
        if step.name == "rewrite":
            found += _rewriting(prepared, work, pools, start, store, samples.get("rewrite"))
        elif step.name in settings:
            found.append(
                Stage(
                    step.name,
                    step.worker,
                    settings[step.name],
                    pool=pools.get(step.pool) if step.pool else None,
                    fallback=step.fallback,
                    counts=partial(added_failures, stage=step.costs_as or step.name) if step.name != "write" else None,
                    samples=samples.get(step.name),
                    cost_stage=step.costs_as or "",
                )
            )
    return link(found, SHARD)


def _settings(
    prepared: Prepared, work: SharedWork, pools: Mapping[str, Pool], start: int, store: StoreFiles
) -> dict[str, dict[str, Any]]:
    """Returns the constructor arguments of the workers of each stage but rewriting; stages left out are not run."""
    run = prepared.storage.root
    settings: dict[str, dict[str, Any]] = {
        "read": {"run": run},
        "retrieve": {"work": work, "device": device(pools["retrieve"]), "run": run, "store": store},
        "fuse": {"work": work},
        "order": {"work": work},
        "write": {"work": work, "run": run, "start": start},
    }
    if work.rerankers:
        documents = {key: (work.retrievers[key].name, work.retrievers[key].settings) for key in
                     {one.documents for one in work.rerankers}}  # fmt: skip
        settings["score"] = {
            "rerankers": work.rerankers,
            "documents": documents,
            "device": device(pools["rerank"]),
            "store": store,
        }
    return settings


def _rewriting(
    prepared: Prepared,
    work: SharedWork,
    pools: Mapping[str, Pool],
    start: int,
    store: StoreFiles,
    samples: Callable[..., Any] | None,
) -> list[Stage]:
    """Returns a stage for each common engine; without any, one that adds no text."""
    limits = prepared.config.limits
    common = {
        "run": prepared.storage.root,
        "store": store,
        "start": start,
        "prices": prepared.prices if limits.max_cost_usd is not None else None,
        "unsaved_seconds": limits.unsaved_seconds,
        "counts_needs": work.only is None,
    }
    names = called(work.readings)
    found = []
    engines: list[tuple[str | None, AnsweredBy | None]] = list(work.engines.items()) or [(None, None)]
    for number, (key, of) in enumerate(engines, start=1):
        readings = [
            ToRead(one, names[place], _arms_of(work, one))
            for place, one in enumerate(work.readings)
            if one.engines and one.engines[""].key == key
        ]
        name = "rewrite" if number == 1 else f"rewrite_{number}"
        pool = pools.get(name)
        found.append(
            Stage(
                name,
                Rewrite if number == 1 else RewriteFurther,
                common | {"readings": readings, "gpus": pool.gpus if pool else 0.0},
                pool=pool,
                concurrent_blocks=engine.blocks_in_flight(of.settings, prepared.config.cluster.shard_size) if of else 1,
                counts=partial(added_failures, stage="rewrite"),
                samples=samples,
                cost_stage="rewrite",
            )
        )
    return found


def _arms_of(work: SharedWork, reading: Reading) -> list[tuple[str, frozenset[str]]]:
    """Returns the arms of a reading with their strategies."""
    return [(one.arm, one.strategies) for one in work.answers if work.readings[work.searches[one.search].reading] is reading]


def _for_workers(work: SharedWork, workers: Workers) -> SharedWork:
    """Returns the work with absolute paths, and with their share of requests in flight for retrievers and rerankers."""

    def opened(one: OpenedBy) -> OpenedBy:
        return replace(one, settings=absolute(worker_settings(one.settings, one.identity, workers)))

    retrievers = {key: opened(one) for key, one in work.retrievers.items()}
    rerankers = tuple(replace(one, settings=absolute(reranker_settings(one.settings, workers))) for one in work.rerankers)
    return replace(work, retrievers=retrievers, rerankers=rerankers)


def _samples(prepared: Prepared, work: SharedWork) -> dict[str, Callable[[pa.Table], Sequence[MetricSample]]]:
    """Returns stage -> what it finds in a block of one arm for the metrics; none where none are exported."""
    if work.only is None or not exports_metrics(prepared.config):
        return {}
    raw = prepared.identity.get("rerank", {}).get("raw_scores", False)  # of a server; not every one gives logits
    logits = prepared.config.rerank.kind == "cross_encoder" or raw
    return {"rewrite": rewrite_samples, "order": partial(score_samples, logits=logits, rerankers=len(work.rerankers))}
