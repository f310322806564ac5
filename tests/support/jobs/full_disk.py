"""A disk that is full in the middle of a job in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from jobs.chain.stages.write import Write


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Has the second shard that the body writes fail for want of space, and checks that the body ends by it.

    Yields the rows of each shard that came to be written.
    """
    whole, calls = Write.__call__, list[int]()

    def breaks(self: Write, table: pa.Table) -> pa.Table:
        calls.append(table.num_rows)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return whole(self, table)

    with monkeypatch.context() as patch:
        patch.setattr(Write, "__call__", breaks)
        with pytest.raises(OSError, match="No space left"):
            yield calls
