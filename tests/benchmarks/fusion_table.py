"""The table of what fuses best, measured again through this package, beside the figures noted when it was designed.

    DMQR_SHARED=FOLDER python tests/benchmarks/fusion_table.py [--indexes FOLDER]

100 recorded queries each of SciFact, MuSiQue and Cranfield; BM25 (english) and exact dense (MiniLM, mean pooling); no
rerank; nDCG@10 by ir_measures. Indexes are built where they are missing (on two cores 2 to 5 minutes each).
Ends with exit code 1 where a figure is more than 0.01 away from the noted one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np
import pyarrow as pa
from recorded_sets import DATA, DEPTH, INDEXES, LABELS, NDCG, measured, read_qrels, recorded_rows, retrievers

from retrievers.fusion import fuse
from retrievers.lists import ORIGINAL, Hits, Lists, by_document
from retrievers.ranking import offsets_of, ranks
from retrievers.redundancy import Similarity
from retrievers.retriever import SearchText
from retrievers.settings import FuseSettings

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
    parser.add_argument("--indexes", type=Path, default=INDEXES, help="where indexes are kept")
    folder = parser.parse_args().indexes
    far = 0
    for name in DATA:
        began = time.perf_counter()
        found = search(name, folder)
        qrels = read_qrels(name, set(found.query_ids))
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


def search(name: str, indexes: Path) -> Found:
    """Every recorded query and its four rewrites, searched in both retrievers."""
    bm25, dense = retrievers(name, indexes).values()
    ids, texts = [], []
    for row in recorded_rows(name):
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
    values = measured(found.query_ids, fused.offsets, fused.doc_ids.to_pylist(), qrels)
    return float(values[NDCG].mean())


if __name__ == "__main__":
    sys.exit(main())
