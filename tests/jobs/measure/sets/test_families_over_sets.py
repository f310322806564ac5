"""Over sets each arm is tested against its own baseline, and its seeds count, as on one set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cluster.errors import ConfigError
from jobs.config.config import EvaluateSettings
from jobs.log.judgements import Judgements
from jobs.measure.compare.comparison import Comparison, compare
from jobs.measure.sets.over_sets import compare_over_sets
from tests.support.jobs.arms_by_hand import ablation, arm, ask

ARMS = [
    arm("original"), arm("bm25 plain", "arms"), arm("bm25 more", "arms", seeds=3),
    arm("bm25 more #2", "samples", seed_of="bm25 more"), arm("bm25 more #3", "samples", seed_of="bm25 more"),
    arm("both", "arms"),
]  # fmt: skip
DOCS = [f"d{n}" for n in range(12)]


def one_set(folder: Path, number: int, keys: int, **settings: dict[str, str]) -> Comparison:
    queries = [ask(f"q{n:02d}", f"{chr(97 + n % 20)}word{n} {n}") for n in range(keys)]
    random = np.random.default_rng(number)
    lists = {
        one["name"]: {row["query_id"]: [str(doc) for doc in random.permutation(DOCS)[:9]] for row in queries} for one in ARMS
    }
    grades = {row["query_id"].upper(): {"d0": 2, "d1": 1, "d3": 1} for row in queries}
    run = ablation(folder, ARMS, lists, queries, shard_size=20)
    return compare(run, Judgements("", grades), EvaluateSettings(measures=["nDCG@10"], **settings))


def test_each_arm_is_compared_with_its_own_baseline_on_all_sets(tmp_path: Path) -> None:
    of_families = {"baselines": {"bm25*": "bm25 plain"}}
    sets = {name: one_set(tmp_path / name, n, 20 + 10 * n, **of_families) for n, name in enumerate(("first", "second"))}
    found = compare_over_sets(sets)
    assert (found.baselines, found.against) == (["original", "bm25 plain"], "its baseline")
    assert {arm: found.base_of(arm) for arm in found.arms} == {
        "original": "original", "bm25 plain": "bm25 plain", "bm25 more": "bm25 plain", "both": "original"
    }  # fmt: skip
    for name in ("bm25 more", "both"):
        each = [one.by_arm[name, "nDCG@10"] for one in sets.values()]
        over = found.over[name, "nDCG@10"]
        assert over.difference == pytest.approx(np.mean([one.difference for one in each]))
        # errors and degrees of freedom of each set, by its own interval and p, which count its seeds
        tests = [
            one.frame.difference_test([(one.frame.arms.index(name), one.frame.arms.index(found.base_of(name)))], 0)
            for one in sets.values()
        ]
        assert [test.p[0] for test in tests] == pytest.approx([one.p for one in each])
        variances = [float(test.error[0]) ** 2 / 4 for test in tests]
        freedom = sum(variances) ** 2 / sum(part**2 / test.freedom[0] for part, test in zip(variances, tests, strict=True))
        assert over.p == pytest.approx(2 * stats.t.sf(abs(over.difference) / np.sqrt(sum(variances)), freedom))
        assert over.p_holm is not None
    assert {found.over[name, "nDCG@10"].p_holm for name in found.baselines} == {None}
    assert any(note.startswith("over sets: difference to its baseline of the means over sets") for note in found.notes)


def test_another_baseline_on_another_set_is_refused(tmp_path: Path) -> None:
    sets = {
        "first": one_set(tmp_path / "a", 1, 20, baselines={"both": "bm25 plain"}),
        "second": one_set(tmp_path / "b", 2, 20, baselines={"both": "bm25 more"}),
    }
    with pytest.raises(ConfigError, match="bm25 plain is compared with bm25 plain on one set, with original on another"):
        compare_over_sets(sets)


def test_a_baseline_that_has_one_itself_is_a_baseline_of_others(tmp_path: Path) -> None:
    chain = {"baselines": {"bm25 more": "both", "both": "original", "bm25 plain": "original"}}
    found = compare_over_sets({name: one_set(tmp_path / name, n, 20, **chain) for n, name in enumerate(("first", "second"))})
    assert found.of_baselines == {"original": ["bm25 plain", "both"], "both": ["bm25 more"]}
    assert found.against == "its baseline"
    assert found.over["both", "nDCG@10"].p_holm is not None
    assert "compared with both: bm25 more" in found.notes
