"""The funnel of each strategy: the relevant documents that it alone finds, and where they are lost on the way to the results.

Counted are pairs of a query and a document, of queries that are judged and committed; relevant is a document with a grade above
0 under any of the query's judged keys. Found are documents of a list that no depth and no score floor keeps out of fusion,
whatever the list's weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from jobs.log.judgements import Judgements
from jobs.measure.judged_rows import above_cuts, counted_keys, database
from jobs.measure.list_portions import Files, Query, listed_strategies, lists_kept, own_arm, sums_by_strategy
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL

TOP = 5
TOP_OF_LIST = 10  # documents of a list that are compared with another's
_STAGES = {  # SQL of each stage of what one strategy alone has found
    "alone": "true",
    "fused": "is_candidate",
    "kept": "is_candidate AND rank IS NOT NULL",
    "top": "is_candidate AND rank <= $top",
}


@dataclass(frozen=True)
class StrategyFunnel:
    """What one strategy finds, and what becomes of it. The counts of pairs fall from `found_alone` to `in_top`."""

    strategy: str
    """`original` for the query as it was asked, `together` for texts that are searched as one."""
    rewrites: int
    """Number of its texts, of all committed queries; `together` has none of its own."""
    relevant_found: int
    """Relevant pairs in its lists."""
    found_alone: int
    """Of these, pairs that no other strategy's list has."""
    survived_fusion: int
    """Of `found_alone`, pairs among the fused candidates."""
    survived_reranker: int | None
    """Of these, pairs among the results, as many as are stored per query; None: there is no reranker."""
    in_top: int
    """Of these (without a reranker: of the candidates), pairs among the first `Funnel.top` results."""
    overlap: float | None
    """Mean Jaccard overlap of the first 10 documents of its lists with those of the original's list of the same query and
    retriever; None: there are no such two lists (one without a hit is not stored)."""
    redundancy: float | None
    """Mean over its lists of the greatest Jaccard overlap of their first 10 documents with those of a list of another strategy,
    of the same query and retriever, 0 where there is none; None: it has no list."""
    unique_contribution: float
    """`found_alone` as a share of `Funnel.found`."""


@dataclass(frozen=True)
class Funnel:
    """The funnels of all strategies, the original's first; overlap and redundancy are over all committed queries."""

    strategies: tuple[StrategyFunnel, ...]
    judged_queries: int
    """Committed queries with a judgement."""
    relevant: int
    """Their relevant pairs."""
    found: int
    """Of these, pairs that any list has."""
    top: int = TOP


