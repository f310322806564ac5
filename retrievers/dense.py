"""Exact dense search over a local index: inner products in blocks of rows, no approximation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.encoder import Encoder, RecentVectors
from retrievers.retriever import Alive, RankedLists, SearchText, distinct, ranked_lists, unwatched

_ROWS = 16_384  # documents per matrix product: with 384 dimensions 25 MB of vectors
_TEXTS = 256  # texts per matrix product: 16 MB of scores
_DECIMALS = 6


def build_vectors(
    texts: Iterable[list[str]], encoder: Encoder, total: int, path: Path, progress: Callable[[str, int, int], None]
) -> None:
    """Encode the texts (given in lists, in row order) as passages, straight into a memory map of float32."""
    vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(total, encoder.dim))  # type: ignore[no-untyped-call, unused-ignore]  # newer NumPys have its types
    done = 0
    for part in texts:
        vectors[done : done + len(part)] = encoder.encode([SearchText(text, "passage") for text in part])
        done += len(part)
        progress("dense", done, total)
    vectors.flush()


class DenseSearch:
    """Loaded vectors and their encoder; implements `retrievers.retriever.Retriever` and `Embedder`."""

    def __init__(self, vectors: Path, doc_ids: pa.StringArray, encoder: Encoder, identity: dict[str, Any]) -> None:
        self._vectors: np.ndarray = np.load(vectors, mmap_mode="r")
        self._doc_ids, self._identity = doc_ids, identity
        self._vectors_of = RecentVectors(encoder)

    def identity(self) -> dict[str, Any]:
        """The corpus and the encoder."""
        return self._identity

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Shape (n, dim), float32, length 1. Texts of the last call of `embed` or `search` are not encoded again."""
        return self._vectors_of.encode(texts)

    def search(self, texts: Sequence[SearchText], depth: int, alive: Alive = unwatched) -> RankedLists:
        """The ``depth`` documents with the highest inner products (cosines), rounded to 6 decimals."""
        once, inverse = distinct([SearchText(*text) for text in texts])
        vectors = self.embed(once)
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for start in range(0, len(once), _TEXTS):
            found += nearest(vectors[start : start + _TEXTS], self._vectors, depth)
            alive()
        return ranked_lists([found[i][0] for i in inverse], [found[i][1] for i in inverse], self._doc_ids)


def nearest(queries: np.ndarray, vectors: np.ndarray, depth: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the rows of ``vectors`` with the highest inner products, best first, equal scores by row.

    Memory: one block of scores, whatever the number of rows.

    Args:
        queries: shape (n, dim), float32; n up to some hundreds.
        vectors: shape (rows, dim), float32, may be a memory map.

    Returns:
        Per query (rows int64, scores float64 rounded to 6 decimals).
    """
    # A float32 product moves by 3e-7 with the shape of the matrices (BLAS takes other kernels for other shapes), so it
    # only finds who can be among the best; these are scored again in float64 and rounded. What is left is the encoder:
    # a vector moves by 1.5e-7 with its batch, and of 50,000 hits (500 texts on SciFact, encoded in other batches) 738
    # scores moved in the sixth digit and no rank did.
    wide = queries.astype(np.float64)
    slack = 2 * 10.0**-_DECIMALS
    best = [(np.empty(0, dtype=np.int64), np.empty(0))] * len(queries)
    if depth <= 0:
        return best
    for start in range(0, len(vectors), _ROWS):
        block = np.asarray(vectors[start : start + _ROWS])
        scores = queries @ block.T
        for i in range(len(queries)):
            rows, kept = best[i]
            row = scores[i]
            cut = kept[-1] - slack if len(kept) == depth else -np.inf
            if len(row) > depth:
                cut = max(cut, float(np.partition(row, len(row) - depth)[len(row) - depth]) - slack)
            hits = np.flatnonzero(row >= cut)
            if not len(hits):
                continue
            exact = np.round(block[hits].astype(np.float64) @ wide[i], _DECIMALS) + 0.0
            values = np.concatenate([kept, exact])
            rows = np.concatenate([rows, hits + start])
            # stable: what is kept stands before what is new, and so in the order of rows among equal scores
            order = np.argsort(-values, kind="stable")[:depth]
            best[i] = rows[order], values[order]
    return best
