"""The order of the stages, written once: `CHAIN`. A run is a job of one arm, an ablation of many.

One row is one query in every stage; every stage is a map; a block is a shard. Each stage's class declares its input and output
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from cluster.cause import one_line
from cluster.http import encodable
from cluster.isolation import KilledWorkerError
from cluster.run.pool_sizes import Pool
from cluster.run.stage import Stage, Worker, link
from jobs.chain.arms.opened import OpenedBy
from jobs.chain.arms.pools import rewriting_pool
from jobs.chain.arms.requests import called, opened_together
from jobs.chain.arms.shared_work import Reading, SharedWork
from jobs.chain.counts import added_failures
from jobs.chain.engines import AskedFor
from jobs.chain.stages.gate import Gating
from jobs.chain.stages.llm.generate import Generate
from jobs.chain.stages.llm.grade import Grade
from jobs.chain.stages.llm.iterate import Iterate
from jobs.chain.stages.llm.judge import Judge
from jobs.chain.stages.read import Read
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.rewrite import Rewrite, RewriteFurther, ToRead
from jobs.chain.stages.score import Score
from jobs.chain.stages.web.search_web import SearchWeb
from jobs.chain.stages.write import Write
from jobs.chain.store.files import StoreFiles
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.pools import Workers, device, sharing_workers
from jobs.job.prepare import Prepared
from jobs.job.shipping import absolute
from jobs.tables import FAILED, KILLED, SHARD, error_row, with_appended, with_columns, without_columns
from retrievers.rerankers.settings import RerankerSettings


@dataclass(frozen=True)
class Step:
    """One stage of the chain."""

    name: str
    worker: Callable[..., Worker]
    pool: str | None = None  # key of the config's `cluster`; None: a stateless stage, run as tasks
    costs_as: str | None = None  # value of `costs.stage` where it differs from the name
    fails_alone: bool = False  # a query on which its worker raises goes on without it
    asks: bool = False  # an LLM: its workers ask for money before they spend it


CHAIN = (
    Step("read", Read),
    Step("gate", Gating, "gate", fails_alone=True),  # only where the originals are searched before rewriting
    Step("rewrite", Rewrite, "rewrite", "rewrite", asks=True),  # once for each common engine
    Step("retrieve", Retrieve, "retrieve", fails_alone=True),
    Step("score", Score, "rerank", "rerank", True),  # only with a reranker
    Step("iterate", Iterate, "iterate", "iterate", True, asks=True),  # only with further rounds
    Step("grade", Grade, "grade", "grade", True, asks=True),  # only where results are graded
    Step("web", SearchWeb, "web", "web", True),  # only where the web is asked then
    Step("generate", Generate, "answer", "answer", True, asks=True),  # only where an LLM answers
    Step("judge", Judge, "judge", "judge", True, asks=True),  # only where an LLM judges
    Step("write", Write),
)
_COSTED = [name for step in CHAIN for name in (step.costs_as or step.name, *(["fuse"] if step.name == "retrieve" else []))]
COSTED = tuple(dict.fromkeys(_COSTED))  # the values of `costs.stage`, in chain order
ASKING = tuple(step.costs_as or step.name for step in CHAIN if step.asks)


def stages(
    prepared: Prepared,
    work: SharedWork,
    pooled: Config,
    pools: Mapping[str, Pool],
    rerankers: Sequence[RerankerSettings],
    start: int,
    store: StoreFiles,
    gold: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Stage]:
    """Returns the stages of a job, linked, with the constructor arguments of their workers.

    `gold`: query_id -> gold answers, which a judge is shown.
    """
    work = _for_workers(work, sharing_workers(pooled, pools, rerankers))
    of_results = replace(work, readings=())  # their workers need no parser of answers
    run, size = prepared.storage.root, prepared.config.cluster.shard_size
    arguments: dict[str, dict[str, dict[str, Any]]] = {  # step -> its stages -> the constructor arguments of their workers
        "read": {"read": {"run": run}},
        "rewrite": _rewriting(prepared, work, pools, start, store),
        "retrieve": {"retrieve": {"work": work, "device": device(pools["retrieve"]), "run": run, "store": store}},
        "write": {"write": {"work": of_results, "run": run, "start": start}},
    }
    gates = {number: one.gate for number, one in enumerate(work.readings) if one.gate is not None}
    if gates:
        gating = {"work": of_results, "gates": gates, "device": device(pools["gate"]), "store": store}
        arguments["gate"] = {"gate": gating}
    if work.rerankers:
        scoring = {"work": of_results, "store": store, "device": device(pools["rerank"])}
        arguments["score"] = {"score": scoring}
    blocks = [
        max((engine.blocks_in_flight(one.settings, size) for one in of), default=1) for of in opened_together(work).values()
    ]
    at_once = dict(zip(arguments["rewrite"], blocks, strict=False))  # without an engine a stage that adds no text
    for name, stage in (("iterate", "iterate"), ("grade", "grade"), ("generate", "answer"), ("judge", "judge")):
        if work.doing(stage):
            arguments[name] = {name: {"work": work, "job": _asked_for(prepared, start, store, pools[stage])}}
            at_once[name] = max((engine.blocks_in_flight(one.engine.settings, size) for one in work.tasks(stage)), default=1)
    if "iterate" in arguments:
        arguments["iterate"]["iterate"]["device"] = device(pools["iterate"])
    if "judge" in arguments:
        arguments["judge"]["judge"]["gold"] = gold
    if any(one.web_search is not None for one in work.answers):
        arguments["web"] = {"web": {"work": work, "run": run, "store": store}}
    found = [
        Stage(
            name,
            step.worker if name == step.name else RewriteFurther,
            values,
            pool=None if step.pool is None else pools.get(name if step.pool == "rewrite" else step.pool),
            fallback=partial(without, stage=step.costs_as or step.name, worker=step.worker) if step.fails_alone else None,
            concurrent_blocks=at_once.get(name, 1),
            counts=added_failures if step.name != "write" else None,
            cost_stage=step.costs_as or "",
        )
        for step in CHAIN
        for name, values in arguments.get(step.name, {}).items()
    ]
    return link(found, SHARD)


def without(table: pa.Table, error: Exception, stage: str, worker: Any) -> pa.Table:
    """Returns a query on which a worker raised, with a row in errors, and with empty columns in place of the worker's."""
    reason = KILLED if isinstance(error, KilledWorkerError) else FAILED
    failure = error_row(stage, None, reason, encodable(f"{type(error).__name__}: {one_line(error)}"))
    table = without_columns(with_appended(table, "errors", [[failure]]), getattr(worker, "DROPS", ()))
    empty: list[Any] | None = None if worker is Score else []  # a query without scores is ranked as it was fused
    return with_columns(table, worker.ADDS, (pa.array([empty] * table.num_rows, field.type) for field in worker.ADDS))


