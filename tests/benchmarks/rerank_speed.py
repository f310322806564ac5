"""Pairs a second of the reranker against a bare length-sorted forward of the same pairs.

    DMQR_SHARED=FOLDER python tests/benchmarks/rerank_speed.py [--pairs 1000] [--rounds 3] [--device cpu]

SciFact's recorded queries with their BM25 candidates. The bare loop has one tokenizer call, then forwards of 32 or 128
pairs, longest first; the better of the two is what the ratio is against. Rounds are interleaved, medians are printed.
Ends with exit code 1 where the ratio is below 0.8.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from retrievers.local_build import build_local_index
from retrievers.reranker import open_reranker
from retrievers.retriever import SearchText, open_documents, open_retriever

GOAL = 0.8
CANDIDATES = 50


def main() -> int:
    """Print the speeds; 1 below the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: as it likes")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    shared = Path(os.environ.get("DMQR_SHARED") or sys.exit("set DMQR_SHARED to the folder with data/ and models/"))
    model = str(shared / "models" / "minilm-cross-encoder")
    queries, passages = pairs(shared, options.pairs)
    reranker = open_reranker({"kind": "cross_encoder", "model": model}, device=options.device)
    assert reranker is not None
    bare = Bare(model, options.device)
    contestants: dict[str, Callable[[], Any]] = {
        "ours": lambda: reranker.score(queries, passages),
        "bare, 32 pairs": lambda: bare(queries, passages, 32),
        "bare, 128 pairs": lambda: bare(queries, passages, 128),
    }
    scores = {name: np.asarray(run()) for name, run in contestants.items()}  # also the warm-up
    apart = max(float(np.abs(scores["ours"] - each).max()) for each in scores.values())
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    speed = {name: len(queries) / statistics.median(each) for name, each in seconds.items()}
    words = sum(len(passage.split()) for passage in passages) / len(passages)
    print(f"{len(queries)} pairs, passages of {words:.0f} words, float32, {options.device}, {torch.get_num_threads()} threads")
    for name, each in speed.items():
        print(f"{name:16}{each:8.1f} pairs/s   rounds: {', '.join(f'{s:.1f} s' for s in seconds[name])}")
    ratio = speed["ours"] / max(each for name, each in speed.items() if name != "ours")
    print(f"ratio {ratio:.2f} (goal {GOAL}); largest difference of a score {apart:.1e}")
    return 0 if ratio >= GOAL else 1


class Bare:
    """The least that scores pairs."""

    def __init__(self, model: str, device: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.net = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).to(device).eval()
        self.device = device

    @torch.inference_mode()
    def __call__(self, queries: list[str], passages: list[str], batch: int) -> np.ndarray:
        """The logit of each pair."""
        ids = self.tokenizer(queries, passages, truncation="only_second", max_length=512)
        order = sorted(range(len(queries)), key=lambda i: -len(ids["input_ids"][i]))
        scores = np.empty(len(queries))
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            padded = self.tokenizer.pad({key: [ids[key][i] for i in part] for key in ids}, return_tensors="pt")
            scores[part] = self.net(**padded.to(self.device)).logits.view(-1).cpu().numpy()
        return scores


def pairs(shared: Path, wanted: int) -> tuple[list[str], list[str]]:
    """Distinct (query, passage) pairs: every recorded query with its best candidates."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"kind": "local", "index": folder, "analyzer": "english"}
        build_local_index(folder, shared / "data" / "scifact" / "corpus.parquet", bm25={"analyzer": "english"})
        lines = (shared / "recorded" / "scifact_a.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["query"] for line in lines]
        found = open_retriever("bm25", settings).search([SearchText(text) for text in texts], CANDIDATES)
        rank = np.concatenate([np.arange(n) for n in np.diff(found.offsets)])
        chosen = np.argsort(rank, kind="stable")[:wanted]
        queries = np.repeat(np.array(texts, dtype=object), np.diff(found.offsets))[chosen]
        passages = open_documents("bm25", settings).texts([found.doc_ids[int(i)].as_py() for i in chosen])
        return list(queries), passages


if __name__ == "__main__":
    sys.exit(main())
