"""The report of a large run: seconds and peak memory to make it, its size, and how long a browser takes to open it.

    python tests/benchmarks/report_size.py [--queries 50000] [--shard-size 1000] [--depth 30] [--keep FOLDER]

The run is made up, not run: 50,000 queries, four strategies (pseudo_answer further from the others), two retrievers, lists of
`--depth` hits from an index of 5,000 documents, 50 results a query, some errors, prompts of 3,000 characters with answers, log
rows asked again and rejected, every tenth query judged. Goals: the page opens in under 2 s and has less than 5 MB. The browser
is measured where Playwright and a Chromium are installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster import costs
from cluster.run.shards import SUCCESS, File, Manifest, Plan, Shard, commit, put_plan, write_table
from cluster.storage import Storage
from cluster.storage.files import FileStorage
from jobs.config.config import Config
from jobs.tables import COMPLETIONS, STORED
from retrievers.local.build import build_local_index

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.retrievers.blocks import index_fields

STRATEGIES = ("general", "keyword", "pseudo_answer", "core_content")
NAMES = ("original", *STRATEGIES)
APART = np.array([0.0, 0.15, 0.3, 0.8, 0.35])  # how far each strategy's scores are from the original's
RETRIEVERS = ("bm25", "dense")
RUNGS = ("json", "labelled", "numbered", "salvage")
DOCUMENTS = 5_000
WORDS = [
    "harbour",
    "lens",
    "yeast",
    "tide",
    "mirror",
    "galaxy",
    "rye",
    "keeper",
    "moon",
    "signal",
    "copper",
    "valley",
    "engine",
    "orchard",
    "ledger",
    "violin",
]
GOAL_SECONDS, GOAL_BYTES = 2.0, 5_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=50_000)
    parser.add_argument("--shard-size", type=int, default=1_000)
    parser.add_argument("--depth", type=int, default=30)
    parser.add_argument("--keep", type=Path, help="a folder for run and page, which stay there")
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report:
        make_page(options.report)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "run" / SUCCESS).exists():
            began = time.monotonic()
            make_run(folder, options.queries, options.shard_size, options.depth)
            print(f"run of {options.queries:,} queries made up in {time.monotonic() - began:.0f} s", flush=True)
        subprocess.run([sys.executable, __file__, "--report", str(folder)], check=True)
        open_page(folder / "report.html")


def make_page(folder: Path) -> None:
    """In a process of its own, so that the peak is the report's."""
    from jobs.log.judgements import Judgements
    from jobs.pages.report import report
    from jobs.pages.report.judged_queries import measured
    from jobs.runs.folder import open_run

    began = time.monotonic()
    run = open_run(str(folder / "run"))
    ids = [query_id for path in run.tables["queries"] for query_id in pq.read_table(path).column("query_id").to_pylist()]
    some = np.random.default_rng(3).integers(0, DOCUMENTS, (len(ids), 20))
    grades = {query_id: {f"doc-{doc:06d}": 1 for doc in docs} for query_id, docs in zip(ids[::10], some[::10], strict=True)}
    judgements = Judgements("made up", grades, "query_id")
    evaluation, judged = measured(run, judgements)
    evaluated = time.monotonic() - began
    html = report(run, costs.Prices(cpu_worker_hour=0.05, device_hour=2.5), evaluation, judged=judged)
    seconds = time.monotonic() - began
    (folder / "report.html").write_text(html, encoding="utf-8")
    size = len(html.encode())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = f"{seconds:.1f} s, of it {evaluated:.1f} s evaluation"
    print(f"report: {took}, peak memory {peak:.0f} MiB, page {size / 1e6:.2f} MB", flush=True)
    assert size < GOAL_BYTES


def open_page(page: Path) -> None:
    """Milliseconds that a real browser takes, best and worst of five."""
    browser = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
    if browser is None or importlib.util.find_spec("playwright") is None:
        print("browser: not measured (Playwright or Chromium is not installed)")
        return
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(5):
            tab = chromium.new_page()
            tab.goto(page.as_uri())
            navigation = "performance.getEntriesByType('navigation')[0]"
            times.append(tab.evaluate(f"[{navigation}.domContentLoadedEventEnd, {navigation}.loadEventEnd]"))
            tab.close()
        chromium.close()
    loaded = sorted(load for _, load in times)
    print(f"browser: loaded in {loaded[0]:.0f} to {loaded[-1]:.0f} ms ({Path(browser).name})")
    assert loaded[-1] < 1000 * GOAL_SECONDS


# ---------------------------------------------------------------- a run that never ran


