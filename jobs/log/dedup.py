"""Deduplication of the log: equal queries become one, every log row is mapped to its query, unusable rows become errors.

A group-by in two phases. Phase one reads a part of the log, groups its rows by raw text, normalises and hashes each
distinct text once, and stores the part's query_map, its rejected rows, and (query_id, form, n) sorted by query_id. Phase two
reads a range of query_ids from all parts, sums the counts, chooses the most frequent form, and stores the queries, those of the
head apart. Both phases take only names and write under unique names, so that any machine can process any
part, repeatedly if necessary: only the returned files count.

With a context column the groups are of (raw text, context). Forms of contexts, and of the values of other columns, go from
phase one to phase two as those of queries do, a row per query, column and form: a product of all columns could have as many
rows as the log.
"""

import contextlib
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from cluster.errors import ClusterError, LogError
from cluster.run.shards import File, Shard
from cluster.run.spread import spread
from cluster.storage import Storage, remote
from jobs.log.check import LogColumns, RowGroup, check_log
from jobs.log.files import LogFile
from jobs.log.parts import PLAN, DedupTask, PartFiles, count_range, merge_range, query, read_part, tiers
from jobs.log.rejections import REASONS
from jobs.log.sets.queries import set_queries

PART_ROWS = 1 << 19  # or one row group: small enough for many nodes; in larger parts fewer texts are hashed repeatedly
PART_FILES = 256  # at most, opened one after the other: where files have a few rows, at 30 ms each on an object store
RANGE_ROWS, RANGE_BYTES = 1 << 18, 1 << 25  # of texts and forms, grouped at a time by phase two
MAX_TOTAL = 2**63 - 1  # log_count is an int64
CHECK_THREADS = 2  # 20 million ids: 2 need 128 MB, 4 need more than 160 MB and are no faster
# Hashes first: they have a fixed size and can be grouped on disk.
AMBIGUOUS = """
WITH named AS (FROM rows_of($query_map) WHERE query_id IS NOT NULL),
suspects AS (SELECT hash(log_id) FROM named GROUP BY 1 HAVING min(hash(query_id)) < max(hash(query_id)) LIMIT 100)
SELECT log_id, count(DISTINCT query_id) AS n FROM named WHERE hash(log_id) IN (FROM suspects)
GROUP BY log_id HAVING n > 1 ORDER BY n DESC, log_id LIMIT 1
"""


@dataclass(frozen=True)
class LogSummary:
    """Counts of the log and the files made of it."""

    counts: dict[str, int]
    """`log_rows`: those with a query_id, and `rejected`, in all and by reason (`rejected_` and a key of REASONS); `queries`;
    `traffic`: how often they were asked, all together; with a column of counts `rejected_traffic`, how often the rejected rows
    were; `left_out`, where there are any: queries of a data set's other splits."""
    tables: dict[str, list[File]]  # queries of each tier in order of query_id, query_map and errors in order of the log
    shards: list[Shard]  # the row groups of `queries`
    task_seconds: float = 0.0  # of the work on other machines
    head: int = 0  # shards of the head, which are the first; 0: there is one tier


