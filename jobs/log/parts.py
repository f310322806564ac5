"""The two phases of dedup.

A part of the log becomes its query_map, its rejected rows, and files of texts; a range of query_ids, out of those of all parts,
becomes queries, after it was counted how often each is asked.

There are two tiers of queries: the head, those asked most often, which hold half of the traffic, and the rest. The shards of
the head come first. A job that its budget or its time ends has then done what most people ask, and left what hardly anybody
asks. Where every query is asked equally often there is one tier.
"""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.run.shards import File
from cluster.storage import open_storage
from cluster.storage.s3_duckdb import bounded_duckdb, no_room
from jobs.log.check import LogColumns, RowGroup
from jobs.log.rejections import Rejection, group_rows, hex_ids, normal_forms
from jobs.log.rows import read_rows
from jobs.tables import STORED, VALUES

MEMORY = "256MB"  # of one DuckDB
PLAN = "plan"  # the folder of the intermediate files
# Parquet options by table. Row groups of texts are small, since phase two reads only those that overlap its range. Repeated
# query_ids are dictionary-encoded; statistics of unsorted ids are useless and took half of the time. Row groups of query_map
# are small, since a scanning thread holds pages and dictionary of one: with half a million rows in each, four threads ran out
# of MEMORY from 3 million rows on.
OPTIONS: dict[str, dict[str, Any]] = {
    PLAN: {"row_group_size": 1 << 12, "compression": "none", "use_dictionary": False, "write_statistics": ["query_id"]},
    "query_map": {
        "row_group_size": 1 << 16,
        "use_dictionary": ["query_id"],
        "dictionary_pagesize_limit": 1 << 24,
        "write_statistics": False,
    },
    "queries": {"use_dictionary": False},
    "errors": {},
}
ROW_GROUP_BYTES = {PLAN: 1 << 20, "query_map": 1 << 22}  # at most, where rows are long


class DedupTask(NamedTuple):
    """The parameters shared by all parts and ranges."""

    storage: str
    attempt: str  # unique to this call
    columns: LogColumns
    shard_size: int


def put(task: DedupTask, table: str, name: str, rows: pa.Table, **options: Any) -> File:
    """Writes rows to a file with a unique name; no file is written without rows."""
    key = f"{table}/plan-{task.attempt}-{name}-{uuid.uuid4().hex[:8]}.parquet"
    if not len(rows):
        return File(key, 0, 0)
    sink = pa.BufferOutputStream()  # not a Python file, so that other threads can run meanwhile
    options = {"row_group_size": len(rows), "compression": "zstd"} | OPTIONS[table] | options
    if table in ROW_GROUP_BYTES:
        fitting = len(rows) * ROW_GROUP_BYTES[table] // max(1, rows.nbytes)
        options["row_group_size"] = max(1, min(options["row_group_size"], fitting))
    pq.write_table(rows, sink, store_schema=False, **options)
    data = sink.getvalue().to_pybytes()
    open_storage(task.storage).put(key, data)
    return File(key, len(rows), len(data))


def query(sql: str, params: dict[str, Any], threads: int) -> pa.Table:
    """Returns the result of a DuckDB query; raises LogError if memory or disk space is used up."""
    try:
        with bounded_duckdb(MEMORY, threads) as connection:
            return connection.sql(sql, params=params).to_arrow_table()
    except duckdb.Error as error:
        remedy = "lower log.max_chars, or leave out log.id_column"
        raise no_room("dedup could not group the log", error, MEMORY, remedy) from error


CONTEXT = 1  # among the columns of forms: the query is the first, those of values follow


class PartFiles(NamedTuple):
    """The files and counts that phase one makes of some rows."""

    forms: File  # query_id, column, form, n: of queries, contexts and values
    query_map: File
    errors: File
    rejected: Counter[str]
    total: int  # sum of the counts


def read_part(task: DedupTask, part: tuple[int, list[RowGroup]]) -> list[PartFiles]:
    """Runs phase one on the row groups of a part, PIECE_BYTES of rows at a time; returns the files written."""
    number, groups = part
    return [_dedup_rows(task, f"{number:05d}-{piece:03d}", rows) for piece, rows in enumerate(read_rows(groups, task.columns))]


def _dedup_rows(task: DedupTask, name: str, rows: pa.Table) -> PartFiles:
    groups = group_rows(rows, task.columns.max_chars)
    rejected = np.isin(groups.codes, list(groups.rejections))
    rows = rows.append_column("query_id", hex_ids(groups.digests).take(pa.array(groups.codes, mask=rejected)))
    if groups.contexts is not None:
        rows = rows.drop_columns("context").append_column("context", groups.contexts)
    unusable = rows.filter(pa.array(rejected))
    why = [
        Rejection("malformed", fault, None) if fault else groups.rejections[code]
        for code, fault in zip(groups.codes[rejected].tolist(), unusable.column("fault").to_pylist(), strict=True)
    ]
    values: dict[str, Any] = {field: [getattr(rejection, field) for rejection in why] for field in Rejection._fields}
    values |= {"log_id": unusable.column("log_id"), "stage": ["log"] * len(why), "attempts": [1] * len(why)}
    schema = STORED["errors"]
    errors = pa.table([values.get(field.name, pa.nulls(len(why), field.type)) for field in schema], schema=schema)
    n = rows.column("n").to_numpy()
    return PartFiles(
        put(task, PLAN, name, pa.concat_tables(_forms(task, rows.filter(pa.array(~rejected)))).sort_by("query_id")),
        # not a DictionaryArray, of which each row group would store the whole dictionary
        put(task, "query_map", name, rows.select(["log_id", "query_id"])),
        put(task, "errors", name, errors),
        Counter(rejection.reason for rejection in why),
        (int((n >> 32).sum()) << 32) + int((n & (2**32 - 1)).sum()),  # exact, where an int64 would overflow
    )


