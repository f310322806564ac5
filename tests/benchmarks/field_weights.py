"""nDCG@10 of local BM25 with other weights of the title: what `fields` does on two collections whose documents have titles.

    DMQR_SHARED=... python tests/benchmarks/field_weights.py [--titles 1 2 3 5]

Nothing is chosen by it: the default stays the joined text.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from itertools import pairwise
from pathlib import Path

import ir_measures
import pyarrow.parquet as pq

from retrievers.local.build import build_local_index
from retrievers.local.fields import IndexFields
from retrievers.local.index import open_retriever
from retrievers.local.settings import LocalSettings
from retrievers.retriever import SearchText
from retrievers.settings import FieldWeights

MEASURE = ir_measures.nDCG @ 10
SETS = ("scifact", "cranfield")


def quality(data: Path, weights: FieldWeights) -> float:
    """Returns nDCG@10 of the collection's queries."""
    rows = pq.read_table(data / "queries.parquet").to_pylist()
    judged = (line.split("\t") for line in (data / "qrels.tsv").read_text().splitlines())
    qrels = [ir_measures.Qrel(query_id, doc_id, int(relevance)) for query_id, doc_id, relevance in judged]
    with tempfile.TemporaryDirectory() as folder:
        build_local_index(folder, data / "corpus.parquet", IndexFields("english", weights=weights))
        settings = LocalSettings(kind="local", index=folder, analyzer="english", fields=weights)
        found = open_retriever("bm25", settings).search([SearchText(row["query"]) for row in rows], 10)
    ids, scores = found.doc_ids.to_pylist(), found.scores.tolist()
    run = [
        ir_measures.ScoredDoc(row["query_id"], ids[place], scores[place])
        for row, (begin, end) in zip(rows, pairwise(found.offsets.tolist()), strict=True)
        for place in range(begin, end)
    ]
    return float(ir_measures.calc_aggregate([MEASURE], qrels, run)[MEASURE])


def main() -> None:
    """Prints one row per collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--titles", type=int, nargs="+", default=[1, 2, 3, 5])
    titles = parser.parse_args().titles
    print(f"{MEASURE}     " + "".join(f"title {title:<4}" for title in titles))
    for name in SETS:
        data = Path(os.environ["DMQR_SHARED"], "data", name)
        print(f"{name:<12}" + "".join(f"{quality(data, FieldWeights(title=title)):<10.4f}" for title in titles), flush=True)


if __name__ == "__main__":
    main()
