"""The verb `plan`: counts the work of a run without starting it; refuses whatever the run would refuse."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from cluster.run.lease import check_free
from cluster.run.pool_sizes import Pool, PoolRequest, local_pools
from cluster.run.session import IN_PROCESS, InProcessSession, Session, usable_gpus
from cluster.run.shards import SUCCESS, check_inputs, read_plan
from cluster.storage import open_storage
from cluster.storage.copies import work_folder
from jobs.config.config import Config
from jobs.job.indexes import encoder_words
from jobs.job.prepare import Prepared
from jobs.job.shipping import package_folders
from jobs.log.dedup import dedup
from jobs.plan.before import as_before, spent_usd
from jobs.plan.missing import missing_of
from jobs.plan.sample import pay_for_sample
from jobs.plan.work import planned_saving, work_of
from jobs.run.job import Job, run_of
from jobs.run.planning.draft import check_unfinished
from jobs.run.planning.sample import PlannedQueries
from jobs.run.resume_check import check_indexes_unchanged
from jobs.run.spending import tries_per_request
from jobs.runs.tally import Tally, tally_of
from jobs.terminal.formats import unpriced
from jobs.terminal.live_display import LiveDisplay
from retrievers.models import bytes_to_fetch
from rewriters.engines.settings import EngineSettings


def plan(prepared: Prepared, progress: LiveDisplay, ablation: Job | None = None, sample: int = 0) -> dict[str, Any]:
    """Returns the planned, committed and remaining work of a run as JSON-able values; writes nothing without a `sample`.

    A `sample` of so many queries of which something is missing is paid for, and kept in the store.

    With an `ablation` of the same config that is not finished, engines and pools are those of its arms, which have all that
    the run has.

    Raises:
        DmqrError: the run, or the ablation, would be refused.
    """
    with ExitStack() as stack:
        return _planned(prepared, progress, ablation, _draft(prepared, progress, stack), sample)


class _Draft(NamedTuple):
    """A run's shards, stored or not."""

    counts: Mapping[str, int]
    queries: PlannedQueries
    head: int
    stored: bool


def _draft(prepared: Prepared, progress: LiveDisplay, stack: ExitStack) -> _Draft:
    """Returns the shards; where nothing is planned yet they lie in a temporary folder, which `stack` removes."""
    storage = prepared.storage
    if (stored := read_plan(storage)) is not None:
        check_inputs(stored, prepared.inputs, storage.root)
        if storage.stat(SUCCESS) is None:
            check_unfinished(stored, storage)
        return _Draft(stored.counts, PlannedQueries(storage, stored.shards, stored.tables), stored.head, stored=True)
    check_indexes_unchanged(prepared)
    progress.phase("reading the log")
    folder = open_storage(str(stack.enter_context(work_folder())))
    log = dedup(prepared.files, prepared.columns, folder, prepared.config.cluster.shard_size)
    return _Draft(log.counts, PlannedQueries(folder, log.shards, log.tables), log.head, stored=False)


