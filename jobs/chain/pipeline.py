"""The order of the stages, written once: `CHAIN`. A run is a job of one arm, an ablation of many.

One row is one query in every stage; every stage is a map; a block is a shard. Each stage's class declares its input and output
columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from cluster.run.pool_sizes import Pool
from cluster.run.stage import Stage, Worker, link
from jobs.chain.arms.requests import opened_together
from jobs.chain.arms.resources import AnsweredBy, OpenedBy
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.counts import added_failures
from jobs.chain.stages.gate import Gating
from jobs.chain.stages.llm.generate import Generate
from jobs.chain.stages.llm.grade import Grade
from jobs.chain.stages.llm.iterate import Iterate
from jobs.chain.stages.llm.judge import Judge
from jobs.chain.stages.read import Read
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.rewrite import Rewrite, RewriteFurther
from jobs.chain.stages.score import Score
from jobs.chain.stages.web.search_web import SearchWeb
from jobs.chain.stages.write import Write
from jobs.chain.store.files import StoreFiles
from jobs.chain.worker import WorkerJob
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.paths import absolute
from jobs.job.pools import Workers, rewriting_pool, sharing_workers
from jobs.job.prepare import Prepared
from jobs.tables import SHARD, failure_row, with_appended, with_columns, without_columns


def _doing(stage: str) -> Callable[[SharedWork], bool]:
    return lambda work: bool(work.doing(stage))


@dataclass(frozen=True)
class Step:
    """One stage of the chain, whose workers are built from a `WorkerJob`."""

    name: str
    worker: Callable[..., Worker]
    pool: str | None = None  # key of the config's `cluster`, and value of `costs.stage`; None: a stateless stage
    fails_alone: bool = False  # a query on which its worker raises goes on without it
    asks: bool = False  # an LLM: its workers ask for money before they spend it
    wanted: Callable[[SharedWork], bool] = lambda _: True  # whether a job has it


CHAIN = (
    Step("read", Read),
    # searches the originals before rewriting
    Step("gate", Gating, "gate", fails_alone=True, wanted=lambda work: any(one.gate for one in work.readings)),
    Step("rewrite", Rewrite, "rewrite", asks=True),  # once for each common engine
    Step("retrieve", Retrieve, "retrieve", fails_alone=True),
    Step("score", Score, "rerank", True, wanted=lambda work: bool(work.rerankers)),
    Step("iterate", Iterate, "iterate", True, asks=True, wanted=_doing("iterate")),  # further rounds
    Step("grade", Grade, "grade", True, asks=True, wanted=_doing("grade")),
    Step("web", SearchWeb, "web", True, wanted=lambda work: any(one.web_search for one in work.answers)),
    Step("generate", Generate, "answer", True, asks=True, wanted=_doing("answer")),
    Step("judge", Judge, "judge", True, asks=True, wanted=_doing("judge")),
    Step("write", Write),
)
_COSTED = [name for step in CHAIN for name in (step.pool or step.name, *(["fuse"] if step.name == "retrieve" else []))]
COSTED = tuple(dict.fromkeys(_COSTED))  # the values of `costs.stage`, in chain order
ASKING = tuple(step.pool or step.name for step in CHAIN if step.asks)


def stages(
    prepared: Prepared,
    work: SharedWork,
    configs: Sequence[Config],
    pools: Mapping[str, Pool],
    start: int,
    store: StoreFiles,
    gold: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Stage]:
    """Returns the stages of a job, linked, with the constructor arguments of their workers.

    `configs` are those of its arms; `gold`: query_id -> gold answers, which a judge is shown.
    """
    work = _for_workers(work, sharing_workers(pools, *configs))
    prices = prepared.prices if prepared.config.limits.max_cost_usd is not None else None
    job, chain = WorkerJob(work, prepared.storage.root, store, start, prices=prices), list[Stage]()
    for step in (step for step in CHAIN if step.wanted(work)):
        for name, worker, settings, engines in _workers_of(step, work):
            pool = None if step.pool is None else pools.get(name if step.worker is Rewrite else step.pool)
            own = replace(job, gpus=0.0 if pool is None else pool.gpus, gold=gold if step.worker is Judge else {})
            at_once = [engine.blocks_in_flight(one.settings, prepared.config.cluster.shard_size) for one in engines]
            chain.append(
                Stage(
                    name,
                    worker,
                    {"job": own, **settings},
                    pool=pool,
                    fallback=partial(without, stage=step.pool or name, worker=worker) if step.fails_alone else None,
                    concurrent_blocks=max(at_once, default=1),
                    counts=added_failures if step.name != "write" else None,
                    cost_stage=step.pool or "",
                )
            )
    return link(chain, SHARD)


def _workers_of(
    step: Step, work: SharedWork
) -> Iterator[tuple[str, Callable[..., Worker], dict[str, Any], Sequence[AnsweredBy]]]:
    """Yields each stage of a step: its name, its workers, more that they are built from, and the engines that each opens."""
    if step.worker is not Rewrite:
        yield step.name, step.worker, {}, [task.engine for task in work.tasks(step.pool or "")]
        return
    together = opened_together(work)
    for number, key in enumerate(together or [None], start=1):  # without an engine a stage that adds no text
        worker = Rewrite if number == 1 else RewriteFurther
        yield rewriting_pool(number), worker, {"engine": key}, together[key] if key is not None else []


def without(table: pa.Table, error: Exception, stage: str, worker: Any) -> pa.Table:
    """Returns a query on which a worker raised, with a row in errors, and with empty columns in place of the worker's."""
    table = without_columns(with_appended(table, "errors", [[failure_row(stage, error)]]), getattr(worker, "DROPS", ()))
    empty = [pa.array([[-1] if field.name == "unscored" else []] * table.num_rows, field.type) for field in worker.ADDS]
    return with_columns(table, worker.ADDS, empty)


def _for_workers(work: SharedWork, workers: Workers) -> SharedWork:
    """Returns the work with absolute paths, and with their share of requests in flight for retrievers and rerankers."""

    def opened(own: OpenedBy) -> OpenedBy:
        return replace(own, settings=absolute(own.settings.at(own.identity).for_worker(workers)))

    retrievers = {key: opened(one) for key, one in work.retrievers.items()}
    rerankers = tuple(replace(one, settings=absolute(one.settings.for_worker(workers))) for one in work.rerankers)
    answers = tuple(one if one.web_search is None else replace(one, web_search=opened(one.web_search)) for one in work.answers)
    return replace(work, retrievers=retrievers, rerankers=rerankers, answers=answers)
