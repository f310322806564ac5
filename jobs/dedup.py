"""Log -> queries: equal queries become one, every log row keeps a line to its query, unusable rows become errors.

One pass over the log. A row's query_id depends on its text alone, so the map from rows to queries is written as the log
is read, without a join; what is counted on the way, (query_id, text, count) per distinct text, goes to a spill file
whenever a bounded table is full. One out-of-core DuckDB group-by and sort of the spill then gives the queries in order.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.dedup_files import ENCODED_MAP, QUERIES, REJECTED, RowGroups, Shard, files_by_table, move_files
from jobs.dedup_group import Spill, ambiguous_id, connect, grouped_queries
from jobs.dedup_texts import REASONS, DistinctTexts, Rejection, hex_ids
from jobs.log import LogColumns, no_rows, one_line
from jobs.log_files import LogError, LogFile
from jobs.log_rows import LogPiece, read_log

MAP_GROUP = 1 << 18  # rows; every row group repeats the ids that occur in it
REJECTED_GROUP = 1 << 15
MAX_TOTAL = 2**63 - 1  # log_count is an int64


@dataclass(frozen=True)
class LogSummary:
    """What the log held and where the result lies. rows = rows with a query_id + sum of `rejected`."""

    rows: int
    queries: int
    log_count: int  # sum over all queries; rows without count_column
    rejected: dict[str, int]  # reason -> log rows; the keys of REASONS that occurred
    shards: tuple[Shard, ...]
    files: dict[str, tuple[str, ...]]  # "queries", "query_map", "rejected" -> names inside the out folder, in order
    seconds: dict[str, float] = field(default_factory=dict, compare=False)  # read, texts, map, spill, ids, group


def dedup(
    files: Sequence[LogFile],
    columns: LogColumns,
    out_folder: Path,
    shard_size: int,
    *,
    memory_limit: str = "128MB",
    threads: int = 2,
    temp_folder: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> LogSummary:
    """Write queries, query_map and rejected rows of the log into `out_folder` (local), all at once at the end.

    queries-*.parquet: query_id, query, log_count, sorted by query_id over all files; a row group is a shard of
    `shard_size` rows (the last one fewer), a file has 64 of them. `query` is the most frequent raw form, ties by the
    smallest code points; `log_count` the rows, or the sum of the count column, which then also weighs the forms.
    query_map-*.parquet: log_id, query_id (null: rejected), a line per log row in the order of the log.
    rejected-*.parquet: log_id, reason (a key of REASONS), message, raw (its first 200 characters).
    Files of an earlier dedup in `out_folder`, finished or killed, are replaced; nothing appears there when it fails. The
    folder belongs to one dedup at a time; a kill during the last moves may leave some files, the next dedup replaces them.

    `memory_limit` and `threads` are DuckDB's; what does not fit goes to `temp_folder` (default: inside `out_folder`).
    `progress` is told the rows read so far.
    Raises LogError: no rows, no usable query, a damaged file, a bad count, an id that stands for different queries.
    """
    if shard_size < 1:
        raise ValueError(f"shard_size {shard_size}: must be 1 or more")
    out_folder.mkdir(parents=True, exist_ok=True)
    for killed in out_folder.glob("_dedup-*"):
        shutil.rmtree(killed, ignore_errors=True)
    built = Path(tempfile.mkdtemp(prefix="_dedup-", dir=out_folder))
    temp = Path(tempfile.mkdtemp(prefix="_dedup-temp-", dir=temp_folder or out_folder))
    clock = _Clock()
    try:
        spill = Spill(temp)
        rows, rejected = _read(files, columns, built, spill=spill, clock=clock, progress=progress)
        if not rows:
            raise LogError(no_rows(files))
        if rows == sum(rejected.values()):
            raise LogError(_nothing_left(files, columns, rejected))
        with connect(memory_limit, threads, temp) as connection:
            if columns.id_column is not None:
                _refuse_ambiguous(ambiguous_id(connection, str(built / "query_map-*.parquet"), temp), columns.id_column)
                clock.lap("ids")
            with RowGroups(built, "queries", QUERIES, shard_size) as queries:
                log_count = 0
                for table in grouped_queries(connection, spill.files):
                    queries.push(table)
                    log_count += sum(table.column("log_count").to_pylist())
        move_files(built, out_folder)
        clock.lap("group")
    except duckdb.Error as error:
        where = f"memory_limit {memory_limit}, temporary files in {temp.parent}"
        raise LogError(f"dedup could not group the log ({where}): {one_line(error)}; free space there") from error
    finally:
        shutil.rmtree(built, ignore_errors=True)
        shutil.rmtree(temp, ignore_errors=True)
    shards = tuple(queries.shards)
    distinct = sum(shard.rows for shard in shards)
    return LogSummary(rows, distinct, log_count, rejected, shards, files_by_table(out_folder), clock.seconds)


def _nothing_left(files: Sequence[LogFile], columns: LogColumns, rejected: dict[str, int]) -> str:
    why = ", ".join(f"{n:,} {REASONS[reason].format(max_chars=columns.max_chars)}" for reason, n in rejected.items())
    where = files[0].path if len(files) == 1 else f"{len(files)} files"
    what = f"all {sum(rejected.values()):,} rows of {where} were rejected"
    what = f"{what} (column {columns.query_column!r}: {why})"
    return f"the log has no usable query: {what}; name another column, or raise log.max_chars"


def _refuse_ambiguous(found: tuple[str, int] | None, column: str) -> None:
    """A log id may come again with the same query (aggregated logs), not with another: joins on it would be wrong."""
    if found is not None:
        raise LogError(
            f"column {column!r} (log.id_column) is not unique: id {found[0]!r} stands for {found[1]:,} different"
            " queries; name a unique column, or none (id_column: null) to have rows named by file and row"
        )


class _Clock:
    """Seconds between laps, added up by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


