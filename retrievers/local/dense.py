"""Exact dense search over a local index, by inner products in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.corpora.filters import Filters
from retrievers.encoder import RecentVectors, TextEncoder, encoded_passages
from retrievers.joined import search_vectors
from retrievers.retriever import Alive, JoinedText, Only, RankedLists, SearchText, distinct, no_heartbeat, ranked_lists

_ROWS = 16_384  # documents per matrix product: with 384 dimensions 25 MB of vectors
_TEXTS = 256  # texts per matrix product: 16 MB of scores
_DECIMALS = 6


def build_vectors(
    texts: Iterable[list[str]], encoder: TextEncoder, total: int, path: Path, progress: Callable[[str, int, int], None]
) -> None:
    """Encodes texts, in row order and in batches, as passages into a memory-mapped array of NumPy's format, float32.

    `total` is the number of texts; `progress` is called with "dense", texts done, texts in all.
    """
    vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(total, encoder.dim))  # type: ignore[no-untyped-call, unused-ignore]  # newer NumPys have its types
    done = 0
    for part in texts:
        vectors[done : done + len(part)] = encoded_passages(encoder, part)
        done += len(part)
        progress("dense", done, total)
    vectors.flush()


class DenseSearch:
    """Loaded vectors and their encoder; implements `retrievers.retriever.Retriever` and `Embedder`."""

    def __init__(
        self, vectors: Path, doc_ids: pa.StringArray, encoder: TextEncoder, identity: dict[str, Any], filters: Filters
    ) -> None:
        """Opens the vectors of `build_vectors`, memory-mapped, with the doc_ids by row and the encoder of the build."""
        self._vectors: np.ndarray = np.load(vectors, mmap_mode="r")
        self._doc_ids, self._identity, self._filters = doc_ids, identity, filters
        self._vectors_of = RecentVectors(encoder)

    def identity(self) -> dict[str, Any]:
        """Returns the corpus and the encoder."""
        return self._identity

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns vectors of length 1, shape (n, dim), float32; texts of the last `embed` or `search` are not encoded again."""
        return self._vectors_of.encode(texts)

    def search(self, texts: Sequence[SearchText | JoinedText], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Returns the `depth` documents with the highest cosines, rounded to 6 decimals."""
        unique, inverse = distinct(texts)
        vectors = search_vectors(unique, self.embed)
        found: list[Any] = [None] * len(unique)
        by_filters: dict[Only, list[int]] = {}
        for place, text in enumerate(unique):
            by_filters.setdefault(text.only, []).append(place)
        for only, places in by_filters.items():
            allowed = self._filters.mask(only)
            for start in range(0, len(places), _TEXTS):
                part = places[start : start + _TEXTS]
                for place, rows in zip(part, nearest_rows(vectors[part], self._vectors, depth, allowed), strict=True):
                    found[place] = rows
                alive()
        return ranked_lists([found[i][0] for i in inverse], [found[i][1] for i in inverse], self._doc_ids)


def nearest_rows(
    queries: np.ndarray, vectors: np.ndarray, depth: int, allowed: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the rows with the highest inner products for each query, best first, equal scores by row.

    Memory: one block of scores, independent of the number of rows.

    Args:
        queries: Shape (n, dim), float32; n up to some hundreds.
        vectors: Shape (rows, dim), float32; may be a memory map.
        depth: Most rows for each query.
        allowed: Mask of the rows that are searched, shape (rows,), bool; None: all.

    Returns:
        Rows (int64) and scores (float64, rounded to 6 decimals) of each query.
    """
    # A float32 product changes by 3e-7 with the shapes of the matrices (BLAS has other kernels for other shapes), so it only
    # selects the candidates, which are scored again in float64 and rounded. The encoder remains: a vector changes by 1.5e-7
    # with its batch, and of 50,000 hits (500 texts on SciFact, encoded in other batches) 738 scores changed in the sixth
    # digit, and no rank.
    wide = queries.astype(np.float64)
    slack = 2 * 10.0**-_DECIMALS
    best = [(np.empty(0, dtype=np.int64), np.empty(0))] * len(queries)
    if depth <= 0:
        return best
    for start in range(0, len(vectors), _ROWS):
        block, places = np.asarray(vectors[start : start + _ROWS]), None
        if allowed is not None:
            places = np.flatnonzero(allowed[start : start + _ROWS])
            if not len(places):
                continue
            block = block[places]
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
            rows = np.concatenate([rows, (hits if places is None else places[hits]) + start])
            # a stable sort of earlier rows before later ones keeps equal scores in the order of their rows
            order = np.argsort(-values, kind="stable")[:depth]
            best[i] = rows[order], values[order]
    return best
