"""Errors of queries and log rows by reason, with a few examples of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cluster.run.shards import Manifest
from jobs.report.figures import Figures, Reason
from jobs.report.reading import database, files, queries_of
from jobs.run.folder import RunFolder

EXAMPLES = 3
RAW_CHARACTERS = 300


@dataclass(frozen=True)
class Example:
    """One error. `about`: query_id or log_id; texts are None if the report leaves texts out or the run has none."""

    about: str
    query: str | None
    message: str | None
    raw: str | None


@dataclass(frozen=True)
class Failure:
    """A reason, its count and its examples."""

    reason: Reason
    examples: list[Example]


@dataclass(frozen=True)
class Failures:
    """Errors of queries (failures, then notes) and of log rows, by reason."""

    queries: list[Failure]
    log_rows: list[Failure]
    failed_ids: dict[str, int]
    """query_id -> shard, of the examples that are failures, not notes."""


def failures(figures: Figures, *, texts: bool) -> Failures:
    """Returns the errors of a run by reason.

    Args:
        figures: of the run.
        texts: whether to read the texts of the examples.
    """
    run = figures.run
    found = _of_queries(run, figures.reasons)
    wanted: dict[int, set[str]] = {}
    for cases in found.values():
        for shard, row in cases:
            wanted.setdefault(shard, set()).add(row[0])
    queries = {}
    if texts:
        for shard, ids in wanted.items():
            queries.update({query_id: query for query_id, query, _ in queries_of(run, shard) if query_id in ids})
    of_queries = [
        Failure(one, [_example(row, queries.get(row[0]), texts=texts) for _, row in found.get(one, [])])
        for one in figures.reasons
    ]
    failed = {row[0]: shard for one, cases in found.items() if not one.note for shard, row in cases}
    return Failures(of_queries, _of_log_rows(run, texts=texts), failed)


Row = tuple[str, str | None, str | None]  # query_id or log_id, message, raw


def _of_queries(run: RunFolder, reasons: list[Reason]) -> dict[Reason, list[tuple[int, Row]]]:
    """Returns up to EXAMPLES (shard, row) of each reason, from as few shards as possible."""
    missing = Counter({_key(one): min(EXAMPLES, one.count) for one in reasons})
    read: list[Manifest] = []
    for manifest in run.manifests:
        here = {key: manifest.counts[key] for key in missing if missing[key] > 0 and key in manifest.counts}
        if here and "errors" in manifest.files:
            read.append(manifest)
            missing.subtract(here)
    found: dict[Reason, list[tuple[int, Row]]] = {}
    by_key = {(one.stage, one.component, one.reason): one for one in reasons}
    query = f"""
        SELECT stage, coalesce(component, ''), reason, query_id, message, left(raw, {RAW_CHARACTERS + 1}) FROM read_parquet(?)
        QUALIFY row_number() OVER (PARTITION BY stage, component, reason ORDER BY query_id) <= {EXAMPLES}
        ORDER BY query_id
    """
    with database() as connection:
        for manifest in read:
            for *key, query_id, message, raw in connection.execute(query, [files(run, "errors", [manifest])]).fetchall():
                cases = found.setdefault(by_key[key[0], key[1], key[2]], [])
                if len(cases) < EXAMPLES:
                    cases.append((manifest.shard, (query_id, message, raw)))
    return found


def _of_log_rows(run: RunFolder, *, texts: bool) -> list[Failure]:
    """Returns the rejected log rows by reason; there may be millions, so DuckDB counts them and takes the first by log_id."""
    names = [run.storage.url(file.key) for file in run.plan.tables.get("errors", []) if file.rows]
    if not names:
        return []
    query = f"""
        SELECT stage, reason, count(*),
            min_by({{'about': log_id, 'message': message, 'raw': left(raw, {RAW_CHARACTERS + 1})}}, log_id, {EXAMPLES})
        FROM read_parquet(?) GROUP BY ALL ORDER BY count(*) DESC, reason
    """
    with database() as connection:
        rows = connection.execute(query, [names]).fetchall()
    return [
        Failure(
            Reason(stage, "", reason, count),
            [_example((case["about"], case["message"], case["raw"]), None, texts=texts) for case in cases],
        )
        for stage, reason, count, cases in rows
    ]


def _example(row: Row, query: str | None, *, texts: bool) -> Example:
    return Example(row[0], query, row[1], row[2]) if texts else Example(row[0], None, None, None)


def _key(one: Reason) -> str:
    return f"error/{one.stage}/{one.component}/{one.reason}"
