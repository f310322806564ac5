"""Time and peak memory of dedup, and of `evaluate`, for a log of mostly distinct rows that have ids.

    python tests/benchmarks/dedup_ids.py [--rows 3000000 10000000 20000000] [--threads 2 4]

88 % of the rows are queries of their own, the others one of 1,000; 100,000 rows are judged. The results are made: each query
has the same five documents, in the files that a run of as many shards has. Each size runs in a new process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from evaluate_speed import CONFIG, write  # noqa: E402
from results import peak_mib  # noqa: E402

from cluster.run import spread  # noqa: E402
from cluster.run.shards import File, Manifest, Plan, Shard  # noqa: E402
from cluster.storage import Storage, open_storage  # noqa: E402
from jobs.log import dedup as module  # noqa: E402
from jobs.log.check import LogColumns  # noqa: E402
from jobs.log.files import find_log_files  # noqa: E402
from jobs.log.judgements import Judgements  # noqa: E402
from jobs.measure.evaluate.evaluate import evaluate  # noqa: E402
from jobs.runs.folder import RunFolder  # noqa: E402
from jobs.tables import STORED  # noqa: E402

FILE_ROWS, JUDGED, SHARD, RESULTS = 1_000_000, 100_000, 1000, 5


def make(folder: Path, rows: int) -> None:
    """Writes the log."""
    generator = np.random.default_rng(0)
    for start in range(0, rows, FILE_ROWS):
        places = range(start, min(rows, start + FILE_ROWS))
        own = (generator.random(len(places)) < 0.88).tolist()
        texts = [f"how to find product number {place if new else place % 1000}" for place, new in zip(places, own, strict=True)]
        table = pa.table({"id": [f"id-{place:012d}" for place in places], "query": texts})
        pq.write_table(table, folder / f"{start:010d}.parquet")


def reset() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def once(rows: int, threads: int) -> None:
    """Does it in this process and prints what it took."""
    spread.THREADS = threads
    check = module._refuse_ambiguous

    def timed(urls: list[str], column: str) -> None:
        reset()
        began = perf_counter()
        check(urls, column)
        print(f"  check of the ids {perf_counter() - began:6.1f} s, peak {peak_mib():.0f} MB", flush=True)

    module._refuse_ambiguous = timed
    with tempfile.TemporaryDirectory(prefix="dmqr-dedup-ids-") as name:
        folder = Path(name, "log")
        folder.mkdir()
        make(folder, rows)
        storage = open_storage(str(Path(name, "out")))
        reset()
        began = perf_counter()
        summary = module.dedup(find_log_files(str(folder)), LogColumns("query", "id"), storage, SHARD)
        print(f"  dedup {perf_counter() - began:6.1f} s, {summary.queries:,} queries", flush=True)
        run = finished(storage, summary.tables)
        judgements = Judgements("made", {f"id-{place * (rows // JUDGED):012d}": {"d2": 1} for place in range(JUDGED)})
        reset()
        began = perf_counter()
        found = evaluate(run, judgements)
        print(
            f"  evaluate {perf_counter() - began:6.1f} s, peak {peak_mib():.0f} MB; {found.queries:,} queries, {found.results}",
            flush=True,
        )


def finished(storage: Storage, tables: dict[str, list[File]]) -> RunFolder:
    """The run of a log that was grouped, with results and the original's list for every query."""
    plan, manifests = Plan([], {}, SHARD, tables, []), []
    for file in tables["queries"]:
        with storage.open(file.key) as opened:
            parquet = pq.ParquetFile(opened)
            for group in range(parquet.num_row_groups):
                ids = parquet.read_row_group(group, columns=["query_id"]).column("query_id")
                number = len(plan.shards)
                plan.shards.append(Shard(number, file.key, group, len(ids)))
                lists = {name: hits(name, ids) for name in ("results", "runs")}
                written = {name: [write(storage, rows, name, number)] for name, rows in lists.items()}
                manifests.append(Manifest(number, 1, written, {}, {}))
    return RunFolder.of(storage, {"config": CONFIG, "status": "finished"}, plan, manifests, finished=True)


def hits(table: str, ids: pa.ChunkedArray) -> pa.Table:
    """The rows of a table of lists: d1 to d5 for each query."""
    rows = len(ids) * RESULTS
    documents = pa.array([f"d{rank}" for rank in range(1, RESULTS + 1)])
    known = {
        "query_id": ids.take(pa.array(np.repeat(np.arange(len(ids)), RESULTS))),
        "rank": pa.array(np.tile(np.arange(1, RESULTS + 1), len(ids)), pa.int32()),
        "doc_id": documents.take(pa.array(np.tile(np.arange(RESULTS), len(ids)))),
        "score": pa.array(np.tile(np.linspace(9, 1, RESULTS), len(ids))),
    }
    same = {
        "arm": "run",
        "strategy": "original",
        "position": 1,
        "retriever": "bm25",
        "fused_score": 1.0,
        "rerank_score": None,
        "sources": [],
    }
    columns = [
        (known[field.name] if field.name in known else pa.repeat(pa.scalar(same[field.name], field.type), rows)).cast(
            field.type
        )
        for field in STORED[table]
    ]
    return pa.table(columns, schema=STORED[table])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[3_000_000, 10_000_000, 20_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        once(options.rows[0], options.threads[0])
        return
    for rows in options.rows:
        for threads in options.threads:
            print(f"{rows:,} rows, {threads} threads", flush=True)
            subprocess.run([sys.executable, __file__, "--once", "--rows", str(rows), "--threads", str(threads)], check=True)


if __name__ == "__main__":
    main()
