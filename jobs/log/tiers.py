"""Two tiers of queries: the head, those asked most often, which hold half of the traffic, and the rest.

The shards of the head come first. A job that its budget or its time ends has then done what most people ask, and left what
hardly anybody asks. Where every query is asked equally often there is one tier.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Cut(NamedTuple):
    """The queries of a range of ids that are the head's: those asked more often than `border`, and `ties` asked as often.

    The ties are the first in order of their ids.
    """

    border: int
    ties: int


def tiers(ranges: Sequence[Mapping[int, int]]) -> tuple[int, list[Cut | None]]:
    """Counts the times that queries were asked, all together, and the cut of each range of ids; None: there is one tier.

    `ranges` has for each range: times asked -> how many queries were.
    """
    asked: Counter[int] = Counter()
    for counts in ranges:
        asked.update(counts)
    traffic = sum(count * queries for count, queries in asked.items())
    if len(asked) < 2:
        return traffic, [None] * len(ranges)
    before, border = 0, 0
    for border in sorted(asked, reverse=True):
        if 2 * (before + border * asked[border]) >= traffic:
            break
        before += border * asked[border]
    ties = -(-(traffic - 2 * before) // (2 * border))
    cuts: list[Cut | None] = []
    for counts in ranges:
        taken = min(ties, counts.get(border, 0))
        ties -= taken
        cuts.append(Cut(border, taken))
    return traffic, cuts


def divided(queries: pa.Table, cut: Cut | None) -> tuple[pa.Table, pa.Table]:
    """Returns the queries of a range that are the head's, and the rest; both in order of their ids."""
    if cut is None:
        return queries.slice(0, 0), queries
    counts = queries.column("log_count").to_numpy()
    tied = counts == cut.border
    head = pa.array((counts > cut.border) | (tied & (np.cumsum(tied) <= cut.ties)))
    return queries.filter(head), queries.filter(pc.invert(head))