def dedup(
    files: Sequence[LogFile], columns: LogColumns, storage: Storage, shard_size: int, *, local: bool = True
) -> LogSummary:
    """Writes the tables queries, query_map and errors of a log, under unique names, and returns their files and counts.

    queries/: the head, then the rest, each sorted by query_id over all its files; a row group is a shard of `shard_size` rows
    (fewer at the end of a range of ids), a file has at most 64. `query` is the most frequent raw form, ties by the smallest
    code points; `log_count` is the number of rows, or the sum of the count column, which then also weights the forms.
    query_map/: a row per log row in the order of the log, query_id null if it was rejected. errors/: a row per rejected log
    row. Of OPTIONAL_QUERIES, queries/ has what `columns` asks for: `context` and each of `values` are chosen as `query` is;
    where some rows of a query have a value and others none, one of the former.

    Works in this process, or if not `local` on the connected Ray, all of whose nodes must reach the log and `storage`; queries
    of data sets, which may be on this machine alone, are always read in this process.
    Intermediate files are always removed, the tables after an error.

    Raises:
        LogError: no rows, no usable query, a damaged file, an invalid count, or a log_id with several queries.
    """
    worked: list[float] = []
    task = DedupTask(storage.root, uuid.uuid4().hex[:12], columns, shard_size)
    sets = [file.data_set for file in files if file.data_set is not None]
    local = local or bool(sets)
    try:
        # absolute: a Ray worker has another working directory
        absolute = [
            file if remote(file.path) or file.data_set else replace(file, path=os.path.abspath(file.path)) for file in files
        ]
        parts = list(enumerate(_parts(check_log(absolute, columns))))
        read = spread(partial(read_part, task), parts, local=local, worked=worked.append)
        pieces = [piece for part in read for piece in part]
        rejected = _check(files, columns, pieces)
        query_map = [piece.query_map for piece in pieces]
        if columns.id_column is not None:
            _refuse_ambiguous([storage.url(file.key) for file in query_map], columns.id_column)
        forms = [piece.forms for piece in pieces if piece.forms.rows]
        rows, size = (sum(getattr(file, name) for file in forms) for name in ("rows", "size"))
        number = 1 + max(rows // RANGE_ROWS, size // RANGE_BYTES)
        # of query_ids, first and end exclusive: ids are evenly spread
        ranges = list(pairwise([*(f"{(index << 32) // number:08x}" for index in range(number)), "g"]))
        named = [storage.url(file.key) for file in forms]
        counts = spread(partial(count_range, named), ranges, local=local, worked=worked.append)
        traffic, cuts = tiers(counts)
        divided = list(zip(ranges, cuts, strict=True))
        merged = spread(partial(merge_range, task, named), divided, local=local, worked=worked.append)
        head, rest = ([file for range_ in merged for file in range_[tier]] for tier in (0, 1))
    except BaseException:
        _remove(storage, task, "queries", "query_map", "errors")
        raise
    finally:
        _remove(storage, task, PLAN)
    places = [(file, start) for file in (*head, *rest) for start in range(0, file.rows, shard_size)]
    shards = [
        Shard(number, file.key, start // shard_size, min(shard_size, file.rows - start))
        for number, (file, start) in enumerate(places)
    ]
    errors = [piece.errors for piece in pieces if piece.errors.rows]
    tables = {"queries": [*head, *rest], "query_map": query_map, "errors": errors}
    rows, distinct = (sum(file.rows for file in tables[name]) for name in ("query_map", "queries"))
    first = sum(-(-file.rows // shard_size) for file in head)
    log_counts = {"log_rows": rows, "queries": distinct, "rejected": sum(rejected.values()), "traffic": traffic}
    log_counts |= {f"rejected_{reason}": n for reason, n in rejected.items()}
    if (not_asked := sum(piece.total for piece in pieces) - traffic) != log_counts["rejected"]:  # there is a column of counts
        log_counts["rejected_traffic"] = not_asked
    if left_out := sum(set_queries(data_set)[1] for data_set in sets):
        log_counts["left_out"] = left_out
    return LogSummary(log_counts, tables, shards, sum(worked), first)


def _parts(groups: Iterable[RowGroup]) -> list[list[RowGroup]]:
    parts: list[list[RowGroup]] = []
    rows, files, last = PART_ROWS, 0, ""
    for group in groups:
        opened = files + (group.file.path != last)
        if rows + group.rows > PART_ROWS or opened > PART_FILES:
            parts.append([])
            rows, opened = 0, 1
        parts[-1].append(group)
        rows, files, last = rows + group.rows, opened, group.file.path
    return parts


def _check(files: Sequence[LogFile], columns: LogColumns, pieces: Sequence[PartFiles]) -> dict[str, int]:
    """Returns the number of rejected rows by reason; raises LogError if none is left or the counts exceed an int64."""
    if sum(piece.total for piece in pieces) > MAX_TOTAL:
        where = f"log file {files[0].path}" + " and others" * (len(files) > 1)
        what = f"column {columns.count_column!r} (log.count_column)"
        raise LogError("log-column", f"{where}: {what} adds up to more than {MAX_TOTAL:,}; correct it")
    counts = sum((piece.rejected for piece in pieces), Counter())
    rejected = {reason: counts[reason] for reason in REASONS if counts[reason]}
    if not any(piece.forms.rows for piece in pieces):
        why = ", ".join(f"{n:,} {REASONS[reason].format(max_chars=columns.max_chars)}" for reason, n in rejected.items())
        where = files[0].path if len(files) == 1 else f"{len(files)} files"
        what = f"all {counts.total():,} rows of {where} were rejected (column {columns.query_column!r}: {why})"
        raise LogError("log-files", f"the log has no usable query: {what}; use UTF-8, another column or a larger log.max_chars")
    return rejected


def _refuse_ambiguous(query_map: list[str], column: str) -> None:
    """Raises LogError if a log_id has several queries, since joins would be wrong; repeats of the same query are allowed."""
    for row in query(AMBIGUOUS, {"query_map": query_map}, CHECK_THREADS).to_pylist():
        raise LogError(
            "log-column",
            f"column {column!r} (log.id_column) is not unique: id {row['log_id']!r} stands for {row['n']:,} different"
            " queries; name a unique column, or none (id_column: null) to have rows named by file and row",
        )


def _remove(storage: Storage, task: DedupTask, *folders: str) -> None:
    with contextlib.suppress(OSError, ClusterError):  # files left behind are removed as orphans at the end of the run
        storage.delete(*(entry.key for folder in folders for entry in storage.list(folder) if task.attempt in entry.key))