def funnel(run: RunFolder, judgements: Judgements, top: int = TOP) -> Funnel | None:
    """Returns the funnel of an ablation's arm `full`, or of a plain run; None if its lists were not kept.

    Besides the judgements, memory is bounded by a portion of the lists.

    Args:
        run: An ablation or a plain run.
        judgements: Of log rows or queries.
        top: Rank of the last of the first results.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    if not lists_kept(run):
        return None

    def queries(portion: Files) -> Iterator[Query]:
        if rewrites := portion["rewrites"]:
            given: dict[str, object] = {"rewrites": rewrites, **({"arm": own_arm(run)} if run.is_ablation else {})}
            condition = " WHERE arm = $arm" if run.is_ablation else ""
            yield f"SELECT strategy, count(*) AS texts FROM rows_of($rewrites){condition} GROUP BY strategy", given
        if portion["runs"]:
            yield _followed(run, portion, top)
            yield _COMPARED, {"runs": portion["runs"], "documents": TOP_OF_LIST, "original": ORIGINAL}

    with database(run) as connection:
        judged, relevant = _register_relevant(connection, run, judgements)
        sums = sums_by_strategy(connection, run, queries)
    reranked, any_list = run.config.rerank.kind != "none", sums["any_list", ""]
    sums["texts", ORIGINAL] = run.counts["queries"]
    return Funnel(
        strategies=tuple(
            StrategyFunnel(
                strategy=name,
                rewrites=sums["texts", name],
                relevant_found=sums["found", name],
                found_alone=sums["alone", name],
                survived_fusion=sums["fused", name],
                survived_reranker=sums["kept", name] if reranked else None,
                in_top=sums["top", name],
                overlap=_mean(sums["overlap", name], sums["beside", name]),
                redundancy=_mean(sums["greatest", name], sums["lists", name]),
                unique_contribution=sums["alone", name] / any_list if any_list else 0.0,
            )
            for name in listed_strategies(run)
        ),
        judged_queries=judged,
        relevant=relevant,
        found=any_list,
        top=top,
    )


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None


def _register_relevant(connection: duckdb.DuckDBPyConnection, run: RunFolder, judgements: Judgements) -> tuple[int, int]:
    """Registers the relevant pairs as table `relevant`; returns the number of judged queries, and of relevant pairs."""
    keys_of = counted_keys(connection, run, judgements).of_query
    graded = [(query_id, judgements.grades[key]) for query_id, keys in keys_of.items() for key in keys]
    pairs = {(query_id, doc_id) for query_id, grades in graded for doc_id, grade in grades.items() if grade >= judgements.least}
    columns = [pa.array([pair[place] for pair in pairs], pa.string()) for place in (0, 1)]
    connection.register("relevant", pa.table(columns, names=["query_id", "doc_id"]))
    return len(keys_of), len(pairs)


def _followed(run: RunFolder, portion: Files, top: int) -> Query:
    """Returns the query of the relevant pairs that each strategy finds, and how far those come that it finds alone."""
    candidates, given = _candidates(run, portion)
    results = "SELECT query_id, doc_id, rank FROM rows_of($results) WHERE arm = $arm"
    if not portion["results"]:
        results = "SELECT query_id, doc_id, 0 AS rank FROM relevant WHERE false"
    alone = ", ".join(f"count(*) FILTER (is_alone AND {condition}) AS {stage}" for stage, condition in _STAGES.items())
    query = f"""
        WITH pairs AS (
            SELECT query_id, doc_id, list(DISTINCT strategy) AS strategies
            FROM rows_of($runs) SEMI JOIN relevant USING (query_id, doc_id) WHERE {above_cuts(run)} GROUP BY ALL
        ), candidates AS (SELECT DISTINCT query_id, doc_id, true AS is_candidate FROM ({candidates})),
        results AS ({results}),
        followed AS (
            SELECT strategies, len(strategies) = 1 AS is_alone, coalesce(is_candidate, false) AS is_candidate, rank
            FROM pairs LEFT JOIN candidates USING (query_id, doc_id) LEFT JOIN results USING (query_id, doc_id)
        )
        SELECT '' AS strategy, count(*) AS any_list, 0 AS found, 0 AS alone, 0 AS fused, 0 AS kept, 0 AS top FROM followed
        UNION ALL
        SELECT strategy, 0, count(*), {alone} FROM (SELECT *, unnest(strategies) AS strategy FROM followed) GROUP BY strategy
    """
    given |= {"runs": portion["runs"], "top": top}
    return query, given | ({"results": portion["results"], "arm": own_arm(run)} if portion["results"] else {})


def _candidates(run: RunFolder, portion: Files) -> tuple[str, dict[str, object]]:
    """Returns the SQL of the fused candidates of the portion's queries, and its parameters.

    An ablation stores them, and a run with `fuse.keep_candidates`. Of another run those that were scored are known, and the
    results: all candidates without a reranker, and the first of them where it failed on the query.
    """
    stored = run.is_ablation or run.config.fuse.keep_candidates
    tables = {"candidates" if stored else "scores": "", "results": " WHERE arm = $arm"}
    known = {table: condition for table, condition in tables.items() if portion[table]}
    parts = [f"SELECT query_id, doc_id FROM rows_of(${table}){condition}" for table, condition in known.items()]
    none = "SELECT query_id, doc_id FROM relevant WHERE false"
    return " UNION ALL ".join(parts) or none, {table: portion[table] for table in known}


# How much each list has in common with the original's list, and with that of another strategy it is most like.
_COMPARED = """
WITH top AS (SELECT query_id, retriever, strategy, position, doc_id FROM rows_of($runs) WHERE rank <= $documents),
lists AS (SELECT query_id, retriever, strategy, position, count(*) AS size FROM top GROUP BY ALL),
common AS (
    SELECT one.query_id, one.retriever, one.strategy, one.position, other.strategy AS other,
           other.position AS other_position, count(*) AS shared
    FROM top AS one JOIN top AS other USING (query_id, retriever, doc_id)
    WHERE one.strategy <> other.strategy GROUP BY ALL
), compared AS (
    SELECT common.query_id, common.retriever, common.strategy, common.position, other,
           shared / (one.size + two.size - shared) AS overlap
    FROM common JOIN lists AS one USING (query_id, retriever, strategy, position)
    JOIN lists AS two ON two.query_id = common.query_id AND two.retriever = common.retriever
        AND two.strategy = other AND two.position = other_position
), greatest AS (
    SELECT query_id, retriever, strategy, position, max(overlap) AS overlap,
           max(overlap) FILTER (other = $original) AS with_original
    FROM compared GROUP BY ALL
), originals AS (SELECT query_id, retriever, true AS has_original FROM lists WHERE strategy = $original)
SELECT strategy, count(*) AS lists, sum(overlap) AS greatest, count(*) FILTER (has_original) AS beside,
       if(strategy = $original, count(*), sum(with_original)) AS overlap
FROM lists LEFT JOIN greatest USING (query_id, retriever, strategy, position) LEFT JOIN originals USING (query_id, retriever)
GROUP BY strategy
"""
