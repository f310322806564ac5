"""The measures of a run, judged key by judged key: what `evaluate` averages, `diff` pairs, and `--per-query` writes.

Counted are the judged keys (log rows or queries) that are in the log and whose query is committed. One without results
counts zero, so failures never raise a mean; an unfinished run is measured on its committed queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.errors import ConfigError
from cluster.storage.s3_duckdb import bounded_duckdb, no_room, reason
from jobs.chain.cuts import cut_from
from jobs.job.measure_names import check_grades, check_measures, deepest_rank
from jobs.log.judgements import Judgements
from jobs.measure.evaluate import judged_rows
from jobs.measure.evaluate.intervals import Floats
from jobs.measure.evaluate.measure import measure
from jobs.runs.folder import RunFolder

MEMORY = "256MB"


class ListLengths(NamedTuple):
    """How long the lists are that were measured."""

    lengths: npt.NDArray[np.int64]
    """(keys,): documents of each, down to the deepest rank that a measure reads."""
    least: int
    """The fewest documents of a list from which something may have been cut off (jobs/measure/evaluate/looked.py)."""


@dataclass(frozen=True)
class PerQuery:
    """The measures of the counted keys, in order of their queries, rejected log rows last."""

    measures: tuple[str, ...]
    """Their names, as ir_measures prints them; the first one leads."""
    judged: int
    """Number of keys with judgements."""
    missing: int
    """Number of judged keys that are not in the log."""
    not_committed: int
    """Number of judged keys whose query is not committed yet."""
    keys: list[str]
    """The counted keys."""
    query_ids: list[str | None]
    """The query of each; None for a rejected log row."""
    results: Floats
    """(keys, measures): of the results; rejected rows are zero."""
    original: Floats | None
    """(keys, measures): of the original query alone; None if it was not measured, runs were not kept, or texts were searched
    together."""
    without_results: int
    """Number of keys whose committed query has no result."""
    unjudged: float | None
    """Share of the results, as deep as the measures read, without a judgement."""
    original_unjudged: float | None
    """Share of the documents of the original alone, as deep, without a judgement."""
    unmatched: tuple[str, str] | None
    """If no judged key is in the log: a key of the judgements and one of the log, as examples."""
    depth: int
    """The deepest rank that a measure reads."""
    lists: ListLengths
    """Of the results."""
    original_lists: ListLengths | None
    """Of the original query alone."""

    @property
    def rejected(self) -> int:
        """Returns the number of judged log rows that were rejected."""
        return self.query_ids.count(None)


@contextmanager
def database(*runs: RunFolder) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens DuckDB in 256 MB for reading the tables of runs.

    Raises:
        ConfigError: files of the runs cannot be read.
        LogError: memory or disk space ran out.
    """
    try:
        with bounded_duckdb(MEMORY, judged_rows.THREADS) as connection:
            yield connection
    except (duckdb.Error, OSError) as error:
        where = " or ".join(run.storage.root for run in runs)
        if isinstance(error, duckdb.OutOfMemoryException):
            what, remedy = f"{where}: the run's tables could not be read", "give fewer judgements"
            raise no_room(what, error, MEMORY, remedy) from error
        words = reason(error)
        raise ConfigError(
            "run-damaged", f"{where}: the run's tables cannot be read ({words}); put back what was changed there"
        ) from error


def kept(run: RunFolder) -> int:
    """Returns the most results that a query of the run has."""
    return run.config.fuse.keep if run.config.rerank.kind == "none" else run.config.rerank.keep


