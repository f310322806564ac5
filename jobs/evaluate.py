"""Quality against relevance judgements: of the results, and of the original query alone.

Judgements speak of `log_id`, joined to queries through `query_map`. A mean is over the judged log_ids that are in the
log; one without results counts zero, so failures never raise it. Measures are ir_measures' own, under its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from cluster.shards import Plan, committed_tables, manifests
from cluster.storage import Storage
from jobs.part import ConfigError
from jobs.tables import ORIGINAL

MEASURES = ("nDCG@10", "R@10")


class Judgements(NamedTuple):
    """Relevance judgements: log_id -> doc_id -> grade (0: not relevant)."""

    path: str
    grades: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Evaluation:
    """Means over the judged log_ids that the log has."""

    judged: int  # log_ids with judgements
    missing: int  # of them not in the log
    results: dict[str, float]  # measure -> mean
    original: dict[str, float] | None  # the same of the original alone; None where runs were not kept


Ranked = Mapping[str, Iterable[tuple[str, float]]]  # query_id -> (doc_id, score), best first


def read_qrels(path: str) -> Judgements:
    """Read tab-separated `log_id doc_id grade`, or TREC's `log_id 0 doc_id grade`; ConfigError names the bad line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"evaluate.qrels: {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    grades: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = line.split("\t") if "\t" in line else line.split()
        try:
            log_id, doc_id, grade = fields if len(fields) == 3 else (fields[0], *fields[2:])
            grades.setdefault(log_id, {})[doc_id] = int(grade)
        except ValueError as error:
            raise ConfigError(
                f"evaluate.qrels: {path}: line {number} is neither 'log_id<TAB>doc_id<TAB>grade' nor TREC's four columns: "
                f"{line[:80]!r}"
            ) from error
    if not grades:
        raise ConfigError(f"evaluate.qrels: {path}: holds no judgement")
    return Judgements(path, grades)


def evaluate(
    storage: Storage, plan: Plan, judgements: Judgements, fuse_original: Callable[[list[dict[str, Any]]], Ranked] | None
) -> Evaluation:
    """Measure a run's committed tables.

    Args:
        fuse_original: makes ranked lists of the `original` rows of runs/; None where the run kept none.
    """
    tables = committed_tables(plan, manifests(storage))
    names = {table: [storage.url(file.key) for file in files] for table, files in tables.items()}
    with duckdb.connect(config={"memory_limit": "256MB"}) as connection:
        connection.execute("CREATE TABLE judged (log_id VARCHAR)")
        connection.executemany("INSERT INTO judged VALUES (?)", [[log_id] for log_id in judgements.grades])
        rows = connection.execute(
            "SELECT DISTINCT log_id, query_id FROM read_parquet(?) JOIN judged USING (log_id)",
            [names["query_map"]],
        ).fetchall()
        query_of = dict(rows)
        wanted = sorted({query_id for query_id in query_of.values() if query_id is not None})  # null: a rejected row
        connection.execute("CREATE TABLE wanted AS SELECT unnest(?::VARCHAR[]) AS query_id", [wanted])
        ranked: dict[str, list[tuple[str, float]]] = {}
        for query_id, doc_id, score in _select(connection, names.get("results", []), "query_id, doc_id, -rank"):
            ranked.setdefault(query_id, []).append((doc_id, score))
        original = None
        if fuse_original is not None:
            columns = ("query_id", "strategy", "position", "retriever", "doc_id", "rank", "score")
            found = _select(
                connection,
                names.get("runs", []),
                ", ".join(columns),
                f"strategy = '{ORIGINAL}' ORDER BY query_id, retriever, rank",
            )
            original = fuse_original([dict(zip(columns, row, strict=True)) for row in found])
    return Evaluation(
        judged=len(judgements.grades),
        missing=len(judgements.grades) - len(query_of),
        results=measure(judgements, query_of, ranked),
        original=None if original is None else measure(judgements, query_of, original),
    )


def measure(judgements: Judgements, query_of: Mapping[str, str], ranked: Ranked) -> dict[str, float]:
    """Means of MEASURES over the log_ids of `query_of`; scores only order the documents."""
    import ir_measures

    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    qrels = {log_id: judgements.grades[log_id] for log_id in query_of}
    run = {log_id: _by_place(ranked.get(query_id, [])) for log_id, query_id in query_of.items()}
    sums = dict.fromkeys(MEASURES, 0.0)
    if not qrels:
        return sums
    for metric in ir_measures.iter_calc(measures, qrels, run):
        sums[str(metric.measure)] += metric.value
    return {name: sums[name] / len(qrels) for name in MEASURES}


def _by_place(hits: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Scores that keep the given order, whatever a measure does about ties."""
    return {doc_id: -float(place) for place, (doc_id, _) in enumerate(hits)}


def _select(
    connection: duckdb.DuckDBPyConnection,
    names: list[str],
    columns: str,
    condition: str = "true ORDER BY query_id, rank",
) -> list[tuple[Any, ...]]:
    if not names:
        return []
    query = f"SELECT {columns} FROM read_parquet(?) SEMI JOIN wanted USING (query_id) WHERE {condition}"
    rows: list[tuple[Any, ...]] = connection.execute(query, [names]).fetchall()
    return rows