def make_run(folder: Path, queries: int, shard_size: int, depth: int) -> None:
    """Tables, manifests, plan, run.json and _SUCCESS.json of a run."""
    rng = np.random.default_rng(7)
    index = make_index(folder, rng)
    storage = FileStorage(str(folder / "run"))
    ids = sorted(hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(queries))
    texts = [" ".join(rng.choice(WORDS, 4)) + f" {number}" for number in range(queries)]
    asked = rng.geometric(0.5, queries)
    columns = {"query_id": ids, "query": texts, "normalised": texts, "log_count": asked}
    table = pa.table(columns, STORED["queries"])
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=shard_size)
    storage.put("queries/plan.parquet", sink.getvalue())
    rows = int(asked.sum())
    rejected = write_table(storage, "errors", 0, rejects(200))
    counts = {"log_rows": rows + 200, "queries": queries, "rejected": 200}
    numbers = range(-(-queries // shard_size))
    shards = [Shard(n, "queries/plan.parquet", n, min(shard_size, queries - n * shard_size)) for n in numbers]
    tables = {"queries": [File("queries/plan.parquet", queries, sink.tell())], "errors": [rejected]}
    put_plan(storage, Plan([{"path": "log.parquet", "size": rows * 40, "mtime_ns": 0}], counts, shard_size, tables, shards))
    for shard in shards:
        begin = shard.number * shard_size
        part = slice(begin, begin + shard.rows)
        make_shard(storage, shard, ids[part], int(asked[part].sum()), depth, rng)
    settings = {
        "name": "large", "output": "runs", "log": {"path": "log.parquet", "query_column": "query"},
        "rewrite": {"engine": {"kind": "recorded", "path": "recorded.jsonl"}},
        "retrieve": {"depth": depth, "retrievers": {name: {"kind": "local", "index": str(index)} for name in RETRIEVERS}},
        "rerank": {"kind": "none"},
    }  # fmt: skip
    resources = {"nodes": 1, "cpus": 8.0, "gpus": 0.0}
    start = {
        "start": 1, "began": "2026-03-01T01:00:00Z", "wall_seconds": 3600.0, "status": "finished", "task_slots": 8,
        "pools": {"rewrite": {"workers": 2, "cpus": 1, "gpus": 0.0}}, "resources": resources,
    }  # fmt: skip
    record = {
        "run_id": "large-0123456789ab", "status": "finished", "config": Config.model_validate(settings).model_dump(),
        "config_file": "large.yaml", "versions": {"python": "3.11"}, "indexes": {name: {} for name in RETRIEVERS},
        "redundancy": {"asked": "cosine", "used": "overlap"}, "starts": [start], "node_time": None,
    }  # fmt: skip
    storage.put("run.json", json.dumps(record).encode())
    storage.put(SUCCESS, b"{}")


def make_index(folder: Path, rng: np.random.Generator) -> Path:
    titles = [f"{WORDS[number % len(WORDS)]} {number}" for number in range(DOCUMENTS)]
    texts = [" ".join(rng.choice(WORDS, 60)) for _ in range(DOCUMENTS)]
    corpus = pa.table({"doc_id": [f"doc-{number:06d}" for number in range(DOCUMENTS)], "title": titles, "text": texts})
    pq.write_table(corpus, folder / "corpus.parquet")
    build_local_index(folder / "index", folder / "corpus.parquet", index_fields("english"))
    return folder / "index"


def make_shard(storage: Storage, shard: Shard, ids: list[str], asked: int, depth: int, rng: np.random.Generator) -> None:
    failed = rng.random((len(ids), len(STRATEGIES))) < 0.004
    rewrites, errors, counts = [], [], {"queries": len(ids), "log_rows": asked, "planned": len(ids) * len(STRATEGIES)}
    for query_id, row in zip(ids, failed.tolist(), strict=True):
        if any(row):
            counts["error_queries/rewrite/truncated"] = counts.get("error_queries/rewrite/truncated", 0) + 1
        for strategy, bad in zip(STRATEGIES, row, strict=True):
            rung = RUNGS[int(rng.choice(4, p=[0.9, 0.07, 0.02, 0.01]))]
            key = f"error/rewrite/{strategy}/truncated" if bad else f"rung/{strategy}/{rung}"
            counts[key] = counts.get(key, 0) + 1
            if bad:
                words = {"message": "the token limit cut the answer", "raw": '{"general": "harbour', "attempts": 1}
                about = {"query_id": query_id, "stage": "rewrite", "component": strategy, "reason": "truncated"}
                errors.append(about | words)
            else:
                text = " ".join(rng.choice(WORDS, 40 if strategy == "pseudo_answer" else 8))
                made = {"strategy": strategy, "position": 1, "text": text, "weight": 1.0}
                made |= {"position_weight": 1.0, "parsed_as": rung}
                rewrites.append({"query_id": query_id} | made)
    make_completions(storage, shard.number, ids, rng)
    runs = make_lists(ids, failed, depth, rng)
    results = duckdb.sql("""
        WITH found AS (
            SELECT query_id, doc_id, sum(1 / (60 + rank)) AS score,
                list({strategy: strategy, position: position, retriever: retriever, rank: rank, score: score}) AS sources
            FROM runs GROUP BY ALL
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY query_id ORDER BY score DESC, doc_id) AS rank FROM found
        ) SELECT query_id, 'run' AS arm, rank::INT AS rank, doc_id, score, score AS fused_score,
            NULL::DOUBLE AS rerank_score, sources FROM ranked
        WHERE rank <= 50 ORDER BY query_id, rank
    """).to_arrow_table()  # fmt: skip
    spent = make_costs(ids)
    rows = {
        "rewrites": pa.Table.from_pylist(rewrites, STORED["rewrites"]),
        "errors": pa.Table.from_pylist(errors, STORED["errors"]),
        "runs": runs,
        "results": results.cast(STORED["results"]),
        "costs": pa.table({"query_id": ids * 3} | {f.name: spent.field(f.name) for f in costs.COST}),
    }
    files = {name: [write_table(storage, name, shard.number, table)] for name, table in rows.items() if table.num_rows}
    counts |= {
        "rewrites": len(rewrites), "rewrite_errors": len(errors), "results": results.num_rows,
        "queries_with_results": len(ids), "failed_queries": int(failed.any(axis=1).sum()),
    }  # fmt: skip
    commit(storage, Manifest(shard.number, 1, files, counts, costs.totals(spent), {"write": 0.4}, costs.by_start(spent)))


def make_completions(storage: Storage, shard: int, ids: list[str], rng: np.random.Generator) -> None:
    """The shard's prompts and answers."""
    made = {
        "request": "dmqr",
        "finish_reason": "stop",
        "model": "m",
        "prompt_tokens": 850,
        "completion_tokens": 160,
        "start": 1,
    }
    asked = " ".join(rng.choice(WORDS, 450))
    rows = [
        {"query_id": query_id, "prompt": f"{asked} {query_id}", "text": " ".join(rng.choice(WORDS, 70)), "start": 1} | made
        for query_id in ids
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, COMPLETIONS), sink, compression="zstd")
    storage.put(f"completions/{shard:06d}/made.parquet", sink.getvalue())


def make_lists(ids: list[str], failed: np.ndarray, depth: int, rng: np.random.Generator) -> pa.Table:
    """runs/ of a shard: each query has a pool of documents, which every text ranks a little differently."""
    pool = 2 * depth + 40
    documents = rng.integers(0, DOCUMENTS - 1, (len(ids), len(RETRIEVERS), 1)) + np.arange(pool) * 3
    documents = documents % DOCUMENTS
    shape = (len(ids), len(NAMES), len(RETRIEVERS), pool)
    noise = rng.standard_normal(shape, dtype=np.float32) * APART[None, :, None, None]
    scores = rng.standard_normal((len(ids), 1, len(RETRIEVERS), pool)) + noise
    order = np.argsort(-scores, axis=3)[..., :depth]
    there = np.ones((len(ids), len(NAMES)), bool)
    there[:, 1:] = ~failed
    chosen = np.take_along_axis(np.broadcast_to(documents[:, None], shape), order, 3)[there]
    scored = np.take_along_axis(scores, order, 3)[there]
    which, strategy = np.nonzero(there)
    each = len(RETRIEVERS) * depth
    numbers = pc.binary_join_element_wise("doc-", pc.utf8_lpad(pa.array(chosen.ravel()).cast(pa.string()), 6, "0"), "")
    return pa.table(
        {
            "query_id": pa.array(ids).take(pa.array(np.repeat(which, each))),
            "strategy": pa.array(NAMES).take(pa.array(np.repeat(strategy, each))),
            "position": pa.array(np.ones(len(which) * each, np.int32)),
            "retriever": pa.array(RETRIEVERS).take(pa.array(np.tile(np.repeat(np.arange(2), depth), len(which)))),
            "doc_id": numbers,
            "rank": pa.array(np.tile(np.arange(1, depth + 1, dtype=np.int32), len(which) * 2)),
            "score": pa.array(scored.ravel().astype(np.float64)),
        },
        schema=STORED["runs"],
    )


def make_costs(ids: list[str]) -> pa.StructArray:
    entries: list[dict[str, Any]] = []
    for stage, component, values in (
        ("rewrite", "dmqr", {"requests": 1, "prompt_tokens": 850, "cached_tokens": 800, "completion_tokens": 160}),
        ("retrieve", "bm25", {"searches": 5}),
        ("retrieve", "dense", {"searches": 5}),
    ):
        entries += [costs.entry(stage, component, 0.03, start=1, **values)] * len(ids)
    return pa.array(entries, costs.COST)


def rejects(count: int) -> pa.Table:
    row = {"stage": "log", "reason": "empty", "message": "the query is empty", "raw": " ", "attempts": 1}
    return pa.Table.from_pylist([{"log_id": f"row-{number}"} | row for number in range(count)], STORED["errors"])


if __name__ == "__main__":
    main()
