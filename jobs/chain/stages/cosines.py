"""The cosines between the texts of each query, as they are handed on to the fusing stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from jobs.chain.search_texts import Text
from jobs.chain.tables import COSINES
from jobs.tables import nested
from retrievers.ranking import offsets_of, ranges
from retrievers.redundancy import Similarity


def similarity(rows: int, texts: Sequence[Text], vectors: np.ndarray | None) -> Similarity:
    """Returns the cosines between the texts of each row, rounded to 6 decimals: the seventh depends on the batch."""
    if vectors is None:
        return Similarity(np.zeros(rows + 1, dtype=np.int64), np.zeros(0, dtype=np.float32))
    counts = np.bincount([text.row for text in texts], minlength=rows)
    squares = [part @ part.T for part in np.split(vectors, np.cumsum(counts)[:-1])]
    flat = np.concatenate([square.ravel() for square in squares]).round(6).astype(np.float32)
    return Similarity(offsets_of(counts**2), flat)


def cosines_column(rows: int, cosines: Sequence[Similarity]) -> pa.ListArray:
    """Returns the column `cosines` of a block from those of each search; a search without vectors has none."""
    known = [(number, one) for number, one in enumerate(cosines) if len(one.cosines)]
    sizes = np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(one.offsets) for _, one in known)])
    by_row = np.arange(len(known) * rows).reshape(len(known), rows).T.ravel()  # row after row, in it search after search
    begins = np.concatenate([np.zeros(0, dtype=np.int64), *(one.offsets[:-1] for _, one in known)])
    base = np.repeat(np.cumsum([0, *(len(one.cosines) for _, one in known)])[: len(known)], rows)
    flat = np.concatenate([np.zeros(0, dtype=np.float32), *(one.cosines for _, one in known)])
    taken = ranges((base + begins)[by_row], sizes[by_row])
    matrices = nested(offsets_of(sizes[by_row]), pa.array(flat[taken]), COSINES.field("values").type)
    search = np.repeat(np.array([number for number, _ in known], dtype=np.int16), rows)[by_row]
    values = pa.StructArray.from_arrays([pa.array(search, pa.int16()), matrices], fields=list(COSINES))
    return nested(offsets_of(np.full(rows, len(known), dtype=np.int64)), values, pa.list_(COSINES))
