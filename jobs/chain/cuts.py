"""Cuts of ranked lists before fusion, beside `fuse.depth`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.tables import ORIGINAL

if TYPE_CHECKING:
    from jobs.config.config import Config

OwnCuts = Mapping[str, tuple[int | None, float | None]]
"""strategy -> (depth, score floor): of its lists only the first hits with at least this score are fused; None: no such cut."""


@dataclass(frozen=True)
class Cuts:
    """Cuts of lists before fusion, beside `fuse.depth`.

    Attributes:
        strategies: Those of strategies, and of the original.
        floors: Retriever -> score floor of its lists.
    """

    strategies: OwnCuts = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)

    def cut_of(self, strategy: str, retriever: str) -> tuple[int | None, float | None]:
        """Returns the depth limit of a list and the higher of its score floors; None: no limit."""
        depth, own = self.strategies.get(strategy, (None, None))
        return depth, max((one for one in (own, self.floors.get(retriever)) if one is not None), default=None)


def cuts_of(config: Config, strategies: OwnCuts) -> Cuts:
    """Returns the cuts of a config's lists before fusion.

    Args:
        config: With the floors of the original and of retrievers.
        strategies: The cuts of strategies (`rewriters.rewriter.Rewriting.cuts`).
    """
    floor, retrievers = config.fuse.original_floor, config.retrieve.retrievers
    floors = {name: one.score_floor for name, one in retrievers.items() if one.score_floor is not None}
    return Cuts({**strategies, ORIGINAL: (None, floor)} if floor is not None else strategies, floors)


def cut_from(config: Config, cuts: Mapping[str, tuple[int | None, float | None]]) -> int:
    """Returns the fewest documents of a fused list from which something may have been cut off; a shorter one is whole."""
    own = [depth for name, (depth, _) in cuts.items() if depth is not None and name in config.rewrite.planned]
    own += [one.own_depth for one in config.retrieve.retrievers.values() if one.own_depth is not None]
    return min(config.retrieve.depth, config.fuse.depth, *own)