def _rewriting(
    prepared: Prepared, work: SharedWork, pools: Mapping[str, Pool], start: int, store: StoreFiles
) -> dict[str, dict[str, Any]]:
    """Returns a stage for each common engine with the arguments of its workers; without any, one that adds no text."""
    names, found = called(work.readings), dict[str, dict[str, Any]]()
    for number, key in enumerate(work.engines or [None], start=1):
        readings = [
            ToRead(one, names[place], _arms_of(work, one), place)
            for place, one in enumerate(work.readings)
            if one.engines and one.engines[""].key == key
        ]
        name = rewriting_pool(number)
        job = _asked_for(prepared, start, store, pools.get(name))
        found[name] = {"readings": readings, "job": job, "counts_needs": work.only is None}
    return found


def _asked_for(prepared: Prepared, start: int, store: StoreFiles, pool: Pool | None) -> AskedFor:
    """Returns the job for which the workers of a pool ask LLMs; without a pool they have no accelerator."""
    prices = prepared.prices if prepared.config.limits.max_cost_usd is not None else None
    gpus = 0.0 if pool is None else pool.gpus
    return AskedFor(prepared.storage.root, store, start, gpus, prices)


def _arms_of(work: SharedWork, reading: Reading) -> list[tuple[str, frozenset[str]]]:
    return [(one.arm, one.strategies) for one in work.answers if work.reading_of(one) is reading]


def _for_workers(work: SharedWork, workers: Workers) -> SharedWork:
    """Returns the work with absolute paths, and with their share of requests in flight for retrievers and rerankers."""

    def opened(one: OpenedBy) -> OpenedBy:
        return replace(one, settings=absolute(one.settings.at(one.identity).for_worker(workers)))

    retrievers = {key: opened(one) for key, one in work.retrievers.items()}
    rerankers = tuple(replace(one, settings=absolute(one.settings.for_worker(workers))) for one in work.rerankers)
    answers = tuple(one if one.web_search is None else replace(one, web_search=opened(one.web_search)) for one in work.answers)
    return replace(work, retrievers=retrievers, rerankers=rerankers, answers=answers)
