"""Counts of what the guards found and did, in the manifests' keys, and their sums over a run.

guard/<strategy>/<flag>         texts with a flag of `rewrites.guards`; over a whole job: `jobs/run/whole_job.py`
left_out/<strategy>/<guard>     texts that a guard left out
unsearched/<strategy>           searches (one per retriever) that near-duplicates left out would have had: none of a text that
                                another text of the query equals, or while other texts of a strategy with `as_one` are searched
override_requests               requests that were not made, since people have written all of their texts
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.config.config import Config

FLAG, LEFT_OUT, UNSEARCHED, REQUESTS = "guard", "left_out", "unsearched", "override_requests"
_NEAR_DUPLICATE = "near_duplicate"


@dataclass(frozen=True)
class GuardCounts:
    """The counts of one guard's finding."""

    name: str
    """A flag, or the reason of what was left out."""
    texts: dict[str, int]
    """Strategy -> number of texts."""
    left_out: bool
    """Whether these texts were left out."""

    @property
    def total(self) -> int:
        """Returns the number of texts of all strategies."""
        return sum(self.texts.values())


def guard_counts(table: pa.Table, rewrites: pa.Table) -> Counter[str]:
    """Returns the counts of one shard.

    Args:
        table: the block, with `guarded`.
        rewrites: its rows of rewrites/.
    """
    counts: Counter[str] = Counter()
    flags = rewrites.column("guards").combine_chunks()
    strategies = rewrites.column("strategy").combine_chunks().take(pc.list_parent_indices(flags))
    for strategy, flag in zip(strategies.to_pylist(), flags.flatten().to_pylist(), strict=True):
        counts[f"{FLAG}/{strategy}/{flag}"] += 1
    for one in table.column("guarded").combine_chunks().flatten().to_pylist():
        counts[f"{LEFT_OUT}/{one['strategy']}/{one['guard']}"] += one["texts"]
        counts[f"{UNSEARCHED}/{one['strategy']}"] += one["unsearched"] if one["guard"] == _NEAR_DUPLICATE else 0
        counts[REQUESTS] += one["requests"]
    return +counts


def found_by_guards(counts: Mapping[str, int]) -> list[GuardCounts]:
    """Returns what the guards of a run found, then what they left out, by name."""
    found: dict[tuple[bool, str], dict[str, int]] = {}
    for key, count in sorted(counts.items()):
        kind, _, rest = key.partition("/")
        strategy, _, name = rest.rpartition("/")
        if kind in (FLAG, LEFT_OUT):
            found.setdefault((kind == LEFT_OUT, name), {})[strategy] = count
    return [GuardCounts(name, texts, left_out) for (left_out, name), texts in sorted(found.items())]


def searches_saved(counts: Mapping[str, int], config: Config) -> int:
    """Returns the number of searches that were saved by leaving out near-duplicates.

    A retriever with `together` saves none: it makes one search of all texts of a query, however many there are. None are known
    where one text of each query is searched: they may not have been that text.

    Args:
        counts: of a run.
        config: its config.
    """
    if config.rewrite.predictor is not None:
        return 0
    retrieve = config.retrieve
    searches = {name: len(one.search_names(name)) for name, one in retrieve.retrievers.items() if not one.together}
    saved = ((key.partition("/")[2], count) for key, count in counts.items() if key.startswith(f"{UNSEARCHED}/"))
    return sum(count * searches.get(name, 0) for strategy, count in saved for name in retrieve.route(strategy))
