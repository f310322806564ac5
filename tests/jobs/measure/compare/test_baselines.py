"""Arms against baselines of their own, and every two arms: by scipy and statsmodels, through what is printed and written."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from cluster.errors import ConfigError
from jobs.config.config import EvaluateSettings
from jobs.job.baselines import MOST_PAIRED, arm_baselines, check_pairs
from jobs.log.judgements import Judgements
from jobs.measure.compare.comparison import Comparison, compare
from tests.support.jobs.arms_by_hand import Row, ablation, arm, ask

KEYS = 45
DOCS = [f"d{n}" for n in range(12)]
WORDS = ["amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "inlet"]
QUERIES = [ask(f"q{n:02d}", f"{WORDS[n // 5]} {WORDS[n % 5]}ly {n}" + " and some more words" * (n % 2)) for n in range(KEYS)]
GRADES = {row["query_id"].upper(): {"d0": 2, "d1": 1, "d2": 0, "d3": 1} for row in QUERIES}
ARMS = [
    arm("original"), arm("bm25 plain", "arms"), arm("bm25 more", "arms"), arm("bm25 most", "subsets"), arm("both", "arms"),
    arm("k=1", "grid"), arm("k=2", "grid"),
]  # fmt: skip
FAMILIES: dict[str, Any] = {"baseline": "original", "baselines": {"bm25*": "bm25 plain"}}
OF = {
    "original": "original", "bm25 plain": "bm25 plain", "bm25 more": "bm25 plain", "bm25 most": "bm25 plain",
    "both": "original", "k=1": "original", "k=2": "original",
}  # fmt: skip


def made(folder: Path, arms: list[Row] = ARMS, **settings: Any) -> Comparison:
    random = np.random.default_rng(5)
    found = {
        one["name"]: {row["query_id"]: [str(doc) for doc in random.permutation(DOCS)[:9]] for row in QUERIES}
        for one in arms
        if not one["members"]
    }
    for row in QUERIES[:30]:  # one arm is clearly better
        found["both"][row["query_id"]] = ["d0", "d1", "d3", *DOCS[4:]]
    run = ablation(folder, arms, found, QUERIES, shard_size=20)
    return compare(run, Judgements("", GRADES), EvaluateSettings(measures=["nDCG@10", "P@5"], **settings))


def values_of(found: Comparison, name: str, measure: str = "nDCG@10") -> np.ndarray:
    frame = found.frame
    return frame.values[frame.arms.index(name), frame.measures.index(measure)]


def test_each_arm_is_tested_against_the_baseline_of_its_family(tmp_path: Path) -> None:
    found = made(tmp_path, **FAMILIES)
    assert {arm: found.base_of(arm) for arm in found.frame.arms} == OF
    for measure in found.frame.measures:
        raw = {}
        for name, base in OF.items():
            one = found.by_arm[name, measure]
            assert one.baseline == base
            assert one.difference == pytest.approx((values_of(found, name, measure) - values_of(found, base, measure)).mean())
            if name == base:
                assert (one.p_holm, one.q, one.difference) == (None, None, 0)
                continue
            raw[name] = stats.ttest_rel(values_of(found, name, measure), values_of(found, base, measure)).pvalue
            assert one.p == pytest.approx(raw[name])
        questions = ["bm25 more", "bm25 most", "both"]  # the comparisons that are made, whatever they are with
        by_holm = multipletests([raw[name] for name in questions], method="holm")[1]
        assert [found.by_arm[name, measure].p_holm for name in questions] == pytest.approx(by_holm.tolist())
        rates = multipletests([raw["k=1"], raw["k=2"]], method="fdr_bh")[1]
        assert [found.by_arm[name, measure].q for name in ("k=1", "k=2")] == pytest.approx(rates.tolist())


def test_slices_are_tested_against_the_same_baselines(tmp_path: Path) -> None:
    found = made(tmp_path, **FAMILIES, slices=["words", "difficulty"])
    parts = [one for one in found.slices if one.name == "words"]
    assert len(parts) == 2
    raw = []
    for part in parts:
        chosen = [n for n, row in enumerate(QUERIES) if (len(row["query"].split()) < 6) == (part.value == "3-5")]
        assert part.keys == len(chosen)
        assert set(part.tests) == {name for name, base in OF.items() if name != base}
        for name, test in part.tests.items():
            own, base = values_of(found, name)[chosen], values_of(found, OF[name])[chosen]
            expected = stats.ttest_rel(own, base)
            assert part.means[name] == pytest.approx((own.mean(), (own - base).mean()))
            assert test[:3] == pytest.approx((*expected.confidence_interval(0.95), expected.pvalue))
            raw.append((test.q, expected.pvalue))
    q, p = zip(*raw, strict=True)
    assert list(q) == pytest.approx(stats.false_discovery_control(p).tolist())
    assert {len(one.tests) for one in found.slices if one.name == "difficulty"} == {0}


@pytest.mark.slow
def test_every_two_arms_and_one_correction_over_all(tmp_path: Path) -> None:
    bound = arm("best", "arms", k=1, members=["both", "bm25 more"])
    again = arm("both again", "arms", same_as="both")
    found = made(tmp_path, [*ARMS, arm("full #2", "samples"), bound, again], **FAMILIES, pairs=True)
    names = [one["name"] for one in ARMS]
    assert len(found.pairs) == 2 * len(names) * (len(names) - 1) / 2
    for measure in found.frame.measures:
        pairs = {(one.arm, one.other): one for one in found.pairs if one.measure == measure}
        assert list(pairs) == list(combinations(names, 2))
        raw = {}
        for arms, one in pairs.items():
            values = [values_of(found, name, measure) for name in arms]
            expected = stats.ttest_rel(*values)
            raw[arms] = expected.pvalue
            assert (one.p, one.low, one.high) == pytest.approx((expected.pvalue, *expected.confidence_interval(0.95)))
            assert one.difference == pytest.approx((values[0] - values[1]).mean())
        questions = [arms for arms in raw if not any(name.startswith("k=") for name in arms)]
        grid = [arms for arms in raw if arms not in questions]
        by_holm = multipletests([raw[arms] for arms in questions], method="holm")[1]
        assert [pairs[arms].p_holm for arms in questions] == pytest.approx(by_holm.tolist())
        assert [pairs[arms].q for arms in grid] == pytest.approx(stats.false_discovery_control([raw[a] for a in grid]).tolist())
        assert found.by_arm["both", measure].p_holm == pairs["original", "both"].p_holm  # one comparison has one p
        assert found.by_arm["k=1", measure].q == pairs["original", "k=1"].q
        assert found.by_arm["bm25 more", measure].p_holm == pairs["bm25 plain", "bm25 more"].p_holm
    assert found.by_arm["both again", "P@5"].p_holm is None
    notes = " ".join(found.notes)
    assert f"p is Holm's, for {len(questions)} pairs of arms" in notes
    assert f"for {len(grid)} pairs with an arm of the grid" in notes


def test_which_arm_has_which_baseline() -> None:
    arms = ["original", "bm25 plain", "bm25 more", "dense"]

    def of(**settings: Any) -> list[str]:
        return list(arm_baselines(EvaluateSettings(**settings), arms, {"k=60": "dense"}).values())

    assert of() == ["original"] * 4
    assert of(baselines={"bm25*": "bm25 plain"}) == ["original", "bm25 plain", "bm25 plain", "original"]
    assert of(baselines={"bm25 more": "bm25 plain"}) == ["original", "bm25 plain", "bm25 plain", "original"]
    assert of(baselines={"bm25 plain": "original", "bm25*": "bm25 plain"})[1:3] == ["original", "bm25 plain"]
    assert of(baselines={"original": "k=60"})[0] == "dense"
    assert of(baseline="nothing", baselines={"*": "dense"}) == ["dense"] * 4  # not asked for
    with pytest.raises(ConfigError, match=r"evaluate\.baseline: 'orginal' is no arm; did you mean 'original'"):
        of(baseline="orginal")
    with pytest.raises(
        ConfigError, match=r"evaluate\.baseline: 'original' is no arm \(known: full, bm25\); set evaluate\.baseline to one of"
    ):
        arm_baselines(EvaluateSettings(), ["full", "bm25"])
    with pytest.raises(ConfigError, match=r"evaluate\.baselines: bm25\*: 'bm25 plan' is no arm; did you mean 'bm25 plain'"):
        of(baselines={"bm25*": "bm25 plan"})
    with pytest.raises(ConfigError, match=r"evaluate\.baselines: no arm is called 'bm52\*'"):
        of(baselines={"bm52*": "original"})
    check_pairs(EvaluateSettings(pairs=True), MOST_PAIRED)
    with pytest.raises(ConfigError, match=r"evaluate\.pairs: 61 arms are 1,830 pairs, and 60 arms are the most"):
        check_pairs(EvaluateSettings(pairs=True), MOST_PAIRED + 1)
