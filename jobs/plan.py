"""The verb `plan`: what a run would do, without doing it; refuses what the run would refuse."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.table import Table

from cluster.lease import check_free
from cluster.session import Pool, Session, local_pools
from cluster.shards import SUCCESS, check_inputs, manifests, read_plan
from jobs.dedup import dedup
from jobs.pipeline import code, wishes
from jobs.prepare import Prepared, check_engine, check_not_replaced
from jobs.progress import Progress
from jobs.summary import render
from rewriters.rewriter import Rewriter


def plan(prepared: Prepared, progress: Progress, width: int) -> str:
    """Count what is to be done and what is done already; returns the table."""
    config, storage = prepared.config, prepared.storage
    fixed = read_plan(storage)
    if fixed is None:
        check_not_replaced(prepared)
        progress.phase("reading the log")
        with tempfile.TemporaryDirectory(prefix="dmqr-plan-") as folder:
            log = dedup(prepared.files, prepared.columns, Path(folder), config.cluster.shard_size)
        rows, queries, shards = log.rows, log.queries, len(log.shards)
        rejected = sum(log.rejected.values())
    else:
        check_inputs(fixed, prepared.inputs, storage.root)
        rows, queries, rejected = (fixed.counts[name] for name in ("log_rows", "queries", "rejected"))
        shards = len(fixed.shards)
    done = list(manifests(storage))
    finished = storage.get(SUCCESS) is not None
    if not finished:
        check_free(storage, time.time())
        check_engine(prepared)
    left = queries - sum(manifest.counts["queries"] for manifest in done)
    strategies = config.rewrite.planned
    calls = len(Rewriter(strategies, config.rewrite.calls, {}).requests("", "")) if strategies else 0
    searches = sum(len(config.retrieve.route(strategy)) for strategy in ["original", *strategies])
    table = Table(title=prepared.run_id, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("log", f"{rows:,} rows in {len(prepared.files):,} files, {rejected:,} rejected")
    table.add_row("queries", f"{queries:,} distinct in {shards:,} shards")
    state = "finished" if finished else f"{left:,} queries left" if done else "nothing done yet"
    table.add_row("state", f"{len(done):,} of {shards:,} shards committed: {state}")
    table.add_row("requests", f"up to {left * calls:,} ({calls} a query)")
    table.add_row("searches", f"up to {left * searches:,} (equal texts of a shard are searched once)")
    pairs = left * config.fuse.keep if config.rerank.kind != "none" else 0
    table.add_row("pairs", f"up to {pairs:,} to rerank" if pairs else "none to rerank")
    for name, pool in _pools(prepared, progress).items():
        table.add_row(f"  {name}", f"{pool.workers} workers, each {pool.cpus:g} CPU, {pool.gpus:g} GPU")
    if config.cluster.address == "local":
        table.add_row("", "without accelerators; where Ray finds some, reranking and retrieving get one each")
    table.add_row("folder", storage.root)
    return render(table, width)


def _pools(prepared: Prepared, progress: Progress) -> dict[str, Pool]:
    """The pools, asking Ray only where what it has matters."""
    wanted = wishes(prepared.config)
    if prepared.config.cluster.address == "local" and not any(wish.gpus for wish in wanted.values()):
        return local_pools(wanted, gpus=0)
    progress.phase("asking Ray what is there")
    session = Session(prepared.config.cluster.address, wanted, code())
    session.close()
    return session.pools
