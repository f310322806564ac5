"""Contribution of each strategy: the final documents that its lists found, and the overlap of the lists.

Both are sums over shards; of a long run only as many shards are read as hold about `MOST_QUERIES` queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import duckdb

from jobs.measure.judged_rows import above_cuts
from jobs.measure.list_portions import weightless
from jobs.pages.report.figures import Figures
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files, portions, spread
from jobs.tables import ORIGINAL
from retrievers.lists import TOGETHER

MOST_QUERIES = 50_000
TOP = 10
PORTION = 2_000_000  # rows of runs/ joined at a time

Pair = tuple[str, str]


@dataclass(frozen=True)
class Added:
    """The contribution of one strategy to the results of `ListStatistics.queries` queries, in documents."""

    strategy: str
    queries: int
    """Number of queries with a text of this strategy."""
    found: int
    """Results that a list of this strategy has."""
    new: int
    """Of these, results that no list of the original has."""
    alone: int
    """Of these, results that no other strategy's list has."""
    top_found: int
    top_new: int
    """`found` and `new` among the first `TOP` results."""


@dataclass(frozen=True)
class Overlap:
    """Mean overlap |A and B| / min(|A|, |B|) of two strategies' documents, over queries that have both."""

    retriever: str
    strategies: list[str]
    means: dict[Pair, float]
    queries: dict[Pair, int]


@dataclass(frozen=True)
class ListStatistics:
    """Contributions and overlaps, over `queries` of `of` committed queries."""

    queries: int
    of: int
    documents: int
    top_documents: int
    added: list[Added]
    overlaps: list[Overlap]
    from_runs: bool
    left_out: list[str]
    """Lists of weight 0, as strategy/retriever: not among the sources of results, known only if runs were kept."""
    joining: list[str]
    """The retrievers that searched all texts of a query as one."""
    comparable: bool
    """Whether all documents found by the original are known."""


