"""The comparison of arms with their baseline: each figure from the frame's values, and what arms cost."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from cluster.costs import Totals
from cluster.prices import Prices
from jobs.config.config import EvaluateSettings
from jobs.log.judgements import Judgements
from jobs.measure.comparison import Comparison, compare
from jobs.measure.costs import ArmCost, arm_costs
from jobs.pages.comparison import comparison_table, comparison_values
from tests.support.jobs.run_folders import Row, ablation, arm, ask, write_folder
from tests.support.jobs.terminals import lines

KEYS = 60

DOCS = [f"d{n}" for n in range(12)]

WORDS = ["amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "inlet", "jetty"]

QUERIES = [ask(f"q{n:02d}", f"{WORDS[n // 10]} {WORDS[n % 10]}ly {n}", log_count=1 + n % 7) for n in range(KEYS)]

GRADES = {row["query_id"].upper(): {"d0": 2, "d1": 1, "d2": 0, "d3": 1} for row in QUERIES}

ARMS = [arm("full"), arm("original"), arm("general"), arm("two", "subsets"), arm("full #2", "samples")]


def lists(names: list[str], seed: int = 0) -> dict[str, dict[str, list[str]]]:
    made = np.random.default_rng(seed)
    return {
        name: {row["query_id"]: [str(doc) for doc in made.permutation(DOCS)[:8]] for row in QUERIES if made.random() > 0.05}
        for name in names
    }


Compare = Callable[..., Comparison]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compare:
    def done(
        arms: list[Row] = ARMS,
        grades: dict[str, dict[str, int]] = GRADES,
        queries: list[Row] = QUERIES,
        found: dict[str, dict[str, list[str]]] | None = None,
        **settings: Any,
    ) -> Comparison:
        found = lists([one["name"] for one in arms if not one["members"]]) | (found or {})
        run = ablation(tmp_path_factory.mktemp("made"), arms, found, queries, shard_size=20)
        return compare(run, Judgements("", grades), EvaluateSettings(**settings))

    return done


@pytest.mark.parametrize("baseline", ["original", "general"])
def test_every_figure_is_of_the_frames_values(compared: Compare, baseline: str) -> None:
    found = compared(measures=["nDCG@10", "P@5"], margin=0.05, baseline=baseline)
    frame = found.frame
    assert [(one.arm, one.measure) for one in found.differences] == [(a, m) for a in frame.arms for m in frame.measures]
    for one in found.differences:
        place = frame.measures.index(one.measure)
        values, base = (frame.values[frame.arms.index(name), place] for name in (one.arm, baseline))
        assert one.mean == pytest.approx(values.mean())
        assert one.weighted_mean == pytest.approx(np.average(values, weights=frame.counts))
        assert one.difference == pytest.approx((values - base).mean())
        assert one.weighted_difference == pytest.approx(np.average(values - base, weights=frame.counts))
        assert (one.wins, one.ties, one.losses) == ((values > base).sum(), (values == base).sum(), (values < base).sum())
        if one.arm == baseline:
            assert (one.p, one.p_holm, one.q, one.p_equivalent) == (1, None, None, 0)
            continue
        assert one.p == pytest.approx(stats.ttest_rel(values, base).pvalue)
        assert one.low < one.difference < one.high


def test_the_grid_has_false_discovery_rates(compared: Compare) -> None:
    grid = [arm(f"k={n}", "grid") for n in range(6)]
    found = compared([*ARMS, *grid], measures=["P@5"])
    rates = [found.by_arm[one["name"], "P@5"] for one in grid]
    assert [one.q for one in rates] == pytest.approx(stats.false_discovery_control([one.p for one in rates]).tolist())
    assert {one.p_holm for one in rates} == {None}
    assert found.by_arm["full", "P@5"].q is None
    sample = found.by_arm["full #2", "P@5"]
    assert (sample.p_holm, sample.q, sample.corrected) == (None, None, None)
    assert any(note.startswith("q is Benjamini and Hochberg's, for 6 arms of the grid") for note in found.notes)


def test_oracles_are_bounds_and_outside_the_families(compared: Compare) -> None:
    arms = [*ARMS, arm("best of two", "arms", k=1, members=["full", "general"])]
    found = compared(arms, measures=["nDCG@10"])
    assert found.oracles == {"best of two"}
    bound = found.by_arm["best of two", "nDCG@10"]
    assert bound.mean > max(found.by_arm[name, "nDCG@10"].mean for name in ("full", "general"))
    assert bound.p_holm is None
    assert next(line for line in lines(comparison_table(found)) if line.startswith("best of two")).split()[-1] == "bound"
    assert any("bounds of what choosing can bring" in note for note in found.notes)


def test_near_duplicate_queries_are_one_cluster(compared: Compare) -> None:
    found = compared(queries=[row | {"query": f"lamp tower{n // 2}"} for n, row in enumerate(QUERIES)], measures=["P@5"])
    assert found.frame.drawn == KEYS / 2
    values = found.frame.values[:, 0]
    pairs = (values[0] - values[1]).reshape(-1, 2).mean(axis=1)  # clusters of one size: the t-test of their means
    assert found.by_arm["full", "P@5"].p == pytest.approx(stats.ttest_1samp(pairs, 0).pvalue)
    assert "60 distinct queries in 30 clusters of near-duplicates" in found.notes[0]


def test_one_query_has_means_and_no_test(compared: Compare) -> None:
    found = compared(grades={"Q00": GRADES["Q00"]}, measures=["P@5"])
    one = found.by_arm["full", "P@5"]
    assert math.isnan(one.p)
    assert (one.p_holm, one.detectable) == (None, None)
    assert any(note.startswith("no interval and no test") for note in found.notes)
    json.dumps(comparison_values(found), allow_nan=False)
    assert next(line for line in lines(comparison_table(found)) if line.startswith("full ")).endswith("- -")


# ---------------------------------------------------------------- what is shown


def test_the_table_is_sorted_and_marked(compared: Compare) -> None:
    found = compared(measures=["nDCG@10", "P@5"])
    shown = lines(comparison_table(found))
    means = {name: found.by_arm[name, "nDCG@10"].mean for name in found.frame.arms}
    ranked = sorted(means, key=lambda name: -means[name])
    assert shown[0] == "nDCG@10 difference 95 % interval seen from p"
    rows = shown[1:6]
    assert [row.startswith(f"{name} {means[name]:.4f}") for row, name in zip(rows, ranked, strict=True)] == [True] * 5
    assert f"{means[ranked[0]]:.4f}" in rows[0]
    assert f"{means[ranked[1]]:.4f}" in rows[1]
    base = rows[ranked.index("original")]
    assert base.endswith("baseline - -")
    second = shown.index("all measures nDCG@10 P@5")
    assert shown[second + 1].startswith(ranked[0])
    assert any(line.startswith("+ better, - worse than original") for line in shown)


def test_a_measure_that_is_zero_throughout_shows_no_equivalence(compared: Compare) -> None:
    found = compared(grades={name: {"nowhere": 1} for name in GRADES}, measures=["P@5"])
    assert {one.mean for one in found.differences} == {0}
    assert all(math.isnan(one.p_equivalent) for one in found.differences if one.arm != one.baseline)
    assert {line.split()[-1] for line in lines(comparison_table(found))[1:6]} == {
        "1.000",
        "-",
    }  # no "="


@pytest.mark.slow
def test_further_names_of_an_arm_are_not_tested_and_parts_are_marked(compared: Compare) -> None:
    strategies = ["general", "keyword"]
    arms = [
        arm("full", also=["k=60"]), arm("original", same_as="full"), arm("general", reads_part_of=strategies), arm("keyword"),
        arm("mine", "arms", same_as="keyword"), arm("k=7", "grid"),
    ]  # fmt: skip
    found = compared(arms)
    adjusted = {one.arm for one in found.differences if one.p_holm is not None}
    assert adjusted == {"general", "keyword"}  # full is the baseline, mine is keyword
    assert found.untested == {"full", "mine"}
    values = {one["arm"]: one for one in comparison_values(found)["arms"]}
    assert values["general"]["reads_part_of"] == strategies
    assert (values["mine"]["same_as"], values["full"]["also"]) == ("keyword", ["k=60"])
    said = lines(comparison_table(found))
    assert any(line.startswith("general §") for line in said)
    text = " ".join(said)
    assert "§ general: texts are parts of the answers to the joint request for general, keyword" in text
    assert "mine is keyword under another name" in text
    assert "full is also k=60" in text
    assert compared(arms, baseline="k=60").baseline == "full"


def test_an_arm_of_the_grid_whose_queries_all_gain_alike_has_no_test(compared: Compare) -> None:
    grid = [arm(f"k={n}", "grid") for n in range(3)]
    alike = {"original": ["d9", "d2"], "k=0": ["d0", "d2"]}
    found = {name: {row["query_id"]: docs for row in QUERIES} for name, docs in alike.items()}
    by_arm = compared([*ARMS, *grid], found=found, measures=["Success@1"]).by_arm
    first, second, third = (by_arm[one["name"], "Success@1"] for one in grid)
    assert (first.difference, first.q) == (1.0, None)
    assert second.q == pytest.approx(stats.false_discovery_control([second.p, third.p])[0])


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

COSTED_ARMS = [arm("full"), arm("original"), arm("a/b"), arm("best", members=["full", "original"])]

COUNTS = {
    "arm/full/requests/dmqr@writer": 5, "arm/full/searches/bm25@": 20, "arm/full/searches/dense@encoder": 10,
    "arm/full/pairs/bi_encoder@small": 40, "arm/full/no_hits": 3, "arm/original/searches/bm25@": 4,
    "arm/a/b/searches/bm25@": 8, "arm/full/alone/pairs/bi_encoder@small": 10, "arm/full/alone/requests/dmqr@writer": 1,
}  # fmt: skip

FULL = 5 * 0.1 + (600 * 10 + 400 * 1 + 50 * 100) / 2 / 1e6 * 1  # USD: 5 s of a device at 360 an hour, tokens of 5 requests

SEARCHES = (20 * 0.05 + 10 * 0.4) * 0.01 + 40 * 0.05 * 0.01

ORIGINAL = 4 * 0.05 * 0.01


def costs(
    folder: Path, counts: dict[str, int] = COUNTS, spent: Totals = SPENT, prices: Prices | None = PRICES
) -> dict[str, ArmCost]:
    run = write_folder(folder, {}, queries=2, arms=COSTED_ARMS, counts=counts, costs=spent)
    return {one["arm"]: one for one in arm_costs(run, prices)[0]}


def test_what_an_arm_needs_at_the_price_of_its_components(tmp_path: Path) -> None:
    found = costs(tmp_path)
    assert list(found) == ["full", "original", "a/b"]  # an oracle cannot be had
    full = found["full"]
    assert (full["requests"], full["searches"], full["pairs"]) == (5, 30, 40)
    quantities = [full["seconds"], full["device_seconds"], full["prompt_tokens"], full["completion_tokens"]]
    assert quantities == pytest.approx([5 + 1 + 4 + 2, 5, 500, 25])
    assert full["standalone_usd"] == pytest.approx(FULL + SEARCHES)
    assert found["original"]["standalone_usd"] == pytest.approx(ORIGINAL)


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
    found = costs(tmp_path, spent=spent)
    assert (found["full"]["seconds"], found["full"]["standalone_usd"]) == (None, None)
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
    found = costs(tmp_path, {})
    assert (found["full"]["seconds"], found["full"]["standalone_usd"]) == (0.0, 0.0)
