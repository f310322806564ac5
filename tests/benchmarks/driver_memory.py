"""Peak memory of the driver with ten times the queries.

    DMQR_SHARED=... python tests/benchmarks/driver_memory.py

Real web queries (the log terabyte05_50k: 42,169 distinct) against a tenth of them, the original alone, BM25 on the sample
corpus, shards of 100: 43 blocks against 422 in one dataset. Peak is VmHWM of the driver's process. The goal is a ratio
below 1.2.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from results import peak_mib

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> None:
    log = pq.read_table(Path(os.environ["DMQR_SHARED"], "logs/terabyte05_50k/log.parquet"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        distinct = log.take(pc.index_in(pc.unique(log["query"]), log["query"]))
        peaks = []
        for label, rows in (("a tenth", distinct.slice(0, distinct.num_rows // 10)), ("all", distinct)):
            pq.write_table(rows, folder / f"{label}.parquet")
            config = {
                "name": "memory",
                "log": {"path": str(folder / f"{label}.parquet"), "query_column": "query"},
                "rewrite": {"strategies": []},
                "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": str(folder / "index")}}},
                "rerank": {"kind": "none"},
                "output": str(folder / "runs"),
                "cluster": {"shard_size": 100},
            }
            (folder / "config.yaml").write_text(yaml.safe_dump(config))
            command = [sys.executable, "-m", "jobs"]
            corpus = str(REPOSITORY / "configs/sample/corpus.parquet")
            index = [*command, "index", str(folder / "config.yaml"), "--corpus", corpus]
            subprocess.run(index, cwd=REPOSITORY, check=True, capture_output=True)
            began = time.monotonic()
            driver = subprocess.Popen(
                [*command, "run", str(folder / "config.yaml")],
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            peak = 0.0
            while driver.poll() is None:
                peak = max(peak, peak_mib(driver.pid))
                time.sleep(0.1)
            assert driver.returncode == 0
            peaks.append(peak)
            print(
                f"{label}: {rows.num_rows:,} queries, driver's peak {peak:.0f} MiB, {time.monotonic() - began:.0f} s",
                flush=True,
            )
        print(f"ratio {peaks[1] / peaks[0]:.3f}")


if __name__ == "__main__":
    main()
