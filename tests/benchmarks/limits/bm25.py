"""BM25 beside bare bm25s: the same texts over the same documents, tokenised, searched 100 deep, one thread.

The bare loop is the script that one would write: `bm25s.tokenize` with a stemmer, `retrieve`, the ids of the rows found. Ours
is once the search alone (which sums in float64 and keeps the order of equal scores exact), and once the retrieving worker of
a run: from the blocks that rewriting hands on to those that fusion takes, with costs.
"""

from collections.abc import Callable

import bm25s
import numpy as np
import pyarrow.parquet as pq
import Stemmer

from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.worker import WorkerJob
from limits.recorded_blocks import DEPTH, bm25_index, documents, rewritten_block, texts_of, work_of
from limits.rounds import Row, Spent, alternated, timed
from retrievers.corpora.corpus import joined
from retrievers.retriever import SearchText


def measure(quick: bool) -> list[Row]:
    """Returns the rows of the search and of the worker."""
    block = rewritten_block()
    texts = texts_of(block)
    wanted = [SearchText(text) for text in texts]

    def opened() -> Retrieve:
        # Anew for each round: it keeps the terms of words that it has seen, and the bare loop stems in every round.
        return Retrieve(WorkerJob(work_of({"bm25": bm25_index()}), "none"))

    def search() -> Spent:
        (one,) = opened().retrieval.opened.values()
        return timed(lambda: one.search(wanted, DEPTH))

    def worker() -> Spent:
        one = opened()
        return timed(lambda: one(block))

    plain, compiled = bare(texts, "numpy"), bare(texts, "numba")
    sides = {"search": search, "worker": worker, "numpy": lambda: timed(plain), "numba": lambda: timed(compiled)}
    for side in sides.values():  # not measured: what is loaded and compiled at the first call
        side()
    spent = alternated(sides, 1 if quick else 9)
    return [
        Row(f"BM25, {what}", f"bare bm25s, {backend}", len(texts), "texts", spent[ours], spent[backend])
        for what, ours in (("search", "search"), ("worker", "worker"))
        for backend in ("numpy", "numba")
    ]


def bare(texts: list[str], backend: str) -> Callable[[], object]:
    """A loop of bm25s alone, with one of its backends."""
    table = pq.read_table(documents())
    stemmer, ids = Stemmer.Stemmer("english"), np.array(table.column("doc_id").to_pylist(), dtype=object)
    tokens = bm25s.tokenize(joined(table), stopwords="en", stemmer=stemmer, show_progress=False)
    index = bm25s.BM25(method="lucene", backend=backend)
    index.index(tokens, show_progress=False)

    def loop() -> object:
        asked = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
        rows, scores = index.retrieve(asked, k=DEPTH, show_progress=False, n_threads=0)
        return ids[rows], scores

    return loop
