"""Counts how much of a block's work each arm needs, and how much no other arm does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.search_texts import Text
from jobs.counts import MadeWork, Work, WorkAlone, arm_key
from jobs.tables import ORIGINAL
from retrievers.lists import TOGETHER
from retrievers.retriever import JoinedText, SearchText

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


def search_counts(
    work: SharedWork,
    key: str,
    routed: Sequence[Mapping[str, list[Text]]],
    stood_in: Sequence[Sequence[SearchText | JoinedText]],
    place: Mapping[SearchText | JoinedText, int],
) -> Counter[str]:
    """Returns the distinct searches of a retriever that each arm needs in a block, and those that only it needs.

    Args:
        work: Of all arms.
        key: Of the retriever.
        routed: Of each search of the arms: name in the arm -> texts.
        stood_in: Of each search: originals that were searched where texts together have no hit.
        place: The number of each distinct search.
    """
    users = Users(len(place))
    for number, search in enumerate(work.searches):
        texts = [text for name, used in search.retrievers.items() if used == key for text in routed[number][name]]
        places = np.array([place[one] for one in [*(text.search for text in texts), *stood_in[number]]], dtype=np.int64)
        if not len(places):
            continue
        strategy = np.array([text.strategy for text in texts] + [TOGETHER] * len(stood_in[number]))
        alike: dict[frozenset[str], list[str]] = {}
        for answer in (one for one in work.answers if one.search == number):
            alike.setdefault(answer.strategies, []).append(answer.arm)
        for strategies, arms in alike.items():
            users.add(arms, np.unique(places[np.isin(strategy, [*strategies, ORIGINAL, TOGETHER])]))
    named = work.retrievers[key].search_names.items()
    return sum((users.counts("searches", f"{counted}@{model or ''}") for counted, model in named), Counter())
