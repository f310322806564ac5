"""The verb `plan`: counts the work of a run without starting it; refuses whatever the run would refuse."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from cluster.run.lease import check_free
from cluster.run.pool_sizes import Pool, PoolRequest, local_pools
from cluster.run.session import IN_PROCESS, InProcessSession, Session, usable_gpus
from cluster.run.shards import SUCCESS, Plan, read_plan
from jobs.job.paths import package_folders
from jobs.job.pools import check_shares
from jobs.job.prepare import Prepared
from jobs.plan.estimate import missing_of
from jobs.plan.sample import pay_for_sample
from jobs.plan.work import planned_saving
from jobs.run.draft import PlannedQueries, begun_plan, draft_plan
from jobs.run.job import Job, run_of
from jobs.run.money import DriverCosts, RunMoney, tries_per_request
from jobs.runs.folder import stored_json
from jobs.runs.starts import known_starts
from jobs.runs.tally import Tally, tally_of
from jobs.terminal.formats import unpriced
from jobs.terminal.live_display import LiveDisplay


def plan(prepared: Prepared, progress: LiveDisplay, ablation: Job | None = None, sample: int = 0) -> dict[str, Any]:
    """Returns the planned, committed and remaining work of a run as JSON-able values; writes nothing without a `sample`.

    A `sample` is a number of queries with missing results, which are paid for and kept in the store. With an `ablation` of the
    same config that is not finished, engines and pools are those of its arms, which have all that the run has.

    Raises:
        DmqrError: the run, or the ablation, would be refused.
    """
    with ExitStack() as stack:
        if (stored := begun_plan(prepared)) is None:
            progress.phase("reading the log")
        return _planned(prepared, progress, ablation, _queries(prepared, stored, stack), sample, stack)


def _queries(prepared: Prepared, stored: Plan | None, stack: ExitStack) -> PlannedQueries:
    """Returns the queries of a job by its stored plan; None: drafted, until `stack` is closed."""
    if stored is not None:
        return PlannedQueries(stored, prepared.storage)
    draft = draft_plan(prepared)
    stack.enter_context(draft.stack)
    return draft


def _planned(
    prepared: Prepared, progress: LiveDisplay, ablation: Job | None, queries: PlannedQueries, sample: int, stack: ExitStack
) -> dict[str, Any]:
    config, storage, shards = prepared.config, prepared.storage, queries.plan.shards
    counts, done = queries.plan.counts, tally_of(storage)
    finished = storage.stat(SUCCESS) is not None
    if not finished:
        check_free(storage, time.time())
    own = job = run_of(prepared)
    if ablation is not None and ablation.prepared.storage.stat(SUCCESS) is None:
        job = ablation
    if job is ablation or not finished:
        job.check_engines()
    pools, resources = _pools(job.placed(counts["queries"])[0].prepared, progress, job.pools)
    check_shares(pools, *job.configs)
    look = partial(missing_of, pools=pools, phase=progress.phase)
    pay = partial(pay_for_sample, prepared, queries, size=sample, progress=progress)
    values = {
        "run_id": prepared.run_id,
        "log": {"rows": counts["log_rows"], "files": len(prepared.files)}
        | {name: n for name, n in counts.items() if name.startswith(("rejected", "left_out")) and name != "rejected_traffic"},
        "queries": counts["queries"],
        "shards": {"all": len(shards), "committed": len(done.shards)},
        "head": {"shards": queries.plan.head, "queries": sum(shard.rows for shard in shards[: queries.plan.head])},
        "state": "finished" if finished else "begun" if queries.storage.root == storage.root else "nothing done yet",
        "max_cost_usd": config.limits.max_cost_usd,
        "unpriced": "" if prepared.prices else unpriced(prepared.config_file),
        "pools": {name: pool._asdict() for name, pool in pools.items()},
        "there": resources,
    }
    values |= _of_job(own, queries, done, partial(look, pay=pay) if sample else look)
    if ablation is not None:
        arms = {"arms": len(ablation.compiled.arms), **planned_saving(ablation.compiled, counts["queries"])}
        stored = read_plan(ablation.prepared.storage)
        if stored is not None or not set(ablation.prepared.columns.values) <= set(prepared.columns.values):
            queries = _queries(ablation.prepared, stored, stack)  # else those of the run, whose columns its arms read
        values["ablation"] = arms | _of_job(ablation, queries, tally_of(ablation.prepared.storage), look)
    return values


def _of_job(job: Job, queries: PlannedQueries, done: Tally, look: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Returns the work that is left of a run or an ablation, by what `look` finds missing, and what it has cost."""
    prepared, left = job.prepared, sum(shard.rows for shard in queries.plan.shards) - done.counts["queries"]
    tries = max((tries_per_request(reading.rewriting) for reading in job.compiled.work.readings), default=0)
    starts = known_starts(stored_json(prepared.storage, "run.json"), prepared.storage)
    return {
        "folder": prepared.storage.root,
        "left": {"queries": left, "tries": tries},
        "missing": None if prepared.storage.stat(SUCCESS) is not None else look(job, queries, done.shards),
        "spent_usd": None if prepared.prices is None else RunMoney(prepared, starts, DriverCosts()).earlier(done),
    }


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