def lists(figures: Figures) -> ListStatistics | None:
    """Returns the statistics of the lists; None if nothing is committed."""
    run = figures.run
    if not figures.queries:
        return None
    largest = max(manifest.counts["queries"] for manifest in run.manifests)
    chosen = run.manifests
    if figures.queries > MOST_QUERIES:
        chosen = spread(run.manifests, max(1, MOST_QUERIES // largest))
    names, joining = [ORIGINAL, *figures.strategies], run.config.joining
    from_runs, fused = run.config.retrieve.keep_runs, above_cuts(run)
    left_out = weightless(run, names)
    found: dict[tuple[bool, frozenset[str]], int] = {}
    searched = dict.fromkeys(names, 0)
    sums: dict[tuple[str, str, str], tuple[float, int]] = {}
    with database() as connection:
        for portion in portions(chosen, "runs" if from_runs else "results", PORTION):
            searched[ORIGINAL] += sum(manifest.counts["queries"] for manifest in portion)
            if rewrites := files(run, "rewrites", portion):
                for strategy, count in _queries_with(connection, rewrites):
                    searched[strategy] = searched.get(strategy, 0) + count
            if results := files(run, "results", portion):
                more = files(run, "runs", portion) if left_out else []
                for top, strategies, count in _found_by(connection, results, more, left_out, fused):
                    key = top, frozenset(strategies)
                    found[key] = found.get(key, 0) + count
            if read := files(run, "runs" if from_runs else "results", portion):
                _overlaps(connection, read, from_runs, fused, names, sums)
                if joining:
                    searched[TOGETHER] = searched.get(TOGETHER, 0) + _queries_together(connection, read, from_runs)
    added = [_added(name, searched[name], found) for name in [*names, *[TOGETHER] * bool(joining)]]
    return ListStatistics(
        queries=sum(manifest.counts["queries"] for manifest in chosen),
        of=figures.queries,
        documents=sum(found.values()),
        top_documents=sum(count for (top, _), count in found.items() if top),
        added=added,
        overlaps=[one for name in run.config.retrieve.retrievers if (one := _overlap(name, names, sums)).means],
        from_runs=from_runs,
        left_out=left_out,
        joining=joining,
        comparable=comparable(run),
    )


def _queries_with(connection: duckdb.DuckDBPyConnection, names: list[str]) -> list[tuple[str, int]]:
    query = "SELECT strategy, count(DISTINCT query_id) FROM rows_of(?) GROUP BY strategy"
    rows: list[tuple[str, int]] = connection.execute(query, [names]).fetchall()
    return rows


def _queries_together(connection: duckdb.DuckDBPyConnection, names: list[str], from_runs: bool) -> int:
    """Returns the number of queries with a list of texts searched as one; without runs/ those with a result that it has."""
    of = "strategy" if from_runs else "(SELECT unnest(list_transform(sources, lambda s: s.strategy)))"
    query = f"SELECT count(DISTINCT query_id) FROM rows_of($names) WHERE $together {'=' if from_runs else 'IN'} {of}"
    ((count,),) = connection.execute(query, {"names": names, "together": TOGETHER}).fetchall()
    return int(count)


def _found_by(
    connection: duckdb.DuckDBPyConnection, names: list[str], runs: list[str], left_out: list[str], fused: str
) -> list[tuple[bool, list[str], int]]:
    """Returns the number of results by (among the first TOP, the strategies that found them).

    Lists of weight 0, `left_out` as strategy/retriever, count where `runs` has files of runs/, with their hits for which
    `fused`, a condition in SQL, holds.
    """
    found = "list_transform(sources, lambda s: s.strategy)"
    source = "rows_of($names)"
    given: dict[str, object] = {"top": TOP, "names": names}
    if runs:
        found = f"list_concat({found}, coalesce(others, []))"
        source += f""" LEFT JOIN (
            SELECT query_id, doc_id, list(DISTINCT strategy) AS others FROM rows_of($runs)
            WHERE {fused} AND strategy || '/' || retriever IN (SELECT unnest($left_out)) GROUP BY ALL
        ) USING (query_id, doc_id)"""
        given |= {"runs": runs, "left_out": left_out}
    query = f"SELECT rank <= $top AS top, list_sort(list_distinct({found})) AS found, count(*) FROM {source} GROUP BY ALL"
    rows: list[tuple[bool, list[str], int]] = connection.execute(query, given).fetchall()
    return rows


def _added(name: str, queries: int, found: dict[tuple[bool, frozenset[str]], int]) -> Added:
    mine = {key: count for key, count in found.items() if name in key[1]}
    new = {key: count for key, count in mine.items() if ORIGINAL not in key[1]}
    return Added(
        strategy=name,
        queries=queries,
        found=sum(mine.values()),
        new=sum(new.values()),
        alone=sum(count for (_, strategies), count in mine.items() if len(strategies) == 1),
        top_found=sum(count for (top, _), count in mine.items() if top),
        top_new=sum(count for (top, _), count in new.items() if top),
    )


def _overlaps(
    connection: duckdb.DuckDBPyConnection,
    names: list[str],
    from_runs: bool,
    fused: str,
    strategies: Sequence[str],
    sums: dict[tuple[str, str, str], tuple[float, int]],
) -> None:
    """Adds to `sums`: (retriever, A, B) -> sum of the overlaps, number of queries.

    A document of a query is one row with a bit for every strategy that found it, so that no list is joined with another. Of
    runs/ the hits count for which `fused`, a condition in SQL, holds; the sources of results are such hits.
    """
    source = (
        f"SELECT query_id, retriever, doc_id, strategy FROM rows_of($names) WHERE {fused}"
        if from_runs
        else "SELECT query_id, s.retriever, doc_id, s.strategy FROM "
        "(SELECT query_id, doc_id, unnest(sources) AS s FROM rows_of($names))"
    )
    pairs = list(combinations(range(len(strategies)), 2))
    if not pairs:
        return
    sizes = [f"count(*) FILTER (mask & {1 << i} > 0) AS n{i}" for i in range(len(strategies))]
    both = [f"count(*) FILTER (mask & {1 << i} > 0 AND mask & {1 << j} > 0) AS b{i}_{j}" for i, j in pairs]
    means = [f"coalesce(sum(b{i}_{j} / least(n{i}, n{j})) FILTER (n{i} > 0 AND n{j} > 0), 0)" for i, j in pairs]
    counts = [f"count(*) FILTER (n{i} > 0 AND n{j} > 0)" for i, j in pairs]
    query = f"""
        WITH documents AS (
            SELECT query_id, retriever, doc_id, bit_or(1 << (list_position($strategies, strategy) - 1)) AS mask
            FROM ({source}) AS found(query_id, retriever, doc_id, strategy)
            WHERE strategy IN (SELECT unnest($strategies)) GROUP BY ALL
        ), sizes AS (SELECT query_id, retriever, {", ".join(sizes + both)} FROM documents GROUP BY ALL)
        SELECT retriever, {", ".join(means + counts)} FROM sizes GROUP BY retriever
    """
    given = {"names": names, "strategies": list(strategies)}
    for retriever, *values in connection.execute(query, given).fetchall():
        for (i, j), total, count in zip(pairs, values[: len(pairs)], values[len(pairs) :], strict=True):
            key = retriever, strategies[i], strategies[j]
            before = sums.get(key, (0.0, 0))
            sums[key] = before[0] + total, before[1] + count


def _overlap(retriever: str, names: list[str], sums: dict[tuple[str, str, str], tuple[float, int]]) -> Overlap:
    mine = {key[1:]: value for key, value in sums.items() if key[0] == retriever and value[1]}
    both = mine | {(b, a): value for (a, b), value in mine.items()}
    strategies = [name for name in names if any(name in pair for pair in both)]
    means = {pair: total / count for pair, (total, count) in both.items()}
    return Overlap(retriever, strategies, means, {pair: count for pair, (_, count) in both.items()})


def comparable(run: RunFolder) -> bool:
    """Returns whether all documents found by the original are known.

    They are known from its lists, or from the results' sources, which name every list but those of weight 0. Where it was
    searched as one with its rewrites they are not.
    """
    return not run.config.joining and (run.config.retrieve.keep_runs or not weightless(run, [ORIGINAL]))
