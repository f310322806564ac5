"""Whether the nodes of a cluster can hold workers, all at once: sums say too little, as no worker spans two nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

UNLIMITED_NODES = 1_000_000  # of a node group without an upper limit
_UNIT = 10_000  # Ray counts parts of a CPU or GPU by ten-thousandths
_TRIALS = 10_000  # some 0.1 to 1 s

_Node = tuple[int, int, tuple[int, ...]]  # what is free: GPUs in all, CPUs, and of each GPU that is not taken whole
_Free = tuple[tuple[_Node, int], ...]  # nodes with equal room, and their number; those with the least room first


class NodeGroup(NamedTuple):
    """Nodes of one kind: their number, and the `cpus` and `gpus` of each."""

    nodes: int
    cpus: float
    gpus: float

    def __str__(self) -> str:
        """Returns the group in words."""
        number = "any number of" if self.nodes >= UNLIMITED_NODES else f"{self.nodes} x"
        return f"{number} ({self.cpus:g} CPU, {self.gpus:g} GPU)"


class Demand(NamedTuple):
    """What one worker takes of a node."""

    cpus: float
    gpus: float


def can_hold(nodes: Sequence[NodeGroup], demands: Sequence[Demand], trials: int = _TRIALS) -> bool | None:
    """Returns whether the nodes can hold the workers all at once; None if that is not known after many trials.

    The first trial is best-fit decreasing, which places the largest worker that is left where the least room remains; then
    other places are tried. A part of a GPU lies within one GPU, as in Ray.

    Args:
        nodes: All nodes.
        demands: One for each worker.
        trials: Places for a worker that are tried, beside one for each.
    """
    wanted = sorted(((round(one.gpus * _UNIT), round(one.cpus * _UNIT)) for one in demands), reverse=True)
    free: Counter[_Node] = Counter()
    for group in nodes:
        if count := min(group.nodes, len(demands)):
            free[_node(round(group.cpus * _UNIT), _gpus(group.gpus))] += count
    if sum(gpus for gpus, _ in wanted) > sum(gpus * count for (gpus, _, _), count in free.items()):
        return False
    if sum(cpus for _, cpus in wanted) > sum(cpus * count for (_, cpus, _), count in free.items()):
        return False
    open_trials: list[tuple[int, _Free]] = [(0, tuple(sorted(free.items())))]
    seen = set(open_trials)
    for _ in range(len(wanted) + 1 + trials):
        if not open_trials:
            return False
        placed, room = open_trials.pop()
        if placed == len(wanted):
            return True
        later = [(placed + 1, after) for after in _placements(room, *wanted[placed])]
        open_trials += [trial for trial in reversed(later) if trial not in seen]
        seen.update(later)
    return None


def reachable(nodes: Sequence[NodeGroup], added: Sequence[NodeGroup]) -> list[NodeGroup]:
    """Returns the nodes that a cluster may come to have.

    `added` are kinds of nodes that its autoscaler may have, each at its largest number; nodes of the kind that are there count.
    """
    most: dict[tuple[float, float], int] = {}
    for group in nodes:
        most[group[1:]] = most.get(group[1:], 0) + group.nodes
    for group in added:
        most[group[1:]] = max(most.get(group[1:], 0), group.nodes)
    return [NodeGroup(count, *kind) for kind, count in most.items() if count]


def _placements(room: _Free, gpus: int, cpus: int) -> Iterator[_Free]:
    """Yields the room that remains for each way to place a worker; the fullest node first."""
    for node, _ in room:
        if node[0] < gpus or node[1] < cpus:
            continue
        for left in _without(node[2], gpus):
            after = Counter(dict(room))
            after[node] -= 1
            after[_node(node[1] - cpus, left)] += 1
            yield tuple(sorted(entry for entry in after.items() if entry[1]))


def _without(free: tuple[int, ...], gpus: int) -> Iterator[tuple[int, ...]]:
    """Yields the free GPUs without those of a worker: whole ones, or a part of one, the fullest first."""
    if gpus >= _UNIT:
        count = gpus // _UNIT
        if free.count(_UNIT) >= count:
            yield free[:-count]
    elif not gpus:
        yield free
    else:
        for part in sorted({part for part in free if part >= gpus}):
            place = free.index(part)
            yield tuple(sorted(value for value in (*free[:place], part - gpus, *free[place + 1 :]) if value))


def _node(cpus: int, gpus: tuple[int, ...]) -> _Node:
    return sum(gpus), cpus, gpus


def _gpus(number: float) -> tuple[int, ...]:
    whole, part = divmod(round(number * _UNIT), _UNIT)
    return ((part,) if part else ()) + (_UNIT,) * whole
