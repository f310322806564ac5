"""How much of a block's work each arm needs, and how much no other arm does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np


class Users:
    """Counts, for each of some items (requests, searches or pairs), the arms that need it."""

    def __init__(self, items: int) -> None:
        """Begins without arms; the items are numbered from 0."""
        self._users = np.zeros(items, dtype=np.int32)
        self._added: list[tuple[Collection[str], np.ndarray]] = []

    def add(self, arms: Collection[str], items: np.ndarray) -> None:
        """Notes arms that need these items, each of which is named once; an arm is not added again with one of them."""
        self._users[items] += len(arms)
        self._added.append((arms, items))

    def counts(self, what: str) -> Counter[str]:
        """Returns `arm/<arm>/<what>`, the items of each arm, and `arm/<arm>/alone/<what>`, those that only it needs, if any."""
        counts: Counter[str] = Counter()
        for arms, items in self._added:
            counts.update({f"arm/{arm}/{what}": len(items) for arm in arms})
            alone = int((self._users[items] == 1).sum())  # none where several arms were added together
            if alone:
                (arm,) = arms
                counts[f"arm/{arm}/alone/{what}"] += alone
        return counts
