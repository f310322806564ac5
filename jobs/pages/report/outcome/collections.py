"""What each collection gave to the results.

Sums over shards; of a long run only as many shards are read as hold about `MOST_QUERIES` queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb

from jobs.chain.arms.arms import RUN
from jobs.config.collections import strategies_in
from jobs.pages.report.lists import MOST_QUERIES, PORTION
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files, portions, spread

_COLLECTION = "split_part(doc_id, ':', 1)"


@dataclass(frozen=True)
class CollectionShare:
    """What one collection gave to the results of an arm, or of a run."""

    collection: str
    queries: int = 0
    """Number of queries with a result of it."""
    results: int = 0
    first: int = 0
    """Number of queries whose first result is of it."""


@dataclass(frozen=True)
class ByCollection:
    """The shares of all collections, over `queries` of `of` committed queries."""

    queries: int
    of: int
    shares: dict[str, list[CollectionShare]]
    """Arm, `run` in plain runs -> a share for each collection of the config, in its order; only of arms with results."""
    hits: dict[str, int] | None
    """Collection -> queries of which a list there has a hit; None: lists were not kept. Of an ablation: of its arm `full`."""
    retrievers: dict[str, list[str]]
    strategies: dict[str, list[str]]
    """Collection -> the strategies whose texts are searched there, beside the original."""

    def results(self, arm: str) -> int:
        """Returns the number of results of an arm."""
        return sum(one.results for one in self.shares[arm])


def by_collection(run: RunFolder) -> ByCollection | None:
    """Returns what each collection gave; None without collections, or where nothing is committed."""
    retrieve, queries = run.config.retrieve, run.counts.get("queries", 0)
    if not retrieve.collections or not queries:
        return None
    chosen = run.manifests
    if queries > MOST_QUERIES:
        chosen = spread(chosen, max(1, MOST_QUERIES // max(manifest.counts["queries"] for manifest in chosen)))
    found: dict[tuple[str, str], CollectionShare] = {}
    hits = dict.fromkeys(retrieve.collections, 0)
    with database() as connection:
        for portion in portions(chosen, "results", PORTION):
            for arm, share in _shares(connection, files(run, "results", portion)):
                before = found.get((arm, share.collection), CollectionShare(share.collection))
                found[arm, share.collection] = replace(
                    share,
                    queries=before.queries + share.queries,
                    results=before.results + share.results,
                    first=before.first + share.first,
                )
        for portion in portions(chosen, "runs", PORTION):
            for name, count in _hits(connection, files(run, "runs", portion)):
                hits[name] = hits.get(name, 0) + count
    return ByCollection(
        queries=sum(manifest.counts["queries"] for manifest in chosen),
        of=queries,
        shares={
            arm: [found.get((arm, name), CollectionShare(name)) for name in retrieve.collections]
            for arm in _arms(run)
            if any((arm, name) in found for name in retrieve.collections)
        },
        hits=hits if retrieve.keep_runs or run.is_ablation else None,
        retrievers={name: one.retrievers for name, one in retrieve.collections.items()},
        strategies={
            name: strategies_in(one, retrieve.route, run.config.rewrite.planned) for name, one in retrieve.collections.items()
        },
    )


def _arms(run: RunFolder) -> list[str]:
    return [one["name"] for one in run.record["ablation"]["arms"]] if run.is_ablation else [RUN]


def _shares(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> list[tuple[str, CollectionShare]]:
    if not names:
        return []
    rows = connection.execute(
        f"SELECT arm, {_COLLECTION} AS collection, count(DISTINCT query_id), count(*), count(*) FILTER (rank = 1)"
        " FROM rows_of(?) GROUP BY ALL ORDER BY ALL",
        [list(names)],
    ).fetchall()
    return [(arm, CollectionShare(*share)) for arm, *share in rows]


def _hits(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> list[tuple[str, int]]:
    if not names:
        return []
    query = f"SELECT {_COLLECTION} AS collection, count(DISTINCT query_id) FROM rows_of(?) GROUP BY ALL ORDER BY ALL"
    rows: list[tuple[str, int]] = connection.execute(query, [list(names)]).fetchall()
    return rows
