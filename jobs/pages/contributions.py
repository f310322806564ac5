"""Gains of each strategy in the results of a run: what its lists have, and what the original's have not."""

from typing import NamedTuple

from jobs.measure.strategies import listed_strategies, sums_by_strategy
from jobs.runs.folder import RunFolder
from jobs.runs.tables import database
from jobs.tables import ORIGINAL
from retrievers.fusion import takes_part

TOP = 10
_ADDED = f"""
WITH found AS (
    SELECT rank <= {TOP} AS top, list_distinct(list_transform(sources, lambda s: s.strategy)) AS strategies FROM own_results
), each AS (
    SELECT unnest(strategies) AS strategy, top, len(strategies) = 1 AS alone, NOT list_contains(strategies, '{ORIGINAL}') AS new
    FROM found
)
SELECT '' AS strategy, count(*) AS found, 0 AS new, 0 AS alone, count(*) FILTER (top) AS top_found, 0 AS top_new FROM found
UNION ALL
SELECT strategy, count(*), count(*) FILTER (new), count(*) FILTER (alone), count(*) FILTER (top), count(*) FILTER (top AND new)
FROM each GROUP BY strategy
"""


class Added(NamedTuple):
    """Documents of the results that the fused lists of one strategy have."""

    strategy: str
    found: int
    new: int  # of these, results that no list of the original has
    alone: int  # of these, results that no other strategy's list has
    top_found: int
    top_new: int


class Contributions(NamedTuple):
    """Gains of strategies in the results."""

    documents: int
    top_documents: int
    added: list[Added]


def contributions(run: RunFolder) -> Contributions | None:
    """Returns the gains of each strategy; None if nothing is committed."""
    if not run.counts["queries"]:
        return None
    with database(run) as connection:
        sums = sums_by_strategy(connection, run, _ADDED)
    added = [Added(name, *(sums[field, name] for field in Added._fields[1:])) for name in listed_strategies(run)]
    return Contributions(sums["found", ""], sums["top_found", ""], added)


def comparable(run: RunFolder) -> bool:
    """Returns True if the results' sources name all that the original found.

    Lists of weight 0 are no sources, and where the original was searched as one with its rewrites it has no list.
    """
    lists = run.config.retrieve.route(ORIGINAL)
    return not run.config.joining and all(takes_part(run.config.fuse, ORIGINAL, retriever, 1.0) for retriever in lists)
