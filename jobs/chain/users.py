"""Counts how much of a block's work each arm needs, and how much no other arm does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import pyarrow as pa

from jobs.counts import MadeWork, Work, WorkAlone, arm_key
from jobs.tables import unnested

Item = TypeVar("Item")


def pair_counts(table: pa.Table) -> Counter[str]:
    """Returns the pairs of query and text that each arm needs in a block after all rounds, and those that only it needs."""
    needed: dict[str, dict[tuple[int, str], set[str]]] = {}
    rows, pairs = unnested(table, "pairs")
    for row, pair in zip(rows.tolist(), pairs.to_pylist(), strict=True):
        needed.setdefault(pair["component"], {}).setdefault((row, pair["key"]), set()).update(pair["arms"])
    return need_counts("pairs", needed)


def request_counts(
    quantity: str, needed: Mapping[str, Mapping[Item, Collection[str]]], is_reused: Callable[[Item], bool]
) -> Counter[str]:
    """Returns the requests (or searches of the web) that each arm needs, those that only it needs, and how many were made.

    Args:
        quantity: Of work.
        needed: Component -> requests -> the arms that need their answers.
        is_reused: Returns whether an answer was taken from the store.
    """
    counts = need_counts(quantity, needed)
    for component, requests in needed.items():
        counts[MadeWork(quantity, component).key] += sum(not is_reused(key) for key in requests)
    return counts


def need_counts(quantity: str, needed: Mapping[str, Mapping[Item, Collection[str]]]) -> Counter[str]:
    """Returns the items of work that each arm needs, and those that only it needs; `needed`: component -> items -> arms."""
    counts: Counter[str] = Counter()
    for component, items in needed.items():
        every = Counter(arm for arms in items.values() for arm in arms)
        alone = Counter(arm for arms in items.values() if len(arms) == 1 for arm in arms)
        counts.update({arm_key(arm, Work(quantity, component).key): n for arm, n in every.items()})
        counts.update({arm_key(arm, WorkAlone(quantity, component).key): n for arm, n in alone.items()})
    return counts