def _forms(task: DedupTask, rows: pa.Table) -> Iterator[pa.Table]:
    names = ["text", "context", *(f"value.{name}" for name in task.columns.values)]
    for number, name in enumerate(names):
        if name in rows.column_names:
            forms = (
                rows.filter(pc.is_valid(rows.column(name)))
                .group_by(["query_id", name], use_threads=False)
                .aggregate([("n", "sum")])
            )
            columns = pa.array(np.full(len(forms), number, np.int16))
            values = [forms.column("query_id"), columns, forms.column(name).cast(pa.string()), forms.column("n_sum")]
            yield pa.table(values, ["query_id", "column", "form", "n"])


SHARDS_PER_FILE = 64

COUNTS = """
SELECT n AS asked, count(*) AS queries
FROM (
    SELECT sum(n)::BIGINT AS n FROM rows_of($forms)
    WHERE "column" = 0 AND query_id >= $low AND query_id < $high GROUP BY query_id
)
GROUP BY n
"""
# The minimum, not the first in an order: its state has one form, however many a query has.
CHOSEN = """
SELECT query_id, "column", min({'before': -n, 'form': form}).form AS form, sum(n)::BIGINT AS n
FROM (
    SELECT query_id, "column", form, sum(n) AS n FROM rows_of($forms)
    WHERE query_id >= $low AND query_id < $high GROUP BY query_id, "column", form
)
GROUP BY query_id, "column" ORDER BY query_id
"""


def count_range(forms: list[str], bounds: tuple[str, str]) -> dict[int, int]:
    """Returns, of the queries in a range of query_ids: times asked -> how many queries were."""
    low, high = bounds
    counts = query(COUNTS, {"forms": forms, "low": low, "high": high}, threads=1)
    return {row["asked"]: row["queries"] for row in counts.to_pylist()}


class Cut(NamedTuple):
    """The queries of a range of ids that are the head's: those asked more often than `border`, and `ties` asked as often.

    The ties are the first in order of their ids.
    """

    border: int
    ties: int


def tiers(ranges: Sequence[Mapping[int, int]]) -> tuple[int, list[Cut | None]]:
    """Counts the times that queries were asked, all together, and the cut of each range of ids; None: there is one tier.

    `ranges` has for each range: times asked -> how many queries were.
    """
    asked: Counter[int] = Counter()
    for counts in ranges:
        asked.update(counts)
    traffic = sum(count * queries for count, queries in asked.items())
    if len(asked) < 2:
        return traffic, [None] * len(ranges)
    before, border = 0, 0
    for border in sorted(asked, reverse=True):
        if 2 * (before + border * asked[border]) >= traffic:
            break
        before += border * asked[border]
    ties = -(-(traffic - 2 * before) // (2 * border))
    cuts: list[Cut | None] = []
    for counts in ranges:
        taken = min(ties, counts.get(border, 0))
        ties -= taken
        cuts.append(Cut(border, taken))
    return traffic, cuts


def divided(queries: pa.Table, cut: Cut | None) -> tuple[pa.Table, pa.Table]:
    """Returns the queries of a range that are the head's, and the rest; both in order of their ids."""
    if cut is None:
        return queries.slice(0, 0), queries
    counts = queries.column("log_count").to_numpy()
    tied = counts == cut.border
    head = pa.array((counts > cut.border) | (tied & (np.cumsum(tied) <= cut.ties)))
    return queries.filter(head), queries.filter(pc.invert(head))


def merge_range(task: DedupTask, forms: list[str], range_: tuple[tuple[str, str], Cut | None]) -> tuple[list[File], list[File]]:
    """Runs phase two on a range of query_ids, with the cut of its head; returns the files of the head, and the others."""
    (low, high), cut = range_
    chosen = query(CHOSEN, {"forms": forms, "low": low, "high": high}, threads=1)
    numbers = range(CONTEXT + 1 + len(task.columns.values))
    own, *others = (chosen.filter(pc.equal(chosen["column"], number)) for number in numbers)
    query_ids, texts = own["query_id"].combine_chunks(), own["form"].combine_chunks()
    shown = [rows["form"].combine_chunks().take(pc.index_in(query_ids, rows["query_id"])) for rows in others]
    columns = {"query_id": query_ids, "query": texts, "normalised": normal_forms(texts), "log_count": own["n"]}
    if task.columns.context_column is not None:
        columns["context"] = shown[0]
    if task.columns.classify is not None:
        columns["query_type"] = pa.array(task.columns.classify(texts.to_pylist()), pa.string())
    if task.columns.values:
        names, rows = task.columns.values, len(texts)
        order = np.arange(rows * len(names)).reshape(len(names), rows).T.ravel()
        flat = pa.concat_arrays(shown[CONTEXT:]).take(pa.array(order))
        offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(names))
        columns["values"] = pa.MapArray.from_arrays(offsets, pa.array([*names] * rows, pa.string()), flat, type=VALUES)
    head, rest = divided(pa.table(columns), cut)
    return _put_queries(task, f"0-{low}", head), _put_queries(task, low if cut is None else f"1-{low}", rest)


def _put_queries(task: DedupTask, name: str, queries: pa.Table) -> list[File]:
    size = SHARDS_PER_FILE * task.shard_size
    return [
        put(task, "queries", f"{name}-{start // size:05d}", queries.slice(start, size), row_group_size=task.shard_size)
        for start in range(0, len(queries), size)
    ]
