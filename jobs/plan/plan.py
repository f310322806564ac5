"""The verb `plan`: counts the work of a run without starting it; refuses whatever the run would refuse."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from cluster.run.lease import check_free
from cluster.run.pool_sizes import Pool, PoolRequest, local_pools
from cluster.run.session import IN_PROCESS, InProcessSession, Session, usable_gpus
from cluster.run.shards import SUCCESS, check_inputs, manifests, read_plan
from cluster.storage import open_storage
from jobs.chain.arms.judging import most_judgements
from jobs.chain.arms.requests import most_requests
from jobs.config.collections import strategies_in
from jobs.config.config import Config
from jobs.job.indexes import encoder_words
from jobs.job.prepare import Prepared
from jobs.job.shipping import package_folders
from jobs.log.dedup import dedup
from jobs.plan.estimate import SAMPLE, estimate
from jobs.plan.tiers import tier_words
from jobs.plan.work import ablation_rows, all_searches, planned_saving, step_rows, step_work
from jobs.run.job import Job, run_of
from jobs.run.planning.draft import check_unfinished
from jobs.run.planning.requests import VARYING
from jobs.run.planning.sample import PlannedQueries
from jobs.run.planning.thresholds import SampledGate, sampled_gate, threshold_words
from jobs.run.pool_calibration import CALIBRATION, has_auto, known_seconds, pool_words, seconds_words, with_seconds
from jobs.run.resume_check import check_indexes_unchanged
from jobs.run.spending import expected_requests, tries_per_request
from jobs.runs.tally import summed
from jobs.tables import ORIGINAL
from jobs.terminal.formats import clock, money, unpriced
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.tables import facts
from retrievers.models import bytes_to_fetch
from rewriters.engines.settings import EngineSettings

PLAN_FILES = 3  # least number of files that planning writes: queries, query_map, shards.json
# A shard writes a file of each that has rows.
SHARD_TABLES = {
    "rewrites", "selections", "results", "scores", "rounds", "grades", "corrections", "answers", "judgements", "nuggets",
    "assignments", "costs", "runs", "web", "candidates", "errors",
}  # fmt: skip


def plan(prepared: Prepared, progress: LiveDisplay, ablation: Job | None = None) -> dict[str, Any]:
    """Returns the planned, committed and remaining work of a run as JSON-able values; writes nothing.

    With an `ablation` of the same config that is not finished, engines and pools are those of its arms, which have all that
    the run has.

    Raises:
        DmqrError: the run, or the ablation, would be refused.
    """
    config, storage = prepared.config, prepared.storage
    stored = read_plan(storage)
    if stored is None:
        check_indexes_unchanged(prepared)
        progress.phase("reading the log")
        with tempfile.TemporaryDirectory(prefix="dmqr-plan-") as folder:
            log = dedup(prepared.files, prepared.columns, open_storage(folder), config.cluster.shard_size)
            texts = _texts(pq.ParquetFile(Path(folder, file.key)) for file in log.tables["queries"])
            gated = sampled_gate(run_of(prepared).compiled.work, PlannedQueries(open_storage(folder), log.shards))
        counts, shards = log.counts, len(log.shards)
    else:
        check_inputs(stored, prepared.inputs, storage.root)
        if storage.stat(SUCCESS) is None:
            check_unfinished(stored, storage)
        counts, shards, texts = (
            stored.counts,
            len(stored.shards),
            _texts(pq.ParquetFile(prepared.storage.open(file.key)) for file in stored.tables["queries"]),
        )
        gated = SampledGate(stored.thresholds)
        if storage.stat(SUCCESS) is None:
            gated = sampled_gate(run_of(prepared).compiled.work, PlannedQueries(storage, stored.shards), stored.thresholds)
    done = list(manifests(storage))
    finished = storage.stat(SUCCESS) is not None
    if not finished:
        check_free(storage, time.time())
    job, whose = run_of(prepared), ""
    if ablation is not None and ablation.prepared.storage.stat(SUCCESS) is None:
        job, whose = ablation, "; as ablate needs them"
    if whose or not finished:
        job.check_engines()
    left = counts["queries"] - sum(manifest.counts["queries"] for manifest in done)
    calls = len(most_requests(prepared.rewriting))
    texts_of = {ORIGINAL: 1} | {strategy.name: strategy.lists for strategy in prepared.rewriting.pool}
    searches = all_searches(config, texts_of)
    some = expected_requests(prepared.rewriting, texts)
    if gated.rewritten is not None:
        some = gated.rewritten * (calls if some is None else some)
    models = {of: model for name, one in config.retrieve.retrievers.items() for of, model in one.search_names(name).items()}
    by_model = {f"{of}@{models[of] or ''}": most for of, most in searches.items()}
    expected = estimate(prepared, left, done, texts, by_model, 1.0 if gated.rewritten is None else gated.rewritten)
    tables = len(SHARD_TABLES & job.schemas.keys())
    pools, resources, sized = _pools(job.prepared, progress, job.pools, shards)
    job.check(pools)
    return {
        "run_id": prepared.run_id,
        "folder": storage.root,
        "log": {"rows": counts["log_rows"], "files": len(prepared.files), "rejected": counts["rejected"]},
        "queries": counts["queries"],
        "shards": {"all": shards, "committed": len(done)},
        "state": "finished" if finished else "begun" if stored else "nothing done yet",
        "left": {
            "queries": left,
            "requests": left * calls,
            "requests_per_query": calls,
            "tries": tries_per_request(prepared.rewriting),
            "requests_vary": config.rewrite.select.kind in VARYING or config.rewrite.gated is not None,
            "requests_expected": None if some is None else round(left * some),
            "searches": left * sum(searches.values()),
            **{kind: left * count for kind, count in step_work(config).items()},
            "grades": left * sum(one.most_requests for _, one in run_of(prepared).compiled.work.correcting()),
            "judgements": left * most_judgements(job.compiled.work),
            "files": (shards - len(done)) * (tables + 1 + bool(calls)) + (0 if stored else PLAN_FILES),
        },
        "expected": None if expected is None else expected.values(),
        "max_cost_usd": config.limits.max_cost_usd,
        "unpriced": "" if prepared.prices else unpriced(prepared.config_file),
        "rewritten_share": gated.rewritten,
        "thresholds": list(gated.thresholds.values()),
        "encoders": encoder_words(config, prepared.indexes),
        "downloads": {} if finished else _downloads(config),
        "pools": {name: pool._asdict() for name, pool in pools.items()},
        "engines": {name: [engine_words(one) for one in of] for name, of in job.engines.items()},
        "there": resources + whose,
        "sized": sized,
    } | (_collections(config) | ({} if ablation is None else {"ablation": _shared(ablation, counts["queries"])}))


def _collections(config: Config) -> dict[str, Any]:
    """Returns what is searched in each collection, under one key; nothing without collections."""
    found = {
        name: {"retrievers": one.retrievers, "strategies": strategies_in(one, config.retrieve.route, config.rewrite.planned)}
        for name, one in config.retrieve.collections.items()
    }
    return {"collections": found} if found else {}


def _shared(ablation: Job, queries: int) -> dict[str, Any]:
    """Returns the arms of an ablation and what they share."""
    saving = planned_saving(ablation.compiled, queries)
    return {"arms": len(ablation.compiled.arms), "folder": ablation.prepared.storage.root} | saving.values()


def plan_table(planned: dict[str, Any]) -> Table:
    """Returns the plan as a table for the terminal."""
    table = facts((), planned["run_id"])
    log, shards, left = planned["log"], planned["shards"], planned["left"]
    files = f"{log['files']:,} file{'s' * (log['files'] != 1)}"
    table.add_row("log", f"{log['rows']:,} rows in {files}, {log['rejected']:,} rejected")
    table.add_row("queries", f"{planned['queries']:,} distinct in {shards['all']:,} shard{'s' * (shards['all'] != 1)}")
    state = f"{left['queries']:,} queries left" if planned["state"] == "begun" else planned["state"]
    table.add_row("state", f"{shards['committed']:,} of {shards['all']:,} shards committed: {state}")
    if planned["state"] == "finished":
        table.add_row("folder", planned["folder"])
        return table
    a_query = left["requests_per_query"]
    bound = "at most " if left.get("requests_vary") else ""
    words = f"up to {left['requests']:,} ({bound}{a_query} a query)" if a_query else "none: the original alone"
    if left.get("requests_expected") is not None:
        said = "select chooses" if planned.get("rewritten_share") is None else "the gate decides"
        words += f"; about {left['requests_expected']:,}, as {said} for some of the queries"
    if tries := left.get("tries"):
        words += f"; each up to {tries} more time{'s' * (tries != 1)} where its answer does not serve (rewrite.retries)"
    table.add_row("requests", words)
    for one in planned.get("thresholds", []):
        table.add_row("threshold", threshold_words(one))
    for name, words in _estimate_rows(planned["expected"]).items():
        table.add_row(name, words)
    if (warning := over_budget(planned)) is not None:
        table.add_row("warning", Text(warning, style="yellow"))
    if planned.get("unpriced"):
        table.add_row("cost", planned["unpriced"])
    table.add_row("searches", f"up to {left['searches']:,} (equal texts of a shard are searched once)")
    for name, one in planned.get("collections", {}).items():
        words = f"{', '.join(one['retrievers'])} for the original and {', '.join(one['strategies']) or 'no rewrite'}"
        table.add_row(f"  {name}", words)
    table.add_row("pairs", f"up to {left['pairs']:,} to rerank" if left["pairs"] else "none to rerank")
    for name, words in step_rows(left):
        table.add_row(name, words)
    for words in planned.get("encoders", []):
        table.add_row("encoder", Text(words))
    for model, size in planned.get("downloads", {}).items():
        fetched = f"{model}, {size / 1e9:.1f} GB from its hub, on every machine that reranks"
        table.add_row("reranker", f"{fetched}; --set rerank.kind=none does without one")
    table.add_row("workers", planned["there"])
    for name, pool in planned["pools"].items():
        table.add_row(f"  {name}", pool_words(Pool(**pool)))
        if len(opened := planned.get("engines", {}).get(name, [])) > 1:
            table.add_row("", Text(f"each with {len(opened)} engines: {', '.join(opened)}"))
    if planned.get("sized"):
        table.add_row("", planned["sized"])
    if "ablation" in planned:
        for name, words in ablation_rows(planned["ablation"]):
            table.add_row(name, words)
    table.add_row("files", f"up to {left['files']:,} of tables, completions and commits; then _SUCCESS.json, report.html")
    table.add_row("folder", planned["folder"])
    return table


def engine_words(engine: EngineSettings) -> str:
    """Returns what an engine is and takes: its model, or its kind where it has none, and its GPUs."""
    return engine.shown + (f" ({engine.gpus} GPU)" if engine.gpus else "")


def over_budget(planned: dict[str, Any]) -> str | None:
    """Returns a warning if the estimate is over `limits.max_cost_usd`; None otherwise."""
    most, expected = planned["max_cost_usd"], planned["expected"] or {}
    if most is None or not expected.get("usd") or expected["usd"] <= most:
        return None
    word, bound = ("may", "at most ") if expected["at_most"] else ("will", "")
    usd = f"{bound}{money(expected['usd'])} are expected{_apart(expected)}, limits.max_cost_usd is {money(most)}"
    return f"the run {word} stop before its end: {usd}"


def _apart(expected: dict[str, Any]) -> str:
    tries = ", tries apart" if expected.get("tries_apart") else ""
    return f"{tries}, rounds, grades, answers and judgements apart" if expected.get("without_steps") else tries


def _estimate_rows(expected: dict[str, Any] | None) -> dict[str, str]:
    if expected is None:
        return {}
    words, bound = dict[str, str](), "at most" if expected["at_most"] else "about"
    if expected["prompt_tokens"] or expected["completion_tokens"]:
        cached = f" ({expected['cached_tokens']:,} of them cached)" if expected["cached_tokens"] else ""
        written = f"{bound} {expected['completion_tokens']:,} written"
        words["tokens"] = f"about {expected['prompt_tokens']:,} of prompts{cached}, {written}{_apart(expected)}"
    if expected["seconds"] is not None:
        away = clock(expected["waited"])
        waited = f"; that run waited {away} for services, which its workers count as work" if expected["waited"] else ""
        words["work"] = f"about {clock(expected['seconds'])} of all workers together{waited}"
    words["wall time"] = _wall(expected)
    if expected["usd"] is not None:
        words["cost"] = f"{bound} {money(expected['usd'])}{_apart(expected)}{tier_words(expected)}"
    return words | {"": expected["basis"]}


def _wall(expected: dict[str, Any]) -> str:
    """Returns how long it takes on the wall, as far as that is known."""
    if expected["wall_seconds"] is None:
        return "not known: no run of this kind has finished"
    pools = f" with its workers ({expected['pools']})" if expected["pools"] else ""
    less = ", less its waiting for services" if expected["waited"] else ""
    return f"about {clock(expected['wall_seconds'])}{pools}, by its queries per second{less}"


def _texts(files: Iterable[pq.ParquetFile]) -> list[str]:
    """Returns some of the queries: those of the first row group, a random sample, since ids are hashes."""
    for file in files:
        with file:
            return list(file.read_row_group(0, columns=["query"]).column("query").slice(0, SAMPLE).to_pylist())
    return []


def _downloads(config: Config) -> dict[str, int]:
    """Returns the reranker -> bytes, if a run would fetch it from a hub."""
    if config.rerank.kind != "cross_encoder":
        return {}
    size = bytes_to_fetch(config.rerank.model)
    return {config.rerank.model: size} if size else {}


def _pools(
    prepared: Prepared, progress: LiveDisplay, requested: dict[str, PoolRequest], shards: int
) -> tuple[dict[str, Pool], str, str]:
    """Returns the pools, a description of the resources, and by what pools with `auto` are sized.

    Connects to Ray only if the pools depend on its resources. `shards`: their number, where nothing is planned yet.
    """
    address = prepared.config.cluster.address
    if address == IN_PROCESS:
        return InProcessSession(requested).pools, f"{os.cpu_count()} cores here, one stage at a time in one process", ""
    if address == "local" and not any(pool.gpus for pool in requested.values()):
        gpus = usable_gpus(requested)
        there = f" and {gpus:g} GPUs here; they go to the last stages first" if gpus else " here"
        pools = local_pools(requested, gpus)
        asked, sized = _by_work(prepared, requested, pools, shards)
        return local_pools(asked, gpus), f"{os.cpu_count()} cores{there}", sized
    progress.phase("reading the resources of Ray")
    session = Session(address, requested, package_folders(), prepared.config.cluster.autoscaler_nodes)
    try:
        asked, sized = _by_work(prepared, requested, session.pools, shards)
        if sized:
            session.resize(asked)
    finally:
        session.close()
    resources = session.resources
    if address == "local":
        return session.pools, f"{os.cpu_count()} cores and {resources.gpus:g} GPUs here", sized
    nodes = f"{resources.nodes} node{'s' * (resources.nodes != 1)}"
    return session.pools, f"{resources.cpus:g} CPUs and {resources.gpus:g} GPUs on {nodes}", sized


def _by_work(
    prepared: Prepared, requested: dict[str, PoolRequest], pools: dict[str, Pool], shards: int
) -> tuple[dict[str, PoolRequest], str]:
    """Returns the requested pools with the work of their stages, and by what it is known; "" without `auto`."""
    if not has_auto(requested):
        return requested, ""
    stored, done = read_plan(prepared.storage), list(manifests(prepared.storage))
    known = known_seconds(prepared, pools, summed(done))
    if known is None:
        words = f"auto: no run of this kind is known; the first {CALIBRATION} queries or more calibrate, one worker each"
        return requested, words
    left = (len(stored.shards) if stored else shards) - len(done)
    return with_seconds(requested, known, max(1, left)), f"auto: by {seconds_words(known)}"
