"""What the lists of each strategy bring: relevant documents on their way to the results, and results that the original lacks.

Rows are read portion by portion and summed, in bounded memory: all rows of a query are in one shard. Found are documents of a
list that no depth and no score floor keeps out of fusion, whatever the list's weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from jobs.chain.arms.arms import FULL, RUN
from jobs.log.judgements import Judgements
from jobs.measure.judged_rows import above_cuts, counted_keys, database
from jobs.runs.folder import RunFolder
from jobs.runs.reading import files, portions
from jobs.tables import ORIGINAL
from retrievers.lists import TOGETHER

PORTION = 2_000_000  # rows of runs/ at a time
TOP = 5
_TABLES = ("runs", "results", "candidates", "scores")
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
_FOLLOWED = """
WITH pairs AS (
    SELECT query_id, doc_id, list(DISTINCT strategy) AS strategies
    FROM rows_of($runs) SEMI JOIN relevant USING (query_id, doc_id) WHERE {cuts} GROUP BY ALL
), candidates AS (SELECT DISTINCT query_id, doc_id, true AS fused FROM ({candidates})), results AS ({results}),
followed AS (
    SELECT strategies, len(strategies) = 1 AS alone, coalesce(fused, false) AS fused, rank
    FROM pairs LEFT JOIN candidates USING (query_id, doc_id) LEFT JOIN results USING (query_id, doc_id)
)
SELECT '' AS strategy, count(*) AS any_list, 0 AS found, 0 AS alone, 0 AS fused, 0 AS kept, 0 AS top FROM followed
UNION ALL
SELECT strategy, 0, count(*), count(*) FILTER (alone), count(*) FILTER (alone AND fused),
    count(*) FILTER (alone AND fused AND rank IS NOT NULL), count(*) FILTER (alone AND fused AND rank <= $top)
FROM (SELECT *, unnest(strategies) AS strategy FROM followed) GROUP BY strategy
"""
Files = Mapping[str, Sequence[str]]
"""Table -> its files of some shards, possibly none."""
Query = tuple[str, Mapping[str, object]]
"""SQL of a row per strategy with numbers, or of one without a strategy (''), and its parameters."""


class Worth(NamedTuple):
    """The worth of one strategy without judgements, measured by the original."""

    strategy: str
    """`original` for the query as it was asked, `together` for texts that are searched as one."""
    reranker_gain: float | None
    """Mean over queries of the reranker's best score of a document of its lists, less that of the original's, in the
    reranker's own scale; over queries with scored documents of both. None: there are none, or there is no reranker."""
    increment: float
    """Mean number of results per query that a list of it has, and no list of the original."""
    increment_share: float
    """The same as a share of all results."""


class Funnel(NamedTuple):
    """The relevant pairs of query and document that each strategy finds, and where those are lost that it alone finds.

    Relevant is a document with a grade above 0 under any of the query's judged keys.
    """

    judged_queries: int
    """Committed queries with a judgement."""
    relevant: int
    """Their relevant pairs."""
    found: int
    """Of these, pairs that any list has."""
    strategies: dict[str, list[int | None]]
    """Strategy -> pairs in its lists, in no other strategy's list, of these fused, of these among the stored results (None:
    there is no reranker), of the fused among the first `TOP` results."""


def worth(run: RunFolder) -> list[Worth]:
    """Returns the worth of each strategy, the original first, for a run or arm `full`; nothing if lists were not kept."""
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

    if not lists_kept(run):
        return []
    with database(run) as connection:
        sums = _sums_by_strategy(connection, run, queries)
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


def funnel(run: RunFolder, judgements: Judgements, top: int = TOP) -> Funnel | None:
    """Returns the funnel of an ablation's arm `full`, or of a run; None if its lists were not kept."""
    if not lists_kept(run):
        return None
    with database(run) as connection:
        keys_of = counted_keys(connection, run, judgements).of_query
        graded = [(query_id, judgements.grades[key]) for query_id, keys in keys_of.items() for key in keys]
        least = judgements.least
        pairs = {(query_id, doc_id) for query_id, grades in graded for doc_id, grade in grades.items() if grade >= least}
        columns = [pa.array([pair[place] for pair in pairs], pa.string()) for place in (0, 1)]
        connection.register("relevant", pa.table(columns, names=["query_id", "doc_id"]))
        sums = _sums_by_strategy(connection, run, lambda portion: [_followed(run, portion, top)] if portion["runs"] else [])
    stages = ["found", "alone", "fused", "kept", "top"]
    strategies: dict[str, list[int | None]] = {
        name: [None if stage == "kept" and run.config.rerank.kind == "none" else sums[stage, name] for stage in stages]
        for name in listed_strategies(run)
    }
    return Funnel(len(keys_of), len(pairs), sums["any_list", ""], strategies)


def _followed(run: RunFolder, portion: Files, top: int) -> Query:
    # An ablation stores the fused candidates, and a run with `fuse.keep_candidates`. Of another run those that were scored are
    # known, and the results: all candidates without a reranker, and the first of them where it failed on the query.
    stored = run.is_ablation or run.config.fuse.keep_candidates
    tables = {"candidates" if stored else "scores": "", "results": " WHERE arm = $arm"}
    known = {table: condition for table, condition in tables.items() if portion[table]}
    parts = [f"SELECT query_id, doc_id FROM rows_of(${table}){condition}" for table, condition in known.items()]
    candidates = " UNION ALL ".join(parts) or "SELECT query_id, doc_id FROM relevant WHERE false"
    results = "SELECT query_id, doc_id, 0 AS rank FROM relevant WHERE false"
    given = {"runs": portion["runs"], "top": top} | {table: portion[table] for table in known}
    if portion["results"]:
        results = "SELECT query_id, doc_id, rank FROM rows_of($results) WHERE arm = $arm"
        given["arm"] = own_arm(run)
    return _FOLLOWED.format(cuts=above_cuts(run), candidates=candidates, results=results), given


def _sums_by_strategy(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, queries: Callable[[Files], Iterable[Query]]
) -> Counter[tuple[str, str]]:
    """Returns (column, strategy) -> sum over the committed shards, about `PORTION` rows of runs/ at a time."""
    sums: Counter[tuple[str, str]] = Counter()
    for manifests in portions(run.manifests, "runs", PORTION):
        for query, given in queries({table: files(run, table, manifests) for table in _TABLES}):
            rows = connection.execute(query, dict(given))
            _, *names = (column for column, *_ in rows.description or ())
            for strategy, *numbers in rows.fetchall():
                sums.update({(name, strategy): number or 0 for name, number in zip(names, numbers, strict=True)})
    return sums


def lists_kept(run: RunFolder) -> bool:
    """Returns whether runs/ has the lists; an ablation keeps those of arm `full`."""
    return run.is_ablation or run.config.retrieve.keep_runs


def own_arm(run: RunFolder) -> str:
    """Returns the name of the arm that is the config itself."""
    return FULL if run.is_ablation else RUN


def listed_strategies(run: RunFolder) -> list[str]:
    """Returns what lists can be of: the original, the planned strategies, and `together` where texts are searched as one."""
    return [ORIGINAL, *run.config.rewrite.planned, *[TOGETHER] * bool(run.config.joining)]
