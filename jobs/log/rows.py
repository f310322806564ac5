"""Reader of the log's rows in the order of the files: log_ids, texts, counts, contexts, and values for prompts."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.cause import one_line
from jobs.log.check import LogColumns, RowGroup, opened
from jobs.log.files import LogFile
from jobs.log.key import MAX_CONTEXT_CHARS
from jobs.log.table_file import FAULT

TURNS = "\n"  # joins the turns of a context
ITEMS = "; "  # joins the items of a value


def contexts(column: pa.Array, most: int) -> pa.BinaryArray:
    """Returns each row's context, maybe null, maybe not UTF-8, of text or lists of turns, oldest first.

    Of a long one only the newest `most` code points count.
    """
    texts = _joined(column, TURNS) if pa.types.is_nested(column.type) else column.cast(pa.string()).cast(pa.binary())
    long = pc.fill_null(pc.greater(pc.binary_length(texts), most), False)
    if not pc.any(long).as_py():
        return texts
    return pc.replace_with_mask(texts, long, pa.array([_newest(raw, most) for raw in texts.filter(long).to_pylist()]))


def values(column: pa.Array) -> pa.StringArray:
    """Returns each row's value as text, maybe null; bytes that are not UTF-8 become U+FFFD, since no id is made of them."""
    texts = _joined(column, ITEMS).view(pa.string()) if pa.types.is_nested(column.type) else _as_text(column)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raws = texts.view(pa.binary()).to_pylist()
        return pa.array([None if raw is None else raw.decode("utf-8", "replace") for raw in raws], pa.string())
    return texts


