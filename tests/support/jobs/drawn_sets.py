"""Data sets invented from a seed, each a folder: log, corpus, judgements, recorded rewrites; and the config of an ablation."""

from __future__ import annotations

import json
import random
from pathlib import Path

PAPER = """\
name: {set}
log: {{path: "data/{set}/queries.jsonl", query_column: text, id_column: _id}}
corpus: {{path: "data/{set}/corpus.jsonl"}}
rewrite: {{engine: {{kind: recorded, path: "data/{set}/recorded.jsonl"}}, strategies: [general, keyword]}}
retrieve: {{retrievers: {{bm25: {{kind: local, index: "index/{set}"}}}}}}
rerank: {{kind: none}}
evaluate: {{qrels: "data/{set}/qrels.tsv", measures: [nDCG@10, P@5]}}
ablate: {{subsets: leave_one_out, grid: {{fuse.depth: [3, 8]}}, arms: {{by rank: {{fuse.method: rrf}}}}}}
output: runs
cluster: {{address: none}}
"""
"""An ablation of nine arms over one data set."""
SIZES = {"birds": (24, 90), "tools": (37, 120)}


def write_data_set(folder: Path, name: str, queries: int, documents: int) -> None:
    """Writes one data set; a document is relevant to a query by the words of both and by chance."""
    drawn = random.Random(name)
    words = [f"{name}{number}" for number in range(60)]
    weights = [1 / (2 + number) for number in range(60)]
    texts = {f"{name}-d{n}": drawn.choices(words, weights, k=12) for n in range(documents)}
    asked = {f"{name}-q{n}": drawn.choices(words, weights, k=3) for n in range(queries)}
    rows, recorded, qrels = [], [], []
    for key, text in asked.items():
        overlap = {doc: len(set(text) & set(of)) + drawn.random() * 2 for doc, of in texts.items()}
        best = sorted(overlap, key=lambda doc: -overlap[doc])[:6]
        relevant = drawn.sample(best, 3)
        helped = drawn.sample(texts[relevant[0]], 4)
        shown = " ".join(text)
        rows.append({"_id": key, "text": shown})
        answer = {"general": " ".join([*text, *helped]), "keyword": " ".join([*helped[:2], *drawn.choices(words, k=3)])}
        recorded.append({"query": shown, "completions": {"dmqr": json.dumps(answer)}})
        qrels += [f"{key}\t{doc}\t{1 + number}" for number, doc in enumerate(relevant)]
    place = folder / name
    place.mkdir(parents=True)
    corpus = [{"doc_id": doc, "title": "", "text": " ".join(of)} for doc, of in texts.items()]
    for file, lines in (("queries", rows), ("corpus", corpus), ("recorded", recorded)):
        (place / f"{file}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    (place / "qrels.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")


def write_ablation(place: Path, name: str) -> Path:
    """Writes a data set and the config of an ablation over it; returns its path."""
    write_data_set(place / "data", name, *SIZES.get(name, (12, 40)))
    path = place / f"{name}.yaml"
    path.write_text(PAPER.format(set=name), encoding="utf-8")
    return path
