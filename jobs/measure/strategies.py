"""Gains from the lists of each strategy: relevant documents on their way to the results, and results that the original lacks.

Rows are read portion by portion and summed, in bounded memory: all rows of a query are in one shard. `funnel` and `worth` read
the lists, to the depths and score floors that keep hits out of fusion, whatever a list's weight; `contributions` reads the
sources of results, which lists of weight 0 are not.
"""

from collections import Counter
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from cluster.storage.sql import text_literal
from jobs.chain.arms.arms import FULL, RUN
from jobs.log.judgements import Judgements
from jobs.measure.judged_rows import above_cuts, counted_keys
from jobs.runs.folder import RunFolder
from jobs.runs.tables import create_views, database, portions
from jobs.tables import ORIGINAL
from retrievers.fusion import takes_part
from retrievers.lists import TOGETHER

PORTION = 2_000_000  # rows of runs/ at a time
TOP = 5
FIRST_RESULTS = 10
Sums = Counter[tuple[str, str]]  # (column of a query, strategy) -> sum over the committed shards
_NEW = f"""
WITH found AS (
    SELECT query_id, doc_id, list(DISTINCT strategy) AS strategies FROM own_runs
    SEMI JOIN own_results USING (query_id, doc_id) GROUP BY ALL
)
SELECT '' AS strategy, count(*) AS results, 0 AS new FROM own_results
UNION ALL
SELECT unnest(strategies), 0, count(*) FROM found WHERE NOT list_contains(strategies, '{ORIGINAL}') GROUP BY 1
"""
_ADDED = f"""
WITH found AS (
    SELECT rank <= {FIRST_RESULTS} AS top, list_distinct(list_transform(sources, lambda s: s.strategy)) AS strategies
    FROM own_results
), each AS (
    SELECT unnest(strategies) AS strategy, top, len(strategies) = 1 AS alone, NOT list_contains(strategies, '{ORIGINAL}') AS new
    FROM found
)
SELECT '' AS strategy, count(*) AS found, 0 AS new, 0 AS alone, count(*) FILTER (top) AS top_found, 0 AS top_new FROM found
UNION ALL
SELECT strategy, count(*), count(*) FILTER (new), count(*) FILTER (alone), count(*) FILTER (top), count(*) FILTER (top AND new)
FROM each GROUP BY strategy
"""
_FOLLOWED = f"""
WITH pairs AS (
    SELECT query_id, doc_id, list(DISTINCT strategy) AS strategies
    FROM own_runs SEMI JOIN relevant USING (query_id, doc_id) GROUP BY ALL
), fused AS (SELECT query_id, doc_id, true AS fused FROM candidates UNION SELECT query_id, doc_id, true FROM own_results),
followed AS (
    SELECT strategies, len(strategies) = 1 AS alone, coalesce(fused, false) AS fused, rank
    FROM pairs LEFT JOIN fused USING (query_id, doc_id) LEFT JOIN own_results USING (query_id, doc_id)
)
SELECT '' AS strategy, count(*) AS any_list, 0 AS found, 0 AS alone, 0 AS fused, 0 AS kept, 0 AS top FROM followed
UNION ALL
SELECT strategy, 0, count(*), count(*) FILTER (alone), count(*) FILTER (alone AND fused),
    count(*) FILTER (alone AND fused AND rank IS NOT NULL), count(*) FILTER (alone AND fused AND rank <= {TOP})
FROM (SELECT *, unnest(strategies) AS strategy FROM followed) GROUP BY strategy
"""


Worth = dict[str, Any]
"""The worth of one `strategy` (`together`: texts that are searched as one) of an ablation's arm `full`, without judgements.

`increment` is the mean number of results per query that a list of it has, and no list of the original; `increment_share` is the
same as a share of all results.
"""


