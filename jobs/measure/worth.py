"""The worth of each strategy without judgements: by the reranker, and by what it adds to the original."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.measure.judged_rows import above_cuts, database
from jobs.measure.list_portions import Files, Query, listed_strategies, lists_kept, own_arm, sums_by_strategy
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL

_NEW = """
WITH found AS (
    SELECT query_id, doc_id, list(DISTINCT strategy) AS strategies FROM rows_of($runs)
    SEMI JOIN (SELECT query_id, doc_id FROM rows_of($results) WHERE arm = $arm) USING (query_id, doc_id)
    WHERE {} GROUP BY ALL
)
SELECT unnest(strategies) AS strategy, count(*) AS new FROM found WHERE NOT list_contains(strategies, $original) GROUP BY 1
"""
_GAINS = """
WITH best AS (
    SELECT query_id, strategy, max(scored.score) AS score
    FROM (SELECT query_id, doc_id, strategy FROM rows_of($runs) WHERE {})
    JOIN (SELECT query_id, doc_id, score FROM rows_of($scores){}) AS scored USING (query_id, doc_id) GROUP BY ALL
), originals AS (SELECT query_id, score FROM best WHERE strategy = $original)
SELECT strategy, sum(best.score - originals.score) AS gain, count(*) AS gaining
FROM best JOIN originals USING (query_id) GROUP BY strategy
"""


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


def worth(run: RunFolder) -> list[Worth] | None:
    """Returns the worth of each strategy, the original first; None if the run's lists were not kept.

    Args:
        run: An ablation, of which arm `full` is looked at, or a plain run.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    if not lists_kept(run):
        return None
    has_reranker = run.config.rerank.kind != "none" and (not run.is_ablation or run.own_reranker is not None)

    def queries(portion: Files) -> Iterator[Query]:
        own = {"results": portion["results"], "arm": own_arm(run)}
        if portion["results"]:
            yield "SELECT '', count(*) AS results FROM rows_of($results) WHERE arm = $arm", own
        if portion["results"] and portion["runs"]:
            yield _NEW.format(above_cuts(run)), own | {"runs": portion["runs"], "original": ORIGINAL}
        if portion["runs"] and portion["scores"] and has_reranker:
            given: dict[str, object] = {"scores": portion["scores"], "runs": portion["runs"], "original": ORIGINAL}
            condition = " WHERE reranker = $reranker" if run.is_ablation else ""
            given |= {"reranker": run.own_reranker} if condition else {}
            yield _GAINS.format(above_cuts(run), condition), given

    with database(run) as connection:
        sums = sums_by_strategy(connection, run, queries)
    asked, results = run.counts["queries"], sums["results", ""]
    return [
        Worth(
            strategy=name,
            reranker_gain=sums["gain", name] / sums["gaining", name] if sums["gaining", name] else None,
            increment=sums["new", name] / asked if asked else 0.0,
            increment_share=sums["new", name] / results if results else 0.0,
        )
        for name in listed_strategies(run)
    ]
