"""The out-of-core group-by of dedup: texts with their counts in, queries in order of query_id out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.dedup_files import QUERIES
from jobs.dedup_texts import DistinctTexts, hex_ids

SPILL = pa.schema([("hi", pa.uint64()), ("lo", pa.uint64()), ("raw", pa.string()), ("n", pa.int64())])
PARTITION_BITS = 6
BATCH_ROWS = 1 << 14


class Spill:
    """Texts and counts on disk, cut by the first bits of query_id into parts that are grouped one after the other.

    Grouped whole, half a million distinct texts took DuckDB 110 MB; a 64th of them is a few MB, so that peak memory
    stays the same up to some ten million texts, from where DuckDB itself spills.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []  # in order of query_id
        self._stack = ExitStack()
        self._writers: list[pq.ParquetWriter] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, texts: DistinctTexts, *, last: bool) -> None:
        """Write the table's texts; if all of them fit one table, there is one part only."""
        if not self._writers:
            self._open(1 if last else 1 << PARTITION_BITS)
        halves = texts.digests.reshape(-1).view(">u8").reshape(-1, 2).astype(np.uint64)
        arrays = [halves[:, 0], halves[:, 1], texts.raws, texts.counts]
        rows = pa.table([pa.array(array, kind) for array, kind in zip(arrays, SPILL.types, strict=True)], schema=SPILL)
        if len(self._writers) == 1:
            self._writers[0].write_table(rows)
            return
        part = (halves[:, 0] >> np.uint64(64 - PARTITION_BITS)).astype(np.int64)
        rows = rows.take(pa.array(np.argsort(part, kind="stable")))
        start = 0
        for writer, size in zip(self._writers, np.bincount(part, minlength=len(self._writers)).tolist(), strict=True):
            writer.write_table(rows.slice(start, size))
            start += size

    def _open(self, parts: int) -> None:
        self.files = [self.folder / f"spill-{part:02d}.parquet" for part in range(parts)]
        for file in self.files:
            writer = pq.ParquetWriter(file, SPILL, compression="lz4", use_dictionary=False, write_statistics=False)
            self._writers.append(self._stack.enter_context(writer))


def connect(memory_limit: str, threads: int, temp: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB that spills to `temp`."""
    config: dict[str, str | int | bool] = {"memory_limit": memory_limit, "temp_directory": str(temp)}
    config |= {"threads": threads, "preserve_insertion_order": False}
    return duckdb.connect(config=config)


def grouped_queries(connection: duckdb.DuckDBPyConnection, parts: Sequence[Path]) -> Iterator[pa.Table]:
    """The QUERIES rows in order of query_id, some thousands at a time.

    DuckDB groups equal texts and sorts them, both out of core; the forms of a query then follow one another, the one to
    be shown first, so that picking it and adding up needs no memory (an arg_max per query would not spill).
    """
    for part in parts:
        ordered = connection.sql(
            "SELECT hi, lo, raw, sum(n)::BIGINT AS n FROM read_parquet($part)"
            " GROUP BY hi, lo, raw ORDER BY hi, lo, n DESC, raw",
            params={"part": str(part)},
        )
        held: pa.RecordBatch | None = None  # the last query so far: the next batch may have more of its forms
        for batch in ordered.to_arrow_reader(BATCH_ROWS):
            if len(batch):
                merged = _merge_forms(batch if held is None else pa.concat_batches([held, batch]))
                held = merged.slice(len(merged) - 1)
                yield _query_rows(merged.slice(0, len(merged) - 1))
        if held is not None:
            yield _query_rows(held)


def _merge_forms(forms: pa.RecordBatch) -> pa.RecordBatch:
    hi, lo = forms.column("hi").to_numpy(), forms.column("lo").to_numpy()
    starts = np.flatnonzero(np.concatenate([[True], (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])]))
    counts = np.add.reduceat(forms.column("n").to_numpy(), starts)
    first = forms.take(pa.array(starts))
    return pa.record_batch([*first.columns[:3], pa.array(counts)], schema=forms.schema)


def _query_rows(merged: pa.RecordBatch) -> pa.Table:
    halves = np.stack([merged.column("hi").to_numpy(), merged.column("lo").to_numpy()], axis=1)
    ids = hex_ids(np.ascontiguousarray(halves.astype(">u8")).view(np.uint8))
    return pa.table([ids, merged.column("raw"), merged.column("n")], schema=QUERIES)


def ambiguous_id(connection: duckdb.DuckDBPyConnection, query_map: str, temp: Path) -> tuple[str, int] | None:
    """A log id that stands for several queries, and for how many; None when there is none.

    `query_map` is a file pattern. Hashes are compared first, cut into parts like the texts (a group-by over the ids took
    100 MB more at ten times the rows), then the ids themselves of those whose hashes disagree.
    """
    hashes = connection.sql(
        "SELECT hash(log_id) AS id, hash(query_id) AS query FROM read_parquet($map) WHERE query_id IS NOT NULL",
        params={"map": query_map},
    )
    files = [temp / f"ids-{part:02d}" for part in range(1 << PARTITION_BITS)]
    with ExitStack() as stack:
        streams = [stack.enter_context(file.open("wb")) for file in files]
        for batch in hashes.to_arrow_reader(1 << 16):
            pairs = np.stack([column.to_numpy() for column in batch.columns], axis=1)
            part = (pairs[:, 0] >> np.uint64(64 - PARTITION_BITS)).astype(np.int64)
            bounds = np.cumsum(np.bincount(part, minlength=len(files)))[:-1]
            for stream, rows in zip(streams, np.split(pairs[np.argsort(part, kind="stable")], bounds), strict=True):
                stream.write(rows.tobytes())
    suspects: list[int] = []
    for file in files:
        pairs = np.fromfile(file, np.uint64).reshape(-1, 2)
        pairs = pairs[np.argsort(pairs[:, 0])]
        differ = (pairs[1:, 0] == pairs[:-1, 0]) & (pairs[1:, 1] != pairs[:-1, 1])
        suspects += pairs[1:][differ, 0][:100].tolist()  # 100 are enough to name one
    if not suspects:
        return None
    found = connection.execute(
        "SELECT log_id, count(DISTINCT query_id) AS n FROM read_parquet($map)"
        " WHERE hash(log_id) IN (SELECT unnest($suspects::UBIGINT[])) GROUP BY log_id HAVING n > 1"
        " ORDER BY n DESC, log_id LIMIT 1",
        {"map": query_map, "suspects": suspects},
    ).fetchone()
    return None if found is None else (str(found[0]), int(found[1]))
