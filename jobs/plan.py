"""The verb `plan`: what a run would do, without doing it; refuses what the run would refuse."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.table import Table

from cluster.lease import check_free
from cluster.session import Pool, Session, local_pools
from cluster.shards import SUCCESS, Plan, check_inputs, manifests, read_plan
from jobs.dedup import dedup
from jobs.expect import SAMPLE, expect
from jobs.pipeline import code, wishes
from jobs.prepare import Prepared, check_engine, check_not_replaced
from jobs.progress import Progress, clock
from jobs.retriever_opening import check_shares
from jobs.tables import ORIGINAL
from rewriters.rewriter import Rewriter

PLANNED = 3  # files at least that planning itself writes: queries, query_map, shards.json
DATA = ("rewrites", "results", "costs", "runs", "errors")  # tables of which a shard writes a file each, if it has rows


def plan(prepared: Prepared, progress: Progress) -> dict[str, Any]:
    """Count what is to be done and what is done already, as JSON-able values; writes nothing."""
    config, storage = prepared.config, prepared.storage
    fixed = read_plan(storage)
    if fixed is None:
        check_not_replaced(prepared)
        progress.phase("reading the log")
        with tempfile.TemporaryDirectory(prefix="dmqr-plan-") as folder:
            log = dedup(prepared.files, prepared.columns, Path(folder), config.cluster.shard_size)
            texts = _texts(pq.ParquetFile(Path(folder, name)) for name in log.files["queries"])
        counts = {"log_rows": log.rows, "queries": log.queries, "rejected": sum(log.rejected.values())}
        shards = len(log.shards)
    else:
        check_inputs(fixed, prepared.inputs, storage.root)
        counts, shards, texts = fixed.counts, len(fixed.shards), _planned_texts(prepared, fixed)
    done = list(manifests(storage))
    finished = storage.stat(SUCCESS) is not None
    if not finished:
        check_free(storage, time.time())
        check_engine(prepared)
    left = counts["queries"] - sum(manifest.counts["queries"] for manifest in done)
    strategies = config.rewrite.planned
    calls = len(Rewriter(strategies, config.rewrite.calls, {}).requests("", "")) if strategies else 0
    searches = sum(len(config.retrieve.route(strategy)) for strategy in [ORIGINAL, *strategies])
    expected = expect(prepared, left, done, texts)
    tables = len(DATA) - (not config.retrieve.keep_runs)
    pools, there = _pools(prepared, progress)
    check_shares(config, pools)
    return {
        "run_id": prepared.run_id,
        "folder": storage.root,
        "log": {"rows": counts["log_rows"], "files": len(prepared.files), "rejected": counts["rejected"]},
        "queries": counts["queries"],
        "shards": {"all": shards, "committed": len(done)},
        "state": "finished" if finished else "begun" if fixed else "nothing done yet",
        "left": {
            "queries": left,
            "requests": left * calls,
            "requests_per_query": calls,
            "searches": left * searches,
            "pairs": left * config.fuse.keep if config.rerank.kind != "none" else 0,
            "files": (shards - len(done)) * (tables + 1 + bool(calls)) + (0 if fixed else PLANNED),
        },
        "expected": None if expected is None else expected.values(),
        "pools": {name: pool._asdict() for name, pool in pools.items()},
        "there": there,
    }


def plan_table(planned: dict[str, Any]) -> Table:
    """The plan for the eye."""
    table = Table(title=planned["run_id"], title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    log, shards, left = planned["log"], planned["shards"], planned["left"]
    files = f"{log['files']:,} file{'s' * (log['files'] != 1)}"
    table.add_row("log", f"{log['rows']:,} rows in {files}, {log['rejected']:,} rejected")
    table.add_row("queries", f"{planned['queries']:,} distinct in {shards['all']:,} shards")
    state = f"{left['queries']:,} queries left" if planned["state"] == "begun" else planned["state"]
    table.add_row("state", f"{shards['committed']:,} of {shards['all']:,} shards committed: {state}")
    if planned["state"] == "finished":
        table.add_row("folder", planned["folder"])
        return table
    table.add_row("requests", f"up to {left['requests']:,} ({left['requests_per_query']} a query)")
    for name, words in _expectations(planned["expected"]).items():
        table.add_row(name, words)
    table.add_row("searches", f"up to {left['searches']:,} (equal texts of a shard are searched once)")
    table.add_row("pairs", f"up to {left['pairs']:,} to rerank" if left["pairs"] else "none to rerank")
    table.add_row("workers", planned["there"])
    for name, pool in planned["pools"].items():
        gpus = f", {pool['gpus']:g} GPU" if pool["gpus"] else ""
        table.add_row(f"  {name}", f"{pool['workers']} x ({pool['cpus']:g} CPU{gpus})")
    table.add_row("files", f"up to {left['files']:,} of tables, completions and commits; then _SUCCESS.json, report.html")
    table.add_row("folder", planned["folder"])
    return table


def _expectations(expected: dict[str, Any] | None) -> dict[str, str]:
    if expected is None:
        return {}
    words = {}
    if expected["prompt_tokens"] or expected["completion_tokens"]:
        cached = f" ({expected['cached_tokens']:,} of them cached)" if expected["cached_tokens"] else ""
        bound = "at most" if expected["at_most"] else "about"
        written = f"{bound} {expected['completion_tokens']:,} written"
        words["tokens"] = f"about {expected['prompt_tokens']:,} of prompts{cached}, {written}"
    if expected["seconds"] is not None:
        words["work"] = f"about {clock(expected['seconds'])} of all workers together"
    if expected["usd"] is not None:
        words["cost"] = f"{'at most' if expected['at_most'] else 'about'} ${expected['usd']:,.4f}"
    return words | {"": expected["basis"]}


def _texts(files: Iterable[pq.ParquetFile]) -> list[str]:
    """Some of the queries: of the first row group, which is a fair sample, since ids are hashes."""
    for file in files:
        with file:
            return list(file.read_row_group(0, columns=["query"]).column("query").slice(0, SAMPLE).to_pylist())
    return []


def _planned_texts(prepared: Prepared, fixed: Plan) -> list[str]:
    return _texts(pq.ParquetFile(prepared.storage.open(file.key)) for file in fixed.tables["queries"])


def _pools(prepared: Prepared, progress: Progress) -> tuple[dict[str, Pool], str]:
    """The pools and what there is for them, asking Ray only where what it has matters."""
    wanted = wishes(prepared.config)
    address = prepared.config.cluster.address
    if address == "local" and not any(wish.gpus for wish in wanted.values()):
        words = f"{os.cpu_count()} cores here; accelerators, where there are any, go to the last stages first"
        return local_pools(wanted, gpus=0), words
    progress.phase("asking Ray what is there")
    session = Session(address, wanted, code())
    session.close()
    there = session.resources
    if address == "local":
        return session.pools, f"{os.cpu_count()} cores and {there.gpus:g} GPUs here"
    nodes = f"{there.nodes} node{'s' * (there.nodes != 1)}"
    return session.pools, f"{there.cpus:g} CPUs and {there.gpus:g} GPUs on {nodes}"
