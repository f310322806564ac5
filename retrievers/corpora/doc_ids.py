"""Looks up documents among the sorted ids of a corpus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def rows_of(sorted_ids: pa.StringArray | pa.LargeStringArray, doc_ids: Sequence[str]) -> Iterator[int | None]:
    """Yields the row of each document, None for one that is not there. Cost: a binary search per document."""
    ids = _Strings(sorted_ids)
    for doc_id in doc_ids:
        row = bisect_left(ids, doc_id.encode("utf-8", "surrogatepass"))
        yield row if row < len(ids) and sorted_ids[row].as_py() == doc_id else None


class _Strings(Sequence[bytes]):
    """A string array as a sequence of UTF-8 bytes, whose order is that of code points."""

    def __init__(self, array: pa.StringArray | pa.LargeStringArray) -> None:
        _, offsets, data = array.buffers()
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        self._offsets = np.frombuffer(offsets, dtype=width)[array.offset :]
        self._data = memoryview(data or b"")
        self._length = len(array)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: Any) -> Any:
        return bytes(self._data[self._offsets[i] : self._offsets[i + 1]])