def _as_text(column: pa.Array) -> pa.StringArray:
    if isinstance(column.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def _joined(lists: pa.Array, separator: str) -> pa.BinaryArray:
    """Returns the items of each list joined; null items are left out, and a list without items is null."""
    raws = lists.cast(pa.large_list(pa.string())).cast(pa.large_list(pa.binary())).to_pylist()
    rows = [[item for item in row or () if item is not None] for row in raws]
    return pa.array([separator.encode().join(items) if items else None for items in rows], pa.binary())


def _newest(raw: bytes, most: int) -> bytes:
    """Returns the end of a long conversation: its query was asked all the same, and mostly about what was said last."""
    try:
        return raw.decode()[-most:].encode()
    except UnicodeDecodeError:
        return raw  # its row will be rejected


ROWS = pa.schema([("log_id", pa.string()), ("text", pa.binary()), ("n", pa.int64()), ("fault", pa.string())])
BATCH_ROWS = 1 << 16  # read at a time
WIDE_BATCH_ROWS = 1 << 11  # with more columns than ROWS: contexts of 42 KB took 2.0 GB with 1 << 13 of them, 0.7 GB so
PIECE_BYTES = 48 << 20  # of ROWS held in memory and grouped at a time; about a million rows of a web log


def rows_schema(columns: LogColumns) -> pa.Schema:
    """Returns ROWS, with `context` and `value.<name>` of the columns that are read besides."""
    context = [pa.field("context", pa.binary())] if columns.context_column is not None else []
    return pa.schema([*ROWS, *context, *(pa.field(f"value.{name}", pa.string()) for name in columns.values)])


def read_rows(part: Iterable[RowGroup], columns: LogColumns) -> Iterator[pa.Table]:
    """Yields the rows of row groups as `rows_schema` has them, in order, about PIECE_BYTES at a time.

    `log_id` is never null: it is the id column as text, or `<file name>#<row from 0>` if there is no id. `text` is as in the
    file, maybe null, maybe not UTF-8. `n`, 0 or more, is 1 without a count column and for a null count. `fault` says what is
    wrong with a record of which nothing else can be read.

    Raises LogError if a file cannot be read to its end, or was replaced, or a count is negative.
    """
    pending: list[pa.RecordBatch] = []
    size = 0
    for file, groups in groupby(part, key=attrgetter("file")):
        for batch in _batches(file, list(groups), columns):
            pending.append(batch)
            size += batch.nbytes
            if size >= PIECE_BYTES:
                yield pa.Table.from_batches(pending)
                pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _batches(file: LogFile, groups: list[RowGroup], columns: LogColumns) -> Iterator[pa.RecordBatch]:
    start, schema = groups[0].start, rows_schema(columns)
    size = BATCH_ROWS if len(schema) == len(ROWS) else min(BATCH_ROWS, WIDE_BATCH_ROWS)
    plain = [columns.query_column, columns.id_column, columns.count_column]
    with opened(file) as table:
        if table is None:
            return
        every = dict.fromkeys((*plain, columns.context_column, *columns.values))
        wanted = [name for name in every if name is not None and name in table.names]
        lists = [name for name in wanted if name not in plain]
        numbers = [group.number for group in groups]
        for batch in table.batches(wanted, size, groups=numbers, lists=lists, any_bytes=True):
            yield _read(batch, file, columns, start)
            start += len(batch)


def _read(batch: pa.RecordBatch, file: LogFile, columns: LogColumns, start: int) -> pa.RecordBatch:
    """Returns rows as `rows_schema` has them, of which the first is number `start` of the file."""
    texts = _column(batch, file, columns.query_column).cast(pa.string()).cast(pa.binary())
    log_ids = _log_ids(batch, file, start, columns.id_column)
    faults = batch.column(FAULT) if FAULT in batch.schema.names else pa.nulls(len(batch), pa.string())
    read = [log_ids, texts, _counts(batch, file, start, columns.count_column), faults]
    if columns.context_column is not None:
        read.append(contexts(_column(batch, file, columns.context_column), MAX_CONTEXT_CHARS))
    read += [values(_column(batch, file, name)) for name in columns.values]
    return pa.record_batch(read, schema=rows_schema(columns))


def _column(batch: pa.RecordBatch, file: LogFile, name: str) -> pa.Array:
    """Returns a column of the file; if it has none of that name, the hive partition's value in every row."""
    if name in batch.schema.names:
        column = batch.column(name)
        return column.cast(pa.string()) if pa.types.is_null(column.type) else column
    return pa.repeat(pa.scalar(dict(file.partitions)[name], pa.string()), len(batch))


def _log_ids(batch: pa.RecordBatch, file: LogFile, start: int, column: str | None) -> pa.StringArray:
    rows = pa.array(np.arange(start, start + len(batch))).cast(pa.string())
    named = pc.binary_join_element_wise(f"{file.name}#", rows, "")
    if column is None:
        return named
    ids = _as_text(_column(batch, file, column))
    try:
        ids.validate(full=True)
    except pa.ArrowInvalid as error:
        message = f"column {column!r} (log.id_column) holds text that is not UTF-8; convert it"
        raise file.error("log-column", message, f", rows {start:,} to {start + len(batch) - 1:,}") from error
    return pc.coalesce(ids, named)


def _no_number(values: pa.Array) -> int:
    """Returns the place of the first value that is no whole number of 64 bits."""
    for index, value in enumerate(values):
        try:
            value.cast(pa.int64())
        except pa.ArrowInvalid:
            return index
    return 0


def _counts(batch: pa.RecordBatch, file: LogFile, start: int, column: str | None) -> pa.Int64Array:
    if column is None:
        return pa.repeat(1, len(batch))
    try:
        counts = _column(batch, file, column).cast(pa.int64()).fill_null(1)
    except pa.ArrowInvalid as error:
        message = f"column {column!r} (log.count_column): {one_line(error)}; correct it"
        raise file.error("log-column", message, f", row {start + _no_number(_column(batch, file, column)):,}") from error
    negative = np.flatnonzero(counts.to_numpy() < 0)
    if len(negative):
        row, count = start + int(negative[0]), counts[int(negative[0])]
        message = f"column {column!r} (log.count_column) is {count}, wanted 0 or more; correct it"
        raise file.error("log-column", message, f", row {row:,}")
    return counts
