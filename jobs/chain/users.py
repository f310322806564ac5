"""Counts how much of a block's work each arm needs, and how much no other arm does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import numpy as np

from jobs.counts import MadeWork, Work, WorkAlone, arm_key

Item = TypeVar("Item")


class Users:
    """Counts, for each of some items (requests, searches or pairs), the arms that need it."""

    def __init__(self, items: int) -> None:
        self._users = np.zeros(items, dtype=np.int32)
        self._added: list[tuple[Collection[str], np.ndarray]] = []

    def add(self, arms: Collection[str], items: np.ndarray) -> None:
        """Notes arms that need these items, each of which is named once; an arm is not added again with one of them."""
        self._users[items] += len(arms)
        self._added.append((arms, items))

    def counts(self, quantity: str, component: str) -> Counter[str]:
        """Returns the items of each arm as its work, and those that only it needs, if any."""
        counts: Counter[str] = Counter()
        for arms, items in self._added:
            counts.update({arm_key(arm, Work(quantity, component).key): len(items) for arm in arms})
            alone = int((self._users[items] == 1).sum())  # none where several arms were added together
            if alone:
                (arm,) = arms
                counts[arm_key(arm, WorkAlone(quantity, component).key)] += alone
        return counts


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
        users, by_arm = Users(len(items)), dict[str, list[int]]()
        for number, arms in enumerate(items.values()):
            for arm in arms:
                by_arm.setdefault(arm, []).append(number)
        for arm, numbers in sorted(by_arm.items()):
            users.add([arm], np.array(numbers))
        counts.update(users.counts(quantity, component))
    return counts
