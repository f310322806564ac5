"""The lists of an ablation or of a plain run, read portion by portion and summed by strategy, in bounded memory.

All rows of a query are in one shard, so what is computed per query is exact portion by portion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import duckdb

from jobs.chain.arms.arms import FULL
from jobs.chain.arms.arms import RUN as ARM
from jobs.runs.folder import RunFolder
from jobs.runs.reading import files, portions
from jobs.tables import ORIGINAL
from retrievers.fusion import takes_part
from retrievers.lists import TOGETHER

PORTION = 2_000_000  # rows of runs/ at a time
TABLES = ("runs", "rewrites", "results", "candidates", "scores")

Files = Mapping[str, Sequence[str]]
"""Table -> its files of some shards, possibly none."""
Query = tuple[str, Mapping[str, object]]
"""SQL of a row per strategy with numbers, or of one without a strategy (''), and its parameters."""


def sums_by_strategy(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, queries: Callable[[Files], Iterable[Query]]
) -> Counter[tuple[str, str]]:
    """Returns (column, strategy) -> sum over the committed shards, as many at a time as have about `PORTION` rows of runs/.

    Args:
        connection: to the run's tables.
        run: an ablation or a plain run.
        queries: returns the queries of a portion.
    """
    sums: Counter[tuple[str, str]] = Counter()
    for manifests in portions(run.manifests, "runs", PORTION):
        for query, given in queries({table: files(run, table, manifests) for table in TABLES}):
            found = connection.execute(query, dict(given))
            _, *names = (column for column, *_ in found.description or ())
            for strategy, *numbers in found.fetchall():
                sums.update({(name, strategy): number or 0 for name, number in zip(names, numbers, strict=True)})
    return sums


def lists_kept(run: RunFolder) -> bool:
    """Returns whether runs/ has the lists; an ablation keeps those of arm `full`."""
    return run.is_ablation or run.config.retrieve.keep_runs


def lists_known(run: RunFolder) -> bool:
    """Returns whether all lists of single texts, the original's among them, are stored."""
    return run.config.retrieve.keep_runs and not run.config.joining


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


def own_arm(run: RunFolder) -> str:
    """Returns the name of the arm that is the config itself."""
    return FULL if run.is_ablation else ARM


def listed_strategies(run: RunFolder) -> list[str]:
    """Returns what lists can be of: the original, the planned strategies, and `together` where texts are searched as one."""
    return [ORIGINAL, *run.config.rewrite.planned, *[TOGETHER] * bool(run.config.joining)]