# ---------------------------------------------------------------- the pass over the log


def _read(
    files: Sequence[LogFile],
    columns: LogColumns,
    built: Path,
    *,
    spill: Spill,
    clock: _Clock,
    progress: Callable[[int], None] | None,
) -> tuple[int, dict[str, int]]:
    """Write query_map, rejected and the spill; returns the rows and the rejected rows by reason."""
    texts = DistinctTexts(columns.max_chars)
    rows, total = 0, 0
    rejected: Counter[str] = Counter()
    pending: list[tuple[pa.StringArray, npt.NDArray[np.int64]]] = []  # log ids and slots of rows not yet in the map
    written: Future[None] | None = None
    with (
        RowGroups(built, "query_map", ENCODED_MAP, None) as query_map,
        RowGroups(built, "rejected", REJECTED, REJECTED_GROUP) as errors,
        spill,
        ThreadPoolExecutor(1, "query_map") as writer,  # writing the map takes as long as the rest, and no GIL
    ):
        for piece in read_log(files, columns):
            clock.lap("read")
            if pending and (texts.full or sum(len(slots) for _, slots in pending) + len(piece.codes) > MAP_GROUP):
                table = _map_rows(pending, texts)
                if written is not None:
                    written.result()
                written = writer.submit(query_map.push, table)
                pending.clear()
                clock.lap("map")
                if texts.full:  # only here: clearing makes the slots of pending rows meaningless
                    spill.add(texts, last=False)
                    texts.clear()
                    clock.lap("spill")
            slots, rejections = texts.add(piece)
            pending.append((piece.log_ids, slots))
            if rejections and slots.min() < 0:
                table = _rejected_rows(piece, slots, rejections)
                rejected.update(table.column("reason").to_pylist())
                errors.push(table)
            rows += len(slots)
            total += len(slots) if piece.counts is None else _exact_sum(piece.counts)
            if total > MAX_TOTAL:
                where = f"log file {files[0].path}" + " and others" * (len(files) > 1)
                what = f"column {columns.count_column!r} (log.count_column)"
                raise LogError(f"{where}: {what} adds up to more than {MAX_TOTAL:,}; correct it")
            if progress is not None:
                progress(rows)
            clock.lap("texts")
        if written is not None:
            written.result()
        if pending:
            query_map.push(_map_rows(pending, texts))
        clock.lap("map")
        spill.add(texts, last=True)
        clock.lap("spill")
    return rows, {reason: rejected[reason] for reason in REASONS if rejected[reason]}


def _exact_sum(counts: npt.NDArray[np.int64]) -> int:
    return int(counts.sum()) if counts.max() < 2**40 else sum(counts.tolist())


def _map_rows(pending: list[tuple[pa.StringArray, npt.NDArray[np.int64]]], texts: DistinctTexts) -> pa.Table:
    slots = np.concatenate([slots for _, slots in pending])
    used = np.zeros(len(texts.digests) + 1, bool)
    used[slots] = True
    used[-1] = False  # slot -1: rejected
    position = np.cumsum(used, dtype=np.int32) - 1
    codes = pa.array(position[slots], pa.int32(), mask=slots < 0)
    ids = pa.DictionaryArray.from_arrays(codes, hex_ids(texts.digests[used[:-1]]))
    log_ids = pa.chunked_array([log_ids for log_ids, _ in pending], pa.string()).combine_chunks()
    return pa.table([log_ids, ids], schema=ENCODED_MAP)


def _rejected_rows(piece: LogPiece, slots: npt.NDArray[np.int64], rejections: dict[int, Rejection]) -> pa.Table:
    place = np.zeros(len(piece.texts) + 1, np.int64)
    place[list(rejections)] = np.arange(len(rejections))
    rows = np.flatnonzero(slots < 0)
    said = [pa.array(part, pa.string()) for part in zip(*rejections.values(), strict=True)]
    chosen = pa.array(place[piece.codes[rows]])
    return pa.table([piece.log_ids.take(pa.array(rows)), *(part.take(chosen) for part in said)], schema=REJECTED)
