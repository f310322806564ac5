"""The worth of each strategy without judgements: by the reranker, and by what it adds to the original."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import duckdb

from jobs.measure.judged_rows import above_cuts, database
from jobs.measure.list_portions import Portion, list_portions, listed_strategies, lists_kept, own_arm
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL


@dataclass(frozen=True)
class Worth:
    """What the hits of one strategy that can be fused are worth; those of the original are the measure."""

    strategy: str
    """`original` for the query as it was asked, `together` for texts that are searched as one."""
    reranker_gain: float | None
    """Mean over queries of the reranker's best score of a document of its lists, less that of the original's, in the
    reranker's own scale; over queries with scored documents of both. None: there are none, or there is no reranker."""
    increment: float
    """Mean number of results per query that a list of it has, and no list of the original."""
    increment_share: float
    """The same as a share of all results."""


@dataclass
class _WorthSums:
    """Sums over the portions; those by strategy as counters."""

    gains: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    gaining: Counter[str] = field(default_factory=Counter)
    new: Counter[str] = field(default_factory=Counter)
    results: int = 0


def worth(run: RunFolder) -> list[Worth] | None:
    """Returns the worth of each strategy, the original first; None if the run's lists were not kept.

    Args:
        run: An ablation, of which arm `full` is looked at, or a plain run.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    if not lists_kept(run):
        return None
    sums = _WorthSums()
    has_own = not run.is_ablation or run.own_reranker is not None
    with database(run) as connection:
        for portion in list_portions(run):
            _add_results(connection, run, portion, sums)
            if portion.runs and portion.scores and run.config.rerank.kind != "none" and has_own:
                _add_gains(connection, run, portion, sums)
    queries = run.counts["queries"]
    return [
        Worth(
            strategy=name,
            reranker_gain=sums.gains[name] / sums.gaining[name] if sums.gaining[name] else None,
            increment=sums.new[name] / queries if queries else 0.0,
            increment_share=sums.new[name] / sums.results if sums.results else 0.0,
        )
        for name in listed_strategies(run)
    ]


def _add_results(connection: duckdb.DuckDBPyConnection, run: RunFolder, portion: Portion, sums: _WorthSums) -> None:
    """Adds the results, and by strategy those that it has and the original has not."""
    if not portion.results:
        return
    given: dict[str, object] = {"results": portion.results, "arm": own_arm(run)}
    ((count,),) = connection.execute("SELECT count(*) FROM rows_of($results) WHERE arm = $arm", given).fetchall()
    sums.results += count
    if not portion.runs:
        return
    query = f"""
        WITH found AS (
            SELECT query_id, doc_id, list(DISTINCT strategy) AS strategies FROM rows_of($runs)
            SEMI JOIN (SELECT query_id, doc_id FROM rows_of($results) WHERE arm = $arm) USING (query_id, doc_id)
            WHERE {above_cuts(run)} GROUP BY ALL
        )
        SELECT unnest(strategies) AS strategy, count(*) FROM found WHERE NOT list_contains(strategies, $original) GROUP BY 1
    """
    given |= {"runs": portion.runs, "original": ORIGINAL}
    sums.new.update(dict(connection.execute(query, given).fetchall()))


def _add_gains(connection: duckdb.DuckDBPyConnection, run: RunFolder, portion: Portion, sums: _WorthSums) -> None:
    """Adds, by strategy, the differences of the best scores to the original's, and the number of queries."""
    condition = " WHERE reranker = $reranker" if run.is_ablation else ""
    query = f"""
        WITH scored AS (SELECT query_id, doc_id, score FROM rows_of($scores){condition}),
        best AS (
            SELECT query_id, strategy, max(scored.score) AS score
            FROM (SELECT query_id, doc_id, strategy FROM rows_of($runs) WHERE {above_cuts(run)})
            JOIN scored USING (query_id, doc_id) GROUP BY ALL
        ), originals AS (SELECT query_id, score FROM best WHERE strategy = $original)
        SELECT strategy, sum(best.score - originals.score), count(*)
        FROM best JOIN originals USING (query_id) GROUP BY strategy
    """
    given: dict[str, object] = {"scores": portion.scores, "runs": portion.runs, "original": ORIGINAL}
    if condition:
        given["reranker"] = run.own_reranker
    for strategy, gain, queries in connection.execute(query, given).fetchall():
        sums.gains[strategy] += gain
        sums.gaining[strategy] += queries
