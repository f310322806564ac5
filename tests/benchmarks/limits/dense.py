"""Dense search beside a bare matrix product: the same vectors of documents and queries, 100 deep, as many threads of BLAS.

The bare loop is NumPy's: the product of 256 queries with all documents, `argpartition`, a sort of the 100 best, their ids. Ours
scores the best again in float64, so that a score depends on neither batch nor BLAS, and orders equal scores. Vectors are drawn
(384 numbers, length 1), so that the encoder, which has a row of its own, does not count.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from limits.rounds import Row, interleaved
from retrievers.local.dense import DenseSearch
from retrievers.retriever import SearchText

DIM, DEPTH, QUERIES, AT_A_TIME = 384, 100, 1000, 256
DOCUMENTS = (20_000, 200_000)


def measure(quick: bool) -> list[Row]:
    """Returns a row for each number of documents."""
    rows = []
    for documents in DOCUMENTS[: 1 if quick else None]:
        with tempfile.TemporaryDirectory() as name:
            sides = contestants(Path(name), documents)
            spent = interleaved(sides, 1 if quick else 5)
        what = f"dense search, {documents:,} documents"
        rows.append(Row(what, "bare matrix product", QUERIES, "texts", spent["ours"], spent["bare"]))
    return rows


def contestants(folder: Path, documents: int) -> dict[str, Callable[[], object]]:
    """Ours and the bare loop over so many documents."""
    vectors, asked = drawn(documents, 0), drawn(QUERIES, 1)
    np.save(folder / "vectors.npy", vectors)
    ids = [f"d{number:07d}" for number in range(documents)]
    known, plain_ids = _Known(asked), np.array(ids, dtype=object)
    search = DenseSearch(folder / "vectors.npy", pa.array(ids), known, {})

    def bare() -> object:
        found = []
        for begin in range(0, QUERIES, AT_A_TIME):
            scores = asked[begin : begin + AT_A_TIME] @ vectors.T
            best = np.argpartition(scores, -DEPTH, axis=1)[:, -DEPTH:]
            kept = np.take_along_axis(scores, best, axis=1)
            order = np.argsort(-kept, axis=1)
            found.append((plain_ids[np.take_along_axis(best, order, axis=1)], np.take_along_axis(kept, order, axis=1)))
        return found

    return {"ours": lambda: search.search(known.texts, DEPTH), "bare": bare}


class _Known:
    """Stands in for an encoder: its vectors are at hand."""

    dim = DIM

    def __init__(self, vectors: np.ndarray) -> None:
        self.texts = [SearchText(f"query {number}") for number in range(len(vectors))]
        self._place = {text: number for number, text in enumerate(self.texts)}
        self._vectors = vectors

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        found: np.ndarray = self._vectors[[self._place[text] for text in texts]]
        return found


def drawn(count: int, seed: int) -> np.ndarray:
    """Vectors of length 1, shape (count, DIM), float32."""
    vectors = np.random.default_rng(seed).standard_normal((count, DIM), dtype=np.float32)
    found: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found
