"""Exact dense search over a local index, by inner products in blocks of rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.corpora.corpus import ReadCorpus
from retrievers.corpora.files import Progress
from retrievers.encoder import RecentVectors, TextEncoder, refusals_named
from retrievers.join import search_vectors
from retrievers.ranking import distinct
from retrievers.retriever import Alive, RankedLists, Search, SearchText, no_heartbeat, ranked_lists

_ROWS = 16_384  # documents per matrix product: with 384 dimensions 25 MB of vectors
_TEXTS = 256  # texts per matrix product: 16 MB of scores
_DECIMALS = 6


def build_vectors(corpus: ReadCorpus, encoder: TextEncoder, path: Path, progress: Progress) -> None:
    """Encodes documents, in row order and in batches, as passages into a memory-mapped array of NumPy's format, float32.

    `progress` is called with "dense", documents done, documents in all.
    """
    total = corpus.documents
    vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(total, encoder.dim))  # type: ignore[no-untyped-call, unused-ignore]  # newer NumPys have its types
    done = 0
    for doc_ids, texts in corpus.texts():
        with refusals_named(texts, doc_ids):
            vectors[done : done + len(texts)] = encoder.encode([SearchText(text, "passage") for text in texts])
        done += len(texts)
        progress("dense", done, total)
    vectors.flush()


class DenseSearch:
    """Loaded vectors and their encoder; implements `retrievers.retriever.Retriever` and `Embedder`."""

    def __init__(self, vectors: Path, doc_ids: pa.StringArray, encoder: TextEncoder, identity: dict[str, Any]) -> None:
        """Opens the vectors of `build_vectors`, memory-mapped, with the doc_ids by row and the encoder of the build."""
        self._vectors: np.ndarray = np.load(vectors, mmap_mode="r")
        self._doc_ids, self._identity = doc_ids, identity
        self._vectors_of = RecentVectors(encoder)

    def identity(self) -> dict[str, Any]:
        return self._identity

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns vectors of length 1, shape (n, dim), float32; texts of the last `embed` or `search` are not encoded again."""
        return self._vectors_of.encode(texts)

    def search(self, texts: Sequence[Search], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        unique, inverse = distinct(texts)
        vectors = search_vectors(unique, self.embed)
        nearest: list[tuple[np.ndarray, np.ndarray]] = []
        for start in range(0, len(unique), _TEXTS):
            nearest += nearest_rows(vectors[start : start + _TEXTS], self._vectors, depth)
            alive()
        return ranked_lists([nearest[i][0] for i in inverse], [nearest[i][1] for i in inverse], self._doc_ids)


def nearest_rows(queries: np.ndarray, vectors: np.ndarray, depth: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the rows with the highest inner products for each query, best first, equal scores by row, and their scores.

    `queries` have shape (n, dim), n up to some hundreds, `vectors` (rows, dim), float32, perhaps a memory map. A row of zeros,
    of a blank document, is not found. Scores are float64, rounded to 6 decimals.
    Memory: one block of scores and the hits of each query, independent of the number of rows.
    """
    # A float32 product changes by 3e-7 with the shapes of the matrices (BLAS has other kernels for other shapes), so it only
    # selects the candidates, which are scored again in float64 and rounded. The encoder remains: a vector changes by 1.5e-7
    # with its batch, and of 50,000 hits (500 texts on SciFact, encoded in other batches) 738 scores changed in the sixth
    # digit, and no rank.
    slack = np.float32(2 * 10.0**-_DECIMALS)
    best = [(np.empty(0, dtype=np.int64), np.empty(0))] * len(queries)
    for start in range(0, len(vectors) if depth > 0 else 0, _ROWS):
        block = np.asarray(vectors[start : start + _ROWS])
        scores = queries @ block.T
        zero = np.flatnonzero(scores[:1].ravel() == 0)
        scores[:, zero[~block[zero].any(axis=1)]] = -np.inf
        for i, row in enumerate(scores):
            rows, exact = best[i]
            least = -np.inf
            if len(rows) == depth:
                least = exact[-1]
            elif len(row) > depth:
                least = np.partition(row, len(row) - depth)[len(row) - depth]
            places = np.flatnonzero((row >= np.float32(least) - slack) & (row > -np.inf))
            if len(places):
                again = np.round(block[places].astype(np.float64) @ queries[i].astype(np.float64), _DECIMALS) + 0.0
                rows, exact = np.concatenate([rows, places + start]), np.concatenate([exact, again])
                order = np.lexsort((rows, -exact))[:depth]
                best[i] = rows[order], exact[order]
    return best
