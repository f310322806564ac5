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
from jobs.chain.arms.requests import most_requests
from jobs.config.config import Config
from jobs.job.indexes import encoder_words
from jobs.job.prepare import Prepared
from jobs.job.shipping import package_folders
from jobs.log.dedup import dedup
from jobs.plan.budget import around_usd, spent_usd
from jobs.plan.estimate import SAMPLE, Estimate, estimate
from jobs.plan.gate_share import rewritten_share
from jobs.plan.missing.missing import missing_of
from jobs.plan.sample import pay_for_sample
from jobs.plan.work import all_searches, arms_left, planned_saving, searches_of_web, step_work
from jobs.run.job import Job, run_of
from jobs.run.planning.draft import check_unfinished
from jobs.run.planning.requests import VARYING, most_of_stage
from jobs.run.planning.sample import PlannedQueries, read_sample
from jobs.run.resume_check import check_indexes_unchanged
from jobs.run.spending import expected_requests, tries_per_request
from jobs.runs.tally import tally_of
from jobs.tables import ORIGINAL
from jobs.terminal.formats import unpriced
from jobs.terminal.live_display import LiveDisplay
from retrievers.models import bytes_to_fetch
from rewriters.engines.settings import EngineSettings

PLAN_FILES = 3  # least number of files that planning writes: queries, query_map, shards.json
# A shard writes a file of each that has rows.
SHARD_TABLES = {
    "rewrites", "selections", "results", "scores", "rounds", "grades", "corrections", "answers", "judgements",
    "costs", "runs", "web", "candidates", "errors",
}  # fmt: skip


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
    rewritten: float | None
    """The share of queries that the gate lets be rewritten; None: unknown, or there is no gate."""
    stored: bool


def _draft(prepared: Prepared, progress: LiveDisplay, stack: ExitStack) -> _Draft:
    """Returns the shards; where nothing is planned yet they lie in a temporary folder, which `stack` removes."""
    storage, work = prepared.storage, run_of(prepared).compiled.work
    stored, finished = read_plan(storage), storage.stat(SUCCESS) is not None
    if stored is not None:
        check_inputs(stored, prepared.inputs, storage.root)
        queries, rewritten = PlannedQueries(storage, stored.shards, stored.tables), None
        if not finished:
            check_unfinished(stored, storage)
            rewritten = rewritten_share(work, queries)
        return _Draft(stored.counts, queries, stored.head, rewritten, stored=True)
    check_indexes_unchanged(prepared)
    progress.phase("reading the log")
    folder = open_storage(str(stack.enter_context(work_folder())))
    log = dedup(prepared.files, prepared.columns, folder, prepared.config.cluster.shard_size)
    queries = PlannedQueries(folder, log.shards, log.tables)
    return _Draft(log.counts, queries, log.head, rewritten_share(work, queries), stored=False)