class Funnel(NamedTuple):
    """The relevant pairs of query and document that each strategy finds, and where those are lost that it alone finds.

    Relevant is a document with a grade above 0 under any of the query's judged keys.
    """

    judged_queries: int  # committed queries with a judgement
    relevant: int  # their relevant pairs
    found: int  # of these, pairs that any list has
    strategies: dict[str, list[int | None]]
    """Strategy -> pairs in its lists, in no other strategy's list, of these fused, of these among the stored results (None:
    there is no reranker), of the fused among the first `TOP` results."""


def worth(run: RunFolder) -> list[Worth]:
    """Returns the worth of each strategy of an ablation, the original first."""
    with database(run) as connection:
        sums = _sums_by_strategy(connection, run, _NEW)
    asked, results = run.counts["queries"], sums["results", ""]
    return [
        {"strategy": name, "increment": sums["new", name] / (asked or 1), "increment_share": sums["new", name] / (results or 1)}
        for name in listed_strategies(run)
    ]


def contributions(run: RunFolder) -> Sums:
    """Returns (figure, strategy) -> the results that the strategy's fused lists have; of "" all results. Empty: none committed.

    Figures are `found`, of these `new` (no list of the original has them) and `alone` (no other strategy's list has them), and
    `top_found` and `top_new` of the first `FIRST_RESULTS`.
    """
    with database(run) as connection:
        return _sums_by_strategy(connection, run, _ADDED)


def comparable(run: RunFolder) -> bool:
    """Returns True if the results' sources name all that the original found.

    Lists of weight 0 are no sources, and where the original was searched as one with its rewrites it has no list.
    """
    lists = run.config.retrieve.route(ORIGINAL)
    return not run.config.joining and all(takes_part(run.config.fuse, ORIGINAL, retriever, 1.0) for retriever in lists)


def funnel(run: RunFolder, judgements: Judgements) -> Funnel:
    """Returns the funnel of an ablation's arm `full`."""
    with database(run) as connection:
        keys_of = counted_keys(connection, run, judgements).of_query
        graded = [(query_id, judgements.grades[key]) for query_id, keys in keys_of.items() for key in keys]
        least = judgements.least
        pairs = {(query_id, doc_id) for query_id, grades in graded for doc_id, grade in grades.items() if grade >= least}
        columns = [pa.array([pair[place] for pair in pairs], pa.string()) for place in (0, 1)]
        connection.register("relevant", pa.table(columns, names=["query_id", "doc_id"]))
        sums = _sums_by_strategy(connection, run, _FOLLOWED)
    stages = ["found", "alone", "fused", "kept", "top"]
    strategies: dict[str, list[int | None]] = {
        name: [None if stage == "kept" and run.config.rerank.kind == "none" else sums[stage, name] for stage in stages]
        for name in listed_strategies(run)
    }
    return Funnel(len(keys_of), len(pairs), sums["any_list", ""], strategies)


def _sums_by_strategy(connection: duckdb.DuckDBPyConnection, run: RunFolder, query: str) -> Sums:
    """Returns (column, strategy) -> sum over the committed shards, about `PORTION` rows of runs/ at a time.

    The query returns a row per strategy. It has views of each table, and of the rows that are the config's own: `own_runs`,
    without hits that a cut keeps out of fusion, and `own_results`.
    """
    sums: Sums = Counter()
    own = {"runs": above_cuts(run), "results": f"arm = {text_literal(FULL if run.is_ablation else RUN)}"}
    for portion in portions(run.manifests, "runs", PORTION):
        create_views(connection, run, ["runs", "results", "candidates"], portion)
        for table, condition in own.items():
            connection.execute(f"CREATE OR REPLACE VIEW own_{table} AS FROM {table} WHERE {condition}")
        rows = connection.execute(query)
        _, *names = (column for column, *_ in rows.description or ())
        for strategy, *numbers in rows.fetchall():
            sums.update({(name, strategy): number or 0 for name, number in zip(names, numbers, strict=True)})
    return sums


def listed_strategies(run: RunFolder) -> list[str]:
    """Returns the sources of lists: the original, the planned strategies, and `together` where texts are searched as one."""
    return [ORIGINAL, *run.config.rewrite.planned, *[TOGETHER] * bool(run.config.joining)]
