"""The files of an ablation or of a plain run that are read list by list: portion by portion, in bounded memory.

All rows of a query are in one shard, so what is computed per query is exact portion by portion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.chain.arms.arms import FULL
from jobs.chain.arms.arms import RUN as ARM
from jobs.runs.folder import RunFolder
from jobs.runs.reading import files, portions
from jobs.tables import ORIGINAL
from retrievers.fusion import takes_part
from retrievers.lists import TOGETHER

PORTION = 2_000_000  # rows of runs/ at a time
TOP_OF_LIST = 10  # documents of a list that are compared with another's


@dataclass(frozen=True)
class Portion:
    """Some shards: the files of each table, possibly none."""

    runs: list[str]
    rewrites: list[str]
    results: list[str]
    candidates: list[str]
    scores: list[str]


def list_portions(run: RunFolder) -> Iterator[Portion]:
    """Yields the committed shards in order, as many at a time as have about `PORTION` rows of runs/."""
    for manifests in portions(run.manifests, "runs", PORTION):
        yield Portion(*(files(run, table, manifests) for table in ("runs", "rewrites", "results", "candidates", "scores")))


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
