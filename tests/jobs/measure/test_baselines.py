"""Arms against another baseline than the original, by scipy and statsmodels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from jobs.config.config import EvaluateSettings
from jobs.log.judgements import Judgements
from jobs.measure.comparison import Comparison, compare
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
BASE = "bm25 plain"
OTHERS = [one["name"] for one in ARMS if one["name"] != BASE]


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


def test_each_arm_is_tested_against_the_baseline(tmp_path: Path) -> None:
    found = made(tmp_path, baseline=BASE)
    for measure in found.frame.measures:
        raw = {}
        for name in OTHERS:
            one = found.by_arm[name, measure]
            assert one.baseline == BASE
            assert one.difference == pytest.approx((values_of(found, name, measure) - values_of(found, BASE, measure)).mean())
            raw[name] = stats.ttest_rel(values_of(found, name, measure), values_of(found, BASE, measure)).pvalue
            assert one.p == pytest.approx(raw[name])
        own = found.by_arm[BASE, measure]
        assert (own.p_holm, own.q, own.difference) == (None, None, 0)
        questions = ["original", "bm25 more", "bm25 most", "both"]
        by_holm = multipletests([raw[name] for name in questions], method="holm")[1]
        assert [found.by_arm[name, measure].p_holm for name in questions] == pytest.approx(by_holm.tolist())
        rates = multipletests([raw["k=1"], raw["k=2"]], method="fdr_bh")[1]
        assert [found.by_arm[name, measure].q for name in ("k=1", "k=2")] == pytest.approx(rates.tolist())


def test_slices_are_tested_against_the_same_baseline(tmp_path: Path) -> None:
    found = made(tmp_path, baseline=BASE, slices=["words", "difficulty"])
    parts = [one for one in found.slices if one.name == "words"]
    assert len(parts) == 2
    raw = []
    for part in parts:
        chosen = [n for n, row in enumerate(QUERIES) if (len(row["query"].split()) < 6) == (part.value == "3-5")]
        assert part.keys == len(chosen)
        assert set(part.tests) == set(OTHERS)
        for name, test in part.tests.items():
            own, base = values_of(found, name)[chosen], values_of(found, BASE)[chosen]
            expected = stats.ttest_rel(own, base)
            assert part.means[name] == pytest.approx((own.mean(), (own - base).mean()))
            assert test[:3] == pytest.approx((*expected.confidence_interval(0.95), expected.pvalue))
            raw.append((test.q, expected.pvalue))
    q, p = zip(*raw, strict=True)
    assert list(q) == pytest.approx(stats.false_discovery_control(p).tolist())
    assert {len(one.tests) for one in found.slices if one.name == "difficulty"} == {0}
