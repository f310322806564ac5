"""Jobs, who compacts and who forgets, in thousands of orders, on a storage that delays, fails and loses answers."""

from __future__ import annotations

import pytest

from tests.support.jobs.store_actors import Interleaving

FEW, MANY = 20, 2_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, FEW, 10))
def test_no_row_differs_is_lost_or_comes_back(seed: int) -> None:
    for one in range(seed, seed + 10):
        Interleaving(one).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, FEW, 10))
def test_where_nothing_fails_no_file_has_what_was_forgotten(seed: int) -> None:
    """Neither does it need compaction: who puts a file looks for marks afterwards."""
    for one in range(seed, seed + 10):
        Interleaving(one, failures=0.0, kills=0.0).run()


def test_one_seed_has_one_trace() -> None:
    traces = [Interleaving(7).run() for _ in range(2)]
    assert traces[0] == traces[1]
    assert traces[0] != Interleaving(8).run()


@pytest.mark.slow
def test_all_that_may_happen_does() -> None:
    seen = "\n".join("\n".join(Interleaving(seed).run()) for seed in range(100, 110))
    for words in ("begins again: Killed", "fails", "the answer is lost", "merged-", "v1/forgotten/", "delete "):
        assert words in seen


def test_rows_are_found_where_nothing_fails() -> None:
    one = Interleaving(3, failures=0.0, kills=0.0)
    one.run()
    assert one.reused > one.looked_up / 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW, MANY, 97))
def test_two_thousand_orders(seed: int) -> None:
    for one in range(seed, min(MANY, seed + 97)):
        Interleaving(one).run()
        if one % 20 == 0:
            Interleaving(one, failures=0.0, kills=0.0).run()
