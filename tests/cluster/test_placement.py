"""Workers on nodes, and workers divided among stages: compared with every possibility for small numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.placement import UNLIMITED_NODES, Demand, NodeGroup, can_hold, reachable
from cluster.run.pool_sizes import apportion

GROUPS = st.lists(st.builds(NodeGroup, st.integers(0, 2), st.integers(0, 6), st.integers(0, 3)), max_size=2)
DEMANDS = st.lists(st.builds(Demand, st.sampled_from([0.5, 1, 2, 3]), st.sampled_from([0, 0.3, 0.5, 1, 2])), max_size=5)


def every_placement(nodes: Sequence[NodeGroup], demands: Sequence[Demand]) -> bool:
    """Whether any of all placements is possible, GPU by GPU."""
    machines = [(group.cpus, group.gpus) for group in nodes for _ in range(group.nodes)]
    free = [[round(10 * cpus), *[10] * int(gpus)] for cpus, gpus in machines]

    def place(left: Sequence[Demand]) -> bool:
        if not left:
            return True
        cpus, gpus = round(10 * left[0].cpus), left[0].gpus
        for node in free:
            if node[0] < cpus:
                continue
            part, count = (10, int(gpus)) if gpus >= 1 else (round(10 * gpus), int(gpus > 0))
            for chosen in itertools.combinations(range(1, len(node)), count):
                if all(node[one] >= part for one in chosen):
                    taken = list(node)
                    node[0] -= cpus
                    for one in chosen:
                        node[one] -= part
                    if place(left[1:]):
                        return True
                    node[:] = taken
        return False

    return place(demands)


@settings(max_examples=2 * settings.default.max_examples)
@given(GROUPS, DEMANDS)
def test_it_is_known_of_few_workers_whether_they_fit(nodes: list[NodeGroup], demands: list[Demand]) -> None:
    assert can_hold(nodes, demands) == every_placement(nodes, demands)


@pytest.mark.parametrize(
    ("nodes", "demands", "fit"),
    [
        ([(2, 8, 6)], [(1, 4)] * 3, False),  # twelve GPUs, and each node holds one worker of four
        ([(1, 8, 4)], [(1, 3)] * 2, False),
        ([(1, 8, 2)], [(1, 0.6)] * 3, False),  # a part lies within one GPU
        ([(1, 8, 2)], [(1, 0.5)] * 4, True),
        ([(1, 8, 1)], [(1, 0.5), (1, 0.5)], True),  # an encoder and a reranker share it
        ([(1, 1, 10)], [(0.1, 0.1)] * 10, True),
        ([(1, 10, 0), (1, 7, 0)], [(5, 0), (5, 0), (4, 0), (3, 0)], True),
        ([(1, 10, 0)], [(6, 0), (5, 0)], False),
        ([], [], True),
        ([(UNLIMITED_NODES, 8, 1)], [(1, 1)] * 500, True),
        ([(100, 8, 8)], [(1, 3)] * 200 + [(1, 2)] * 100, True),
        ([(100, 8, 8)], [(1, 3)] * 201, False),
    ],
)
def test_what_fits(nodes: list[tuple[int, float, float]], demands: list[tuple[float, float]], fit: bool) -> None:
    assert can_hold([NodeGroup(*group) for group in nodes], [Demand(*one) for one in demands]) is fit


def test_best_fit_is_not_the_last_word() -> None:
    """Placed largest first where least room remains, 6 + 4 and 4 + 3 leave no room for 3."""
    assert can_hold([NodeGroup(2, 10, 0)], [Demand(cpus, 0) for cpus in (6, 4, 4, 3, 3)]) is True


@pytest.mark.slow
def test_what_would_take_too_long_to_know_is_not_known() -> None:
    demands = [Demand(cpus / 16, 0) for cpus in (51, 53, 55, 57, 59, 61, 63) for _ in range(10)]
    whole = sum(one.cpus for one in demands)
    assert can_hold([NodeGroup(20, whole / 20 + 0.01, 0)], demands) is None


def test_what_may_be_added_counts_as_there() -> None:
    there = [NodeGroup(1, 4, 0)]
    assert reachable(there, []) == there
    assert reachable(there, [NodeGroup(0, 8, 8)]) == there  # a group that is switched off
    assert reachable(there, [NodeGroup(3, 4, 0), NodeGroup(2, 8, 2)]) == [NodeGroup(3, 4, 0), NodeGroup(2, 8, 2)]
    assert reachable([NodeGroup(9, 16, 0)], [NodeGroup(3, 16, 0)]) == [NodeGroup(9, 16, 0)]  # never less than is there


# ---------------------------------------------------------------- apportionment

STAGES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=3)


def throughput(workers: Mapping[str, int], seconds: Mapping[str, float]) -> float:
    return min(workers[stage] / seconds[stage] for stage in seconds)


@settings(max_examples=2 * settings.default.max_examples)
@given(STAGES, st.integers(3, 14))
def test_an_apportionment_is_the_best_of_all(stages: list[tuple[int, int, int]], room: int) -> None:
    """Each stage has seconds per query, a worker's size and a most."""
    seconds = {str(number): float(one[0]) for number, one in enumerate(stages)}
    sizes, most = ({str(number): one[place] for number, one in enumerate(stages)} for place in (1, 2))

    def holds(workers: Mapping[str, int], room: int = room) -> bool:
        return sum(sizes[stage] * workers[stage] for stage in workers) <= room

    found = apportion(seconds, holds, most)
    every = [dict(zip(seconds, counts, strict=True)) for counts in itertools.product(*(range(1, n + 1) for n in most.values()))]
    every = [workers for workers in every if holds(workers)]
    if not every:
        assert found == dict.fromkeys(seconds, 1)  # the caller refuses it
        return
    assert found in every
    best = max(throughput(workers, seconds) for workers in every)
    assert throughput(found, seconds) == best
    # no more than the best takes
    assert sum(found.values()) == min(sum(workers.values()) for workers in every if throughput(workers, seconds) == best)
    more = apportion(seconds, lambda workers: holds(workers, room + 1), most)
    assert all(more[stage] >= found[stage] for stage in seconds)


def test_reranking_has_three_times_the_workers_of_rewriting() -> None:
    seconds = {"rewrite": 1 / 92, "rerank": 1 / 31}  # queries of an H100 a second
    for gpus, expected in ((2, (1, 1)), (4, (1, 3)), (12, (3, 9)), (100, (25, 75))):
        found = apportion(seconds, lambda workers, gpus=gpus: sum(workers.values()) <= gpus, dict.fromkeys(seconds, 1000))  # type: ignore[misc]
        assert tuple(found.values()) == expected