def per_query(run: RunFolder, judgements: Judgements, measures: Sequence[str] | None = None, *, alone: bool = True) -> PerQuery:
    """Returns the measures of a run's committed results, judged key by judged key.

    Besides the judgements, memory grows by some hundred bytes per judged key.

    Args:
        run: the run to measure.
        judgements: of log rows or queries.
        measures: names that ir_measures knows; None: those of the run's config.
        alone: whether to measure the original query alone, too.

    Raises:
        ConfigError: a measure cannot be computed, or files of the run cannot be read.
    """
    names = check_measures(measures or run.config.evaluate.measures)
    check_grades(names, judgements)
    depth = deepest_rank(names)
    with database(run) as connection:
        query_of = judged_rows.query_of(connection, run, judgements)
        keys_of = committed_keys(query_of, judged_rows.not_committed(connection, run))
        ranked = judged_rows.results(connection, run, min(kept(run), depth))
        results = measure(judgements, keys_of, ranked, names, depth)
        original = None
        if alone and run.config.retrieve.keep_runs and not run.config.joining:
            ranked = judged_rows.originals(connection, run, kept(run))
            original = measure(judgements, keys_of, ranked, names, depth)
        unmatched = None if query_of else judged_rows.unmatched(connection, run, judgements)
    rejected = sorted(key for key, query_id in query_of.items() if query_id is None)
    keys = [key for keys in keys_of.values() for key in keys] + rejected
    zeros, empty = np.zeros((len(rejected), len(names))), np.zeros(len(rejected), np.int64)
    lists = ListLengths(np.concatenate([results.lengths, empty]), min(kept(run), cut_from(run.config, _own_cuts(run))))
    alone_lists = None
    if original is not None:
        alone_lists = ListLengths(np.concatenate([original.lengths, empty]), min(kept(run), cut_from(run.config, {})))
    return PerQuery(
        measures=names,
        judged=len(judgements.grades),
        missing=len(judgements.grades) - len(query_of),
        not_committed=len(query_of) - len(keys),
        keys=keys,
        query_ids=[query_of[key] for key in keys],
        results=np.vstack([results.values, zeros]),
        original=None if original is None else np.vstack([original.values, zeros]),
        without_results=len(results.values) - results.found,
        unjudged=results.unjudged,
        original_unjudged=None if original is None else original.unjudged,
        unmatched=unmatched,
        depth=depth,
        lists=lists,
        original_lists=alone_lists,
    )


def _own_cuts(run: RunFolder) -> dict[str, tuple[int | None, float | None]]:
    """Returns strategy -> depth and score floor of its own, as the run has recorded them."""
    return {one["name"]: (one.get("depth"), one.get("score_floor")) for one in run.strategies}


def committed_keys(query_of: dict[str, str | None], pending: set[str]) -> dict[str, list[str]]:
    """Returns query_id -> its judged keys, of the committed queries, in order.

    Args:
        query_of: what `judged_rows.query_of` found.
        pending: what `judged_rows.not_committed` found.
    """
    keys_of: dict[str, list[str]] = {}
    for key, query_id in sorted(query_of.items(), key=lambda pair: (pair[1] or "", pair[0])):
        if query_id is not None and query_id not in pending:
            keys_of.setdefault(query_id, []).append(key)
    return keys_of


def sums_by_query(values: Floats, query_ids: Sequence[str | None]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Returns (queries, measures), the sums of the values of a query's keys, and (queries,), the number of its keys.

    Args:
        values: (keys, measures).
        query_ids: of the keys, those of a query together; a rejected row (None) is a query of its own.
    """
    sizes = [size for query_id, of in groupby(query_ids) for size in ([len(list(of))] if query_id else [1] * len(list(of)))]
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, np.repeat(np.arange(len(sizes)), sizes), values)
    return sums, np.array(sizes, np.int64)


def per_query_table(run: RunFolder, judgements: Judgements, values: PerQuery) -> pa.Table:
    """Returns a row per counted key: the key, its query, and each measure of the results and of the original alone.

    A run whose queries have earlier turns has a column `context`, and one with `retrieve.filters` a column `filter COLUMN` for
    each column of the log that they name.
    """
    from jobs.measure.evaluate.asked_with import NOTHING, asked_with, filter_columns  # which reads through this module

    with database(run) as connection:
        wanted = [query_id for query_id in values.query_ids if query_id is not None]
        connection.register("wanted", pa.table({"query_id": pa.array(sorted(set(wanted)), pa.string())}))
        found = connection.execute(
            "SELECT query_id, query, log_count FROM read_parquet(?) SEMI JOIN wanted USING (query_id)", [run.tables["queries"]]
        ).fetchall()
    asked = {query_id: (query, log_count) for query_id, query, log_count in found}
    texts = [asked.get(query_id or "", (None, None)) for query_id in values.query_ids]
    columns: dict[str, pa.Array] = {} if judgements.key == "query_id" else {judgements.key: pa.array(values.keys, pa.string())}
    columns["query_id"] = pa.array(values.query_ids, pa.string())
    if judgements.key != "query":
        columns["query"] = pa.array([query for query, _ in texts], pa.string())
    beside = asked_with(run, wanted)
    with_it = [beside.get(query_id or "", NOTHING) for query_id in values.query_ids]
    if run.config.log.context_column is not None:
        columns["context"] = pa.array([one.context for one in with_it], pa.string())
    for name in filter_columns(run):
        columns[f"filter {name}"] = pa.array([one.filters.get(name) for one in with_it], pa.string())
    columns["log_count"] = pa.array([log_count for _, log_count in texts], pa.int64())
    for place, name in enumerate(values.measures):
        columns[name] = pa.array(values.results[:, place])
        if values.original is not None:
            columns[f"{name} original"] = pa.array(values.original[:, place])
    return pa.table(columns)
