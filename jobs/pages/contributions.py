"""Gains of each strategy in the results of a run.

These are sums over shards; of a long run only as many shards are read as hold about `MOST_QUERIES` queries.
"""

from collections import Counter
from typing import NamedTuple

from jobs.measure.judged_rows import above_cuts
from jobs.measure.strategies import listed_strategies
from jobs.runs.folder import RunFolder
from jobs.runs.tables import create_views, database, portions, spread
from jobs.tables import ORIGINAL
from retrievers.fusion import takes_part

MOST_QUERIES = 50_000
TOP = 10
PORTION = 2_000_000  # rows of results/ read at a time


class Added(NamedTuple):
    """Documents of the results that the lists of one strategy have."""

    strategy: str
    found: int
    new: int  # of these, results that no list of the original has
    alone: int  # of these, results that no other strategy's list has
    top_found: int
    top_new: int


class Contributions(NamedTuple):
    """Gains of strategies, over `queries` of the committed queries."""

    queries: int
    documents: int
    top_documents: int
    added: list[Added]


def contributions(run: RunFolder) -> Contributions | None:
    """Returns the gains of each strategy; None if nothing is committed."""
    queries = run.counts["queries"]
    if not queries:
        return None
    chosen = run.manifests
    if queries > MOST_QUERIES:
        chosen = spread(chosen, max(1, MOST_QUERIES // max(manifest.counts["queries"] for manifest in chosen)))
    names = listed_strategies(run)
    left_out = weightless(run, names)
    # lists of weight 0 are no sources of results: what they hold is known where lists were kept
    query = f"""
        SELECT rank <= {TOP}, list_distinct(list_concat(list_transform(sources, lambda s: s.strategy), coalesce(others, []))),
            count(*) FROM results LEFT JOIN (
                SELECT query_id, doc_id, list(DISTINCT strategy) AS others FROM runs
                WHERE {above_cuts(run)} AND list_contains($left_out::VARCHAR[], strategy || '/' || retriever) GROUP BY ALL
            ) USING (query_id, doc_id) GROUP BY ALL
    """
    documents: Counter[tuple[bool, frozenset[str]]] = Counter()  # by whether they are among the first, and their strategies
    with database(run) as connection:
        for portion in portions(chosen, "results", PORTION):
            create_views(connection, run, ["results"], portion)
            create_views(connection, run, ["runs"], portion if left_out else ())
            for top, strategies, number in connection.execute(query, {"left_out": left_out}).fetchall():
                documents[top, frozenset(strategies)] += number
    added = []
    for name in names:
        mine = {key: number for key, number in documents.items() if name in key[1]}
        new = {key: number for key, number in mine.items() if ORIGINAL not in key[1]}
        alone = sum(number for (_, strategies), number in mine.items() if len(strategies) == 1)
        tops = [sum(number for (top, _), number in of.items() if top) for of in (mine, new)]
        added.append(Added(name, sum(mine.values()), sum(new.values()), alone, *tops))
    first = sum(number for (top, _), number in documents.items() if top)
    return Contributions(sum(manifest.counts["queries"] for manifest in chosen), documents.total(), first, added)


def comparable(run: RunFolder) -> bool:
    """Returns True if all documents found by the original are known.

    They are known from its lists, or from the results' sources, which name every list but those of weight 0. Where it was
    searched as one with its rewrites they are not.
    """
    return not run.config.joining and (run.config.retrieve.keep_runs or not weightless(run, [ORIGINAL]))


def weightless(run: RunFolder, names: list[str]) -> list[str]:
    """Returns the lists of weight 0, as strategy/retriever; a retriever with `together` has none but its original's."""
    retrieve, fuse, joining = run.config.retrieve, run.config.fuse, run.config.joining
    routed = [
        (name, retriever)
        for name in names
        for retriever in retrieve.route(name)
        if not retrieve.retrievers[retriever].together or (name == ORIGINAL and retriever not in joining)
    ]
    return [f"{name}/{retriever}" for name, retriever in routed if not takes_part(fuse, name, retriever, 1.0)]
