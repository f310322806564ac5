"""The query log as rows: texts, log ids and counts, read piece by piece in the order of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster import UnavailableError
from jobs.log import LogColumns, bytes_per_row, check_not_replaced, one_line, open_log_file
from jobs.log_files import LogError, LogFile

PIECE_ROWS = 1 << 16  # large enough for vectorised work, small enough to leave little mark on peak memory
PIECE_BYTES = 8 << 20  # encoded bytes of the query column, where texts are long


class LogPiece(NamedTuple):
    """Consecutive rows of one file, their texts given once each."""

    texts: pa.StringArray  # the row group's dictionary, or the piece's own; as in the file, perhaps not UTF-8
    codes: npt.NDArray[np.int32]  # (rows,) position in `texts`; len(texts) where the text is null
    log_ids: pa.StringArray  # (rows,) no nulls
    counts: npt.NDArray[np.int64] | None  # (rows,) none negative; None: every row counts 1


def read_log(files: Sequence[LogFile], columns: LogColumns) -> Iterator[LogPiece]:
    """All rows, file by file in the order given, at most PIECE_ROWS at a time.

    A row's log id is its id column as text; where there is none, or it is null, `<file name>#<row from 0>`. A null
    count is 1: the row was logged. Raises LogError: a file that cannot be read (to its end), a negative count.
    """
    for file in files:
        with open_log_file(file, columns) as opened:
            per_row = max(1.0, bytes_per_row(opened.metadata, columns.query_column))
            rows = int(min(PIECE_ROWS, max(256, PIECE_BYTES / per_row)))
            named = [columns.query_column, columns.id_column, columns.count_column]
            wanted = [name for name in dict.fromkeys(named) if name in opened.schema_arrow.names]
            # a file without any of the columns (all from partitions) still has its rows
            batches = opened.iter_batches(rows, columns=wanted or opened.schema_arrow.names)
            start = 0
            while True:
                try:
                    batch = next(batches, None)
                    piece = _piece(batch, file, start, columns) if batch is not None and len(batch) else None
                except UnavailableError:
                    raise
                except (OSError, pa.ArrowException) as error:
                    check_not_replaced(file, error)
                    raise LogError(
                        f"log file {file.path}: damaged at or after row {start:,}: {one_line(error)}; copy it again"
                    ) from error
                if batch is None:
                    break
                if piece is not None:
                    yield piece
                start += len(batch)


def _piece(batch: pa.RecordBatch, file: LogFile, start: int, columns: LogColumns) -> LogPiece:
    texts, codes = _texts(_column(batch, file, columns.query_column))
    log_ids = _log_ids(batch, file, start, columns.id_column)
    return LogPiece(texts, codes, log_ids, _counts(batch, file, start, columns.count_column))


def _column(batch: pa.RecordBatch, file: LogFile, name: str) -> pa.Array:
    """A column of the file; where the file has none of that name, the hive partition's value for every row."""
    if name in batch.schema.names:
        return batch.column(name)
    return pa.repeat(pa.scalar(dict(file.partitions)[name], pa.string()), len(batch))


def _texts(column: pa.Array) -> tuple[pa.StringArray, npt.NDArray[np.int32]]:
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    texts = column.dictionary.cast(pa.string())
    codes = column.indices.cast(pa.int32()).fill_null(len(texts)).to_numpy()
    return texts, codes


def _log_ids(batch: pa.RecordBatch, file: LogFile, start: int, column: str | None) -> pa.StringArray:
    ids = None
    if column is not None:
        ids = _column(batch, file, column)
        if isinstance(ids.type, pa.UuidType):
            ids = pa.array([None if one is None else str(one) for one in ids.to_pylist()], pa.string())
        ids = ids.cast(pa.string())
        try:
            ids.validate(full=True)
        except pa.ArrowInvalid as error:
            where = f"log file {file.path}, rows {start:,} to {start + len(batch) - 1:,}"
            raise LogError(f"{where}: column {column!r} (log.id_column) holds text that is not UTF-8; convert it") from error
        if not ids.null_count:
            return ids
    rows = pc.cast(pa.array(np.arange(start, start + len(batch))), pa.string())
    named = pc.binary_join_element_wise(f"{file.name}#", rows, "")
    return named if ids is None else pc.coalesce(ids, named)


def _counts(batch: pa.RecordBatch, file: LogFile, start: int, column: str | None) -> npt.NDArray[np.int64] | None:
    if column is None:
        return None
    try:
        counts = _column(batch, file, column).cast(pa.int64()).fill_null(1).to_numpy()
    except pa.ArrowInvalid as error:
        where = f"log file {file.path}, rows {start:,} to {start + len(batch) - 1:,}"
        raise LogError(f"{where}: column {column!r} (log.count_column): {one_line(error)}; correct it") from error
    if len(counts) and counts.min() < 0:
        row = int(np.argmax(counts < 0))
        where = f"log file {file.path}, row {start + row:,}"
        raise LogError(f"{where}: column {column!r} (log.count_column) is {counts[row]}, wanted 0 or more; correct it")
    return np.asarray(counts, np.int64)
