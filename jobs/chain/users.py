"""Counts the work of a block that each arm needs, and that no other arm does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeVar

import pyarrow as pa

from jobs.counts import QUANTITIES, Work, WorkAlone, WorkElsewhere, arm_key
from jobs.tables import unnested

Item = TypeVar("Item")


def needed_counts(table: pa.Table) -> Counter[str]:
    """Returns the work in a block that each arm needs, and what only it needs, of the searches of the web and of pairs.

    Each counts once for an arm, where it needs it first; as `WorkElsewhere` where another arm's earlier stage has made it.
    """
    counts: Counter[str] = Counter()
    needs: Counter[tuple[str, tuple[str, ...]]] = Counter()  # kind and arms -> items: arms share most of what they need
    made_as: dict[str, tuple[str, str]] = {}
    users: dict[str, set[str]] = {}
    order = list(QUANTITIES)
    for one in sorted(unnested(table, "needed")[1].to_pylist(), key=lambda one: order.index(one["quantity"])):
        made = made_as.setdefault(one["key"], (one["quantity"], one["component"]))
        known = users.setdefault(one["key"], set())
        kind = Work(*made) if one["quantity"] == made[0] else WorkElsewhere(one["quantity"], *made)
        needs[kind.key, tuple(arm for arm in one["arms"] if arm not in known)] += 1
        known.update(one["arms"])
    needs.update((WorkAlone(*made_as[key]).key, tuple(arms)) for key, arms in users.items() if len(arms) == 1)
    for (kind_key, arms), number in needs.items():
        counts.update({arm_key(arm, kind_key): number for arm in arms})
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
