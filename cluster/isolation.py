"""Finds the row under which workers die: its block is run alone, then in parts, until one row is known.

Several blocks are in flight in a worker, and its death tells nothing of which was at fault. Each of them is then run alone,
one after the other. A block under which a second worker dies alone is run in parts, of which the tracker knows the one in
hand: with the last of `Stage.retries` it is a single row, which is left out if a worker dies under it, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

PATIENCE = 5.0  # seconds; a worker asks several times a second


class Isolation(NamedTuple):
    """A block that was in a worker when it died; rows are counted from 0."""

    deaths: int = 0  # workers that have died with this block alone, since a row was last left out
    row_range: tuple[int, int] | None = None  # the rows that the last one had in hand: the first, and the one behind the last
    left_out: tuple[int, ...] = ()

    def after_death(self, part: tuple[int, int], alone: bool) -> Isolation:
        """Returns the state after another death; `part`: the rows in hand; `alone`: the worker had no other block."""
        if not alone:
            return self
        first, end = part
        if end - first == 1 and self.deaths > 1:  # a first death may have another cause
            return Isolation(left_out=(*self.left_out, first))
        return Isolation(self.deaths + 1, part, self.left_out)

    def parts(self, rows: int, retries: int) -> list[tuple[int, int]]:
        """Returns the parts in which the block is run, in order; they cover all `rows`, and a row left out is one.

        `retries`: further deaths after which a part is to be a single row.
        """
        first, end = self.row_range if self.row_range and self.deaths > 1 else (0, 0)
        step = max(1, math.ceil((end - first) / math.ceil(rows ** (1 / max(1, retries - 1)))))
        edges = {0, rows, first, end, *range(first, end, step)}
        edges |= {edge for row in self.left_out for edge in (row, row + 1)}
        return list(itertools.pairwise(sorted(edges)))


NO_DEATH = Isolation()
Block = tuple[int, int]  # stage and shard


class Isolations:
    """The blocks that are run alone. Not thread-safe: the tracker calls it under its lock."""

    def __init__(self) -> None:
        self.suspected: dict[Block, Isolation] = {}  # with which a worker has died
        self.parts: dict[Block, tuple[int, int]] = {}  # the rows in hand of a block that is run in parts
        self._next: dict[str, tuple[Block, float]] = {}  # worker -> the block that waits to be alone, and when it asked

    def may_start(self, block: Block, worker: str, in_flight: list[Block], now: float) -> bool:
        """Returns True if a worker, with the blocks `in_flight` in any of its stages, may start one now; else it asks again.

        Who has not asked for `PATIENCE` seconds waits no more.
        """
        waiting, asked = self._next.get(worker, (block, now))
        if waiting != block and now - asked < PATIENCE:
            return False
        if any(other in self.suspected for other in in_flight) or (block in self.suspected and in_flight):
            if block in self.suspected:
                self._next[worker] = block, now
            return False
        self._next.pop(worker, None)
        return True

    def died(self, blocks: list[Block], rows: Mapping[int, int]) -> None:
        """Records that a worker has died with these blocks in flight; `rows`: of each shard."""
        for block in blocks:
            part = self.parts.pop(block, (0, rows[block[1]]))
            self.suspected[block] = self.suspected.get(block, NO_DEATH).after_death(part, alone=len(blocks) == 1)

    def forget(self, block: Block) -> None:
        self.suspected.pop(block, None)
        self.parts.pop(block, None)