def _planned(prepared: Prepared, progress: LiveDisplay, ablation: Job | None, draft: _Draft, sample: int) -> dict[str, Any]:
    config, storage = prepared.config, prepared.storage
    counts, shards, rewritten = draft.counts, len(draft.queries.shards), draft.rewritten
    texts = read_sample(draft.queries, SAMPLE, seed=0).column("query").to_pylist()
    done = tally_of(storage)
    finished = storage.stat(SUCCESS) is not None
    if not finished:
        check_free(storage, time.time())
    own = run_of(prepared)
    job, whose = own, ""
    if ablation is not None and ablation.prepared.storage.stat(SUCCESS) is None:
        job, whose = ablation, "; as ablate needs them"
    if whose or not finished:
        job.check_engines()
    left = counts["queries"] - done.counts["queries"]
    answers = most_requests(prepared.rewriting)
    calls = len(answers)
    texts_of = {ORIGINAL: 1} | {strategy.name: strategy.lists for strategy in prepared.rewriting.pool}
    searches = all_searches(config, texts_of)
    some = expected_requests(prepared.rewriting, texts)
    if rewritten is not None:
        some = rewritten * (calls if some is None else some)
    models = {of: model for name, one in config.retrieve.retrievers.items() for of, model in one.search_names(name).items()}
    by_model = {f"{of}@{models[of] or ''}": most for of, most in searches.items()} | searches_of_web(config)
    expected = estimate(prepared, left, done, texts, by_model, 1.0 if rewritten is None else rewritten)
    tables = len(SHARD_TABLES & job.schemas.keys())
    pools, resources = _pools(job.placed(counts["queries"])[0].prepared, progress, job.pools)
    job.check(pools)
    look = partial(missing_of, pools=pools, rewritten=rewritten, phase=progress.phase)
    committed = done.shards
    pay = partial(pay_for_sample, prepared, draft.queries, size=sample, progress=progress)
    look_and_pay = partial(look, pay=pay) if sample else look
    return {
        "run_id": prepared.run_id,
        "folder": storage.root,
        "log": {"rows": counts["log_rows"], "files": len(prepared.files)}
        | {name: n for name, n in counts.items() if name.startswith(("rejected", "left_out")) and name != "rejected_traffic"},
        "queries": counts["queries"],
        "shards": {"all": shards, "committed": len(done.shards)},
        "head": {"shards": draft.head, "queries": sum(one.rows for one in draft.queries.shards[: draft.head])},
        "state": "finished" if finished else "begun" if draft.stored else "nothing done yet",
        "left": {
            "queries": left,
            "requests": left * calls,
            "requests_per_query": calls,
            "tries": tries_per_request(prepared.rewriting),
            "requests_vary": config.rewrite.select.kind in VARYING or config.rewrite.gated is not None,
            "requests_expected": None if some is None else round(left * some),
            "searches": left * sum(searches.values()),
            **{kind: left * count for kind, count in step_work(config).items()},
            "grades": left * most_of_stage(own.compiled.work, "grade"),
            "judgements": left * most_of_stage(job.compiled.work, "judge"),
            "files": (shards - len(done.shards)) * (tables + 1 + bool(answers)) + (0 if draft.stored else PLAN_FILES),
        },
        "expected": None if expected is None else expected.values() | ({} if ablation is None else _of_the_run(expected)),
        "missing": None if finished else look_and_pay(own, draft.queries, committed),
        "max_cost_usd": config.limits.max_cost_usd,
        "spent_usd": spent_usd(prepared, done),
        "unpriced": "" if prepared.prices else unpriced(prepared.config_file),
        "rewritten_share": rewritten,
        "encoders": encoder_words(config, prepared.indexes),
        "downloads": {} if finished else _downloads(config),
        "pools": {name: pool._asdict() for name, pool in pools.items()},
        "engines": {name: [engine_words(one) for one in of] for name, of in job.engines.items()},
        "there": resources + whose,
    } | ({} if ablation is None else {"ablation": _shared(ablation, draft, look)})


def _of_the_run(expected: Estimate) -> dict[str, str]:
    """Returns the basis of an estimate, with that it is of the run itself: how much arms share is not known before."""
    return {"basis": f"{expected.basis}; of the run itself, not of ablate's arms"}


def _shared(ablation: Job, draft: _Draft, look: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Returns the arms of an ablation, what they share, and what `look` finds missing."""
    prepared = ablation.prepared
    storage, done = prepared.storage, tally_of(prepared.storage)
    saving, stored = planned_saving(ablation.compiled, draft.counts["queries"]), read_plan(storage)
    left = (draft.counts if stored is None else stored.counts)["queries"] - done.counts["queries"]
    missing = None
    if storage.stat(SUCCESS) is None:
        queries = draft.queries if stored is None else PlannedQueries(storage, stored.shards, stored.tables)
        missing = look(ablation, queries, done.shards, rewritten=None)
    return {
        "arms": len(ablation.compiled.arms),
        "folder": storage.root,
        "left": arms_left(ablation.compiled, left),
        "missing": missing,
        "spent_usd": spent_usd(prepared, done),
        "around_usd": around_usd(prepared, done, left),
    } | saving.values()


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
