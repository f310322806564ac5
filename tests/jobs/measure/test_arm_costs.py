"""The cost of arms: what they need, at what the work of the ablation has cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.costs import Totals
from cluster.prices import Prices
from jobs.measure.costs import ArmCost, arm_costs
from tests.support.jobs.run_folders import arm, write_folder

PRICES = Prices(
    cpu_worker_hour=36.0, device_hour=360.0, tokens={"writer": {"prompt": 10.0, "cached": 1.0, "completion": 100.0}}
)
SPENT: Totals = {
    "rewrite": {
        "dmqr@writer": {
            "seconds": 10.0, "device_seconds": 10.0, "requests": 10, "prompt_tokens": 1000, "cached_tokens": 400,
            "completion_tokens": 50,
        },
        "start_up@writer": {"seconds": 99.0, "requests": 1},
    },
    "retrieve": {"bm25@": {"seconds": 2.0, "searches": 40, "reused": 7}, "dense@encoder": {"seconds": 8.0, "searches": 20}},
    "rerank": {"bi_encoder@small": {"seconds": 5.0, "pairs": 100}},
    "fuse": {"@": {"seconds": 50.0}},
}  # fmt: skip
ARMS = [arm("full"), arm("original"), arm("a/b"), arm("best", members=["full", "original"])]
COUNTS = {
    "arm/full/requests/dmqr@writer": 5, "arm/full/searches/bm25@": 20, "arm/full/searches/dense@encoder": 10,
    "arm/full/pairs/bi_encoder@small": 40, "arm/full/no_hits": 3, "arm/original/searches/bm25@": 4,
    "arm/a/b/searches/bm25@": 8, "arm/full/alone/pairs/bi_encoder@small": 10, "arm/full/alone/requests/dmqr@writer": 1,
}  # fmt: skip
FULL = 5 * 0.1 + (600 * 10 + 400 * 1 + 50 * 100) / 2 / 1e6 * 1  # USD: 5 s of a device at 360 an hour, tokens of 5 requests
SEARCHES = (20 * 0.05 + 10 * 0.4) * 0.01 + 40 * 0.05 * 0.01
ORIGINAL = 4 * 0.05 * 0.01


def costs(
    folder: Path, counts: dict[str, int] = COUNTS, spent: Totals = SPENT, prices: Prices | None = PRICES, **gains: float
) -> dict[str, ArmCost]:  # fmt: skip
    run = write_folder(folder, {}, queries=2, arms=ARMS, counts=counts, costs=spent)
    return {one["arm"]: one for one in arm_costs(run, prices, gains)}


def test_what_an_arm_needs_at_the_price_of_its_components(tmp_path: Path) -> None:
    found = costs(tmp_path, full=0.2, original=0.0)
    assert list(found) == ["full", "original", "a/b"]  # an oracle cannot be had
    full = found["full"]
    assert (full["requests"], full["searches"], full["pairs"]) == (5, 30, 40)
    quantities = [full["seconds"], full["device_seconds"], full["prompt_tokens"], full["completion_tokens"]]
    assert quantities == pytest.approx([5 + 1 + 4 + 2, 5, 500, 25])
    assert full["standalone_usd"] == pytest.approx(FULL + SEARCHES)
    assert found["original"]["standalone_usd"] == pytest.approx(ORIGINAL)
    assert full["gain_per_usd"] == pytest.approx(0.2 / (FULL + SEARCHES))
    assert (found["original"]["gain_per_usd"], found["a/b"]["gain_per_usd"]) == (0.0, None)


def test_a_request_costs_all_of_its_attempts(tmp_path: Path) -> None:
    counts = COUNTS | {"arm/full/requests/dmqr@writer": 5, "made/requests/dmqr@writer": 5}  # 10 attempts at 5 requests
    full = costs(tmp_path, counts)["full"]
    assert (full["requests"], full["prompt_tokens"], full["completion_tokens"]) == (5, 1000, 50)


def test_marginal_is_what_no_other_arm_needs(tmp_path: Path) -> None:
    found = costs(tmp_path)
    full = found["full"]
    assert (full["alone_requests"], full["alone_searches"], full["alone_pairs"]) == (1, 0, 10)
    assert full["marginal_usd"] == pytest.approx(FULL / 5 + 10 * 0.05 * 0.01)
    assert (found["original"]["alone_searches"], found["original"]["marginal_usd"]) == (0, 0.0)


def test_a_component_that_was_only_reused_has_no_cost(tmp_path: Path) -> None:
    spent = SPENT | {"retrieve": {"bm25@": SPENT["retrieve"]["bm25@"], "dense@encoder": {"reused": 20}}}
    found = costs(tmp_path, spent=spent, full=0.2)
    assert (found["full"]["seconds"], found["full"]["standalone_usd"], found["full"]["gain_per_usd"]) == (None, None, None)
    assert (found["full"]["searches"], found["full"]["marginal_usd"]) == (30, pytest.approx(FULL / 5 + 0.005))
    assert found["original"]["standalone_usd"] == pytest.approx(ORIGINAL)


def test_models_of_a_request_are_told_apart(tmp_path: Path) -> None:
    rewrite: dict[str, dict[str, float]] = SPENT["rewrite"] | {
        "dmqr@other": {"seconds": 40.0, "requests": 10},
        "dmqr@": {"requests": 2},  # sent by a killed attempt: no model is known
    }
    counts = {"arm/full/requests/dmqr@other": 5, "arm/a/b/requests/dmqr@writer": 5}
    found = costs(tmp_path, counts, SPENT | {"rewrite": rewrite})
    assert found["full"]["seconds"] == pytest.approx(20.0)
    assert found["a/b"]["seconds"] == pytest.approx(5.0)


def test_an_arm_that_needs_nothing_costs_nothing(tmp_path: Path) -> None:
    found = costs(tmp_path, {}, full=0.2)
    assert (found["full"]["seconds"], found["full"]["standalone_usd"], found["full"]["gain_per_usd"]) == (0.0, 0.0, None)