def _planned(prepared: Prepared, progress: LiveDisplay, ablation: Job | None, draft: _Draft, sample: int) -> dict[str, Any]:
    config, storage = prepared.config, prepared.storage
    counts, shards = draft.counts, len(draft.queries.shards)
    done = tally_of(storage)
    finished = storage.stat(SUCCESS) is not None
    if not finished:
        check_free(storage, time.time())
    own = job = run_of(prepared)
    whose = ""
    if ablation is not None and ablation.prepared.storage.stat(SUCCESS) is None:
        job, whose = ablation, "; as ablate needs them"
    if whose or not finished:
        job.check_engines()
    pools, resources = _pools(job.placed(counts["queries"])[0].prepared, progress, job.pools)
    job.check(pools)
    look = partial(missing_of, pools=pools, phase=progress.phase)
    pay = partial(pay_for_sample, prepared, draft.queries, size=sample, progress=progress)
    values = {
        "run_id": prepared.run_id,
        "log": {"rows": counts["log_rows"], "files": len(prepared.files)}
        | {name: n for name, n in counts.items() if name.startswith(("rejected", "left_out")) and name != "rejected_traffic"},
        "queries": counts["queries"],
        "shards": {"all": shards, "committed": len(done.shards)},
        "head": {"shards": draft.head, "queries": sum(one.rows for one in draft.queries.shards[: draft.head])},
        "state": "finished" if finished else "begun" if draft.stored else "nothing done yet",
        "max_cost_usd": config.limits.max_cost_usd,
        "unpriced": "" if prepared.prices else unpriced(prepared.config_file),
        "encoders": encoder_words(config, prepared.indexes),
        "downloads": {} if finished else _downloads(config),
        "pools": {name: pool._asdict() for name, pool in pools.items()},
        "engines": {name: [engine_words(one) for one in of] for name, of in job.engines.items()},
        "there": resources + whose,
    }
    values |= _of_job(own, draft, done, partial(look, pay=pay) if sample else look)
    if ablation is not None:
        arms = {"arms": len(ablation.compiled.arms), **planned_saving(ablation.compiled, counts["queries"])}
        values["ablation"] = arms | _of_job(ablation, draft, tally_of(ablation.prepared.storage), look)
    return values


def _of_job(job: Job, draft: _Draft, done: Tally, look: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Returns what is left of a run or an ablation, at most and by what `look` finds missing, and what it has cost."""
    prepared, storage, work = job.prepared, job.prepared.storage, job.compiled.work
    counts, queries = draft.counts, draft.queries
    if (stored := read_plan(storage)) is not None:
        counts, queries = stored.counts, PlannedQueries(storage, stored.shards, stored.tables)
    left = counts["queries"] - done.counts["queries"]
    tries = max((tries_per_request(reading.rewriting) for reading in work.readings), default=0)
    most = {kind: left * number for kind, number in work_of(work).most.items()}
    return {
        "folder": storage.root,
        "left": {"queries": left, "tries": tries} | most,
        "missing": None if storage.stat(SUCCESS) is not None else look(job, queries, done.shards),
        "as_before": as_before(prepared, left, done),
        "spent_usd": spent_usd(prepared, done),
    }


def engine_words(engine: EngineSettings) -> str:
    """Returns what an engine is and takes: its model, or its kind where it has none, and its GPUs."""
    return engine.shown + (f" ({engine.gpus} GPU)" if engine.gpus else "")


def _downloads(config: Config) -> dict[str, int]:
    """Returns the reranker -> bytes, if a run would fetch it from a hub."""
    if config.rerank.kind != "cross_encoder":
        return {}
    size = bytes_to_fetch(config.rerank.scored_by)
    return {config.rerank.scored_by: size} if size else {}


def _pools(prepared: Prepared, progress: LiveDisplay, requested: dict[str, PoolRequest]) -> tuple[dict[str, Pool], str]:
    """Returns the pools, and a description of the resources; connects to Ray only if the pools depend on its resources."""
    address = prepared.config.cluster.address
    assert address is not None  # `Job.placed`
    if address == IN_PROCESS:
        return InProcessSession(requested).pools, f"{os.cpu_count()} cores here, all stages in one process"
    if address == "local" and not any(pool.gpus for pool in requested.values()):
        gpus = usable_gpus(requested)
        there = f" and {gpus:g} GPUs here; they go to the last stages first" if gpus else " here"
        return local_pools(requested, gpus), f"{os.cpu_count()} cores{there}"
    progress.phase("reading the resources of Ray")
    session = Session(address, requested, package_folders())
    session.close()
    resources = session.resources
    if address == "local":
        return session.pools, f"{os.cpu_count()} cores and {resources.gpus:g} GPUs here"
    nodes = f"{resources.nodes} node{'s' * (resources.nodes != 1)}"
    return session.pools, f"{resources.cpus:g} CPUs and {resources.gpus:g} GPUs on {nodes}"
