"""The plan of a replay: queries of its parent in place of a log's, and what the parent was answered for them.

Its answers lie in the replay's own folder before its first start has begun: they are read anew, by the parser of now, whether
the parent had a store or none.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.costs import TOKENS
from cluster.run.shards import File, Shard
from cluster.storage import Storage
from cluster.storage.files import FileStorage
from jobs.chain.completions import REUSED, Completions
from jobs.chain.journal import shard_folder, write_rows
from jobs.job.replay import Replay
from jobs.log.dedup import LogSummary
from jobs.log.parts import OPTIONS
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.reading import database
from jobs.tables import STORED

_MAP = "SELECT log_id, query_id FROM rows_of($files) SEMI JOIN replayed USING (query_id)"
_FREE = {"seconds": 0.0, "device_seconds": 0.0, "attempts": 0, "lost": 0, "latency": None, "start": REUSED}
_FREE |= dict.fromkeys(TOKENS, 0)
_BATCH = 1 << 16  # rows of query_map/


class ReplayedLog(NamedTuple):
    """What stands in place of a deduplicated log.

    Attributes:
        log: Its counts, tables and shards.
        folder: Of all files.
        answers: Files of the parent's completions, which no table names.
    """

    log: LogSummary
    folder: tempfile.TemporaryDirectory[str]
    answers: list[File]


def replayed_log(replay: Replay, shard_size: int) -> ReplayedLog:
    """Returns the queries of a replay, in shards, as files of a temporary folder.

    Raises:
        ConfigError: The parent is gone, or damaged.
    """
    parent = open_run(replay.path)
    folder = tempfile.TemporaryDirectory(prefix="dmqr-plan-")
    storage, wanted = FileStorage(folder.name), pa.array(list(replay.query_ids), pa.string())
    selected = dict(_selected(parent, wanted))
    rows = pa.concat_tables(selected.values()).sort_by("query_id")
    queries, traffic = _put_queries(storage, rows, shard_size), int(pc.sum(rows.column("log_count")).as_py())
    shards = [
        Shard(number, queries.key, number, min(shard_size, queries.rows - begin))
        for number, begin in enumerate(range(0, queries.rows, shard_size))
    ]
    number_of = {query_id: place // shard_size for place, query_id in enumerate(replay.query_ids)}
    answers = [file for number in selected for file in _put_answers(storage, parent.storage, number, number_of)]
    query_map = _put_map(storage, parent, wanted)
    tables = {"queries": [queries], "query_map": [query_map], "errors": list[File]()}
    return ReplayedLog(LogSummary(query_map.rows, queries.rows, {}, tables, shards, traffic=traffic), folder, answers)


def _put_queries(storage: Storage, rows: pa.Table, shard_size: int) -> File:
    """Writes the queries, a row group for each shard."""
    key = f"queries/plan-{uuid.uuid4().hex[:12]}-replay.parquet"
    path = Path(storage.url(key))
    path.parent.mkdir(parents=True)
    pq.write_table(rows, path, row_group_size=shard_size, compression="zstd", store_schema=False, **OPTIONS["queries"])
    return File(key, rows.num_rows, path.stat().st_size)


def _selected(parent: RunFolder, wanted: pa.Array) -> Iterator[tuple[int, pa.Table]]:
    """Yields the number of each of the parent's shards that has such queries, with these."""
    for shard in parent.plan.shards:
        with parent.storage.open(shard.key) as file:
            parquet = pq.ParquetFile(file)
            ids = parquet.read_row_group(shard.row_group, columns=["query_id"]).column("query_id")
            mask = pc.is_in(ids, wanted)
            if pc.any(mask).as_py():
                yield shard.number, parquet.read_row_group(shard.row_group).filter(mask)


def _put_answers(storage: Storage, parent: Storage, shard: int, number_of: Mapping[str, int]) -> Iterator[File]:
    """Writes the completions of one of the parent's shards to the replay's, free of charge; yields their files."""
    by_shard: dict[int, list[dict[str, Any]]] = {}
    for row in Completions(parent, shard, 0, 0.0).rows():
        if row["query_id"] in number_of:
            by_shard.setdefault(number_of[row["query_id"]], []).append(row | _FREE)
    for number, rows in by_shard.items():
        key = f"{shard_folder(number)}/{uuid.uuid4().hex}.parquet"
        write_rows(storage, key, rows)
        yield File(key, len(rows), Path(storage.url(key)).stat().st_size)


def _put_map(storage: Storage, parent: RunFolder, wanted: pa.Array) -> File:
    """Writes the log rows of the queries."""
    key = f"query_map/plan-{uuid.uuid4().hex[:12]}-replay.parquet"
    path, rows = Path(storage.url(key)), 0
    path.parent.mkdir(parents=True)
    with database() as connection, pq.ParquetWriter(path, STORED["query_map"], compression="zstd") as writer:
        connection.register("replayed", pa.table({"query_id": wanted}))
        for batch in connection.sql(_MAP, params={"files": parent.tables["query_map"]}).to_arrow_reader(_BATCH):
            table = pa.Table.from_batches([batch]).cast(STORED["query_map"])
            writer.write_table(table)
            rows += table.num_rows
    return File(key, rows, path.stat().st_size)
