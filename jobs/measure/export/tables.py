"""The measures of a frame key by key, as Parquet or CSV for other tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage.whole_file import written
from jobs.log.judgements import Key
from jobs.measure.frame import JUDGED_LISTS, Frame
from jobs.measure.judged_rows import contexts_of
from jobs.runs.folder import RunFolder

ENDINGS = (".parquet", ".csv")
LONG = pa.schema([(name, pa.string()) for name in ("key", "query_id", "arm", "measure")] + [("value", pa.float64())])


def check_ending(path: str, option: str = "") -> None:
    """Checks the name of a file that is to be written; `option` of the command line gave it.

    Raises:
        ConfigError: it ends in neither .parquet nor .csv.
    """
    if not path.lower().endswith(ENDINGS):
        what = f"{option} {path}".strip()
        raise ConfigError("argument", f"{what}: is neither Parquet nor CSV; give a name that ends in {' or '.join(ENDINGS)}")


def write_tables(path: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes tables, one after the other, to a local file or an object on S3, Parquet or CSV by its ending.

    Raises:
        ConfigError: the path ends in neither .parquet nor .csv.
    """
    check_ending(path)
    is_parquet = path.lower().endswith(".parquet")
    with written(path) as file:
        opened: Any = pq.ParquetWriter(file, schema, compression="zstd") if is_parquet else pa.csv.CSVWriter(file, schema)
        with opened as writer:
            for table in tables:
                writer.write_table(table)


def wide_table(run: RunFolder, frames: Sequence[Frame]) -> pa.Table:
    """Returns a row per counted key of a run: the key, its query, and each measure of the results and of the original alone.

    Of frames of lists and of answers, a row has the measures of all; null where its key does not count. Frames of log rows or
    texts of queries stand beside frames of query_ids, such as a judge's: a row has the values of its query there, and a query
    without such a row has one without a key.
    A run whose queries have earlier turns has a column `context`.

    Raises:
        ConfigError: judgements and gold answers name different things.
    """
    kinds: list[Key] = [key for key in dict.fromkeys(frame.key for frame in frames) if key != "query_id"] or ["query_id"]
    if len(kinds) > 1:
        what = f"per_query: judgements name {kinds[0]}s, gold answers {kinds[1]}s, which are no rows of one table"
        raise ConfigError("argument", f"{what}; give both by one key")
    # key and query_id, of which one may be None -> query_id, query and how often it was asked
    first: dict[tuple[str | None, str | None], tuple[str | None, str | None, int]] = {}
    for frame in sorted(frames, key=lambda one: one.key != kinds[0]):
        of_keys = zip(frame.query_ids, frame.queries, frame.counts.tolist(), strict=True)
        known = {query_id for _, query_id in first}
        for key, asked in zip(frame.keys, of_keys, strict=True):
            if frame.key == kinds[0]:
                first.setdefault((key, asked[0]), asked)
            elif asked[0] not in known:
                first.setdefault((None, asked[0]), asked)
    query_ids, queries, counts = zip(*first.values(), strict=True) if first else ((), (), ())
    contexts = contexts_of(run, [query_id for query_id in query_ids if query_id is not None])
    columns: dict[str, pa.Array] = {}
    if kinds[0] != "query_id":
        texts = queries if kinds[0] == "query" else [None] * len(first)
        columns[kinds[0]] = pa.array([key or text for (key, _), text in zip(first, texts, strict=True)], pa.string())
    columns["query_id"] = pa.array(query_ids, pa.string())
    if kinds[0] != "query":
        columns["query"] = pa.array(queries, pa.string())
    if run.config.log.context_column is not None:
        columns["context"] = pa.array([contexts.get(query_id or "") for query_id in query_ids], pa.string())
    rejected = np.array([query_id is None for query_id in query_ids], np.bool_)
    columns["log_count"] = pa.array(np.array(counts, np.int64), mask=rejected)
    for frame in frames:
        place_of: dict[str | None, int] = {key: place for place, key in enumerate(frame.keys)}
        by_key = frame.key == kinds[0]
        places = pa.array([place_of.get(key if by_key else query_id) for key, query_id in first], pa.int64())
        for number, name in enumerate(frame.measures):
            for arm, suffix in zip(frame.values, ("", " original"), strict=False):
                columns[f"{name}{suffix}"] = pa.array(arm[number]).take(places)
    return pa.table(columns)


def long_table(*frames: Frame) -> pa.Table:
    """Returns the rows of `long_tables`."""
    return pa.concat_tables([LONG.empty_table(), *long_tables(*frames)])


def long_tables(*frames: Frame) -> Iterator[pa.Table]:
    """Yields the rows of each arm, of hundreds those of one at a time: key, query_id, arm, measure, value.

    There is one per measure and counted key. Measures of results that an LLM judged beside people have `judged ` before their
    names.
    """
    for frame in frames:
        measure, key = (pa.array(places.reshape(-1)) for places in np.indices(frame.values.shape[1:]))
        before = "judged " * (frame.kind == JUDGED_LISTS)
        names = pa.array([before + name for name in frame.measures], pa.string()).take(measure)
        keys, query_ids = (pa.array(of, pa.string()).take(key) for of in (frame.keys, frame.query_ids))
        for arm, values in zip(frame.arms, frame.values, strict=True):
            yield pa.table((keys, query_ids, pa.repeat(arm, len(key)), names, pa.array(values.reshape(-1))), schema=LONG)
