"""Arms with several seeds: means, deviations, and tests that hold their error rate where seeds are good or bad as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.anova import anova_lm

from jobs.config.config import EvaluateSettings
from jobs.log.judgements import Judgements
from jobs.measure.arrays import Floats
from jobs.measure.compare.comparison import Comparison, compare
from jobs.measure.seeds import with_seeds
from jobs.measure.significance import paired_test
from tests.support.jobs.arms_by_hand import ablation, arm, ask

KEYS = 40
DOCS = [f"d{n}" for n in range(12)]
QUERIES = [ask(f"q{n:02d}", f"{chr(97 + n % 20)}word{n} {n}" + " and some more words" * (n % 2)) for n in range(KEYS)]
GRADES = {row["query_id"].upper(): {"d0": 2, "d1": 1, "d3": 1} for row in QUERIES}


def simulated(random: np.random.Generator, keys: int, seeds: int, of_seed: float) -> Floats:
    """Differences (seeds, keys) with a mean of zero: of keys, of answers, and of seeds as wholes."""
    own = random.normal(0, 0.15, keys) + random.normal(0, 0.1, (seeds, keys))
    return np.asarray(own + random.normal(0, of_seed, (seeds, 1)))


def counted(differences: Floats, clusters: Any = None) -> Any:
    clusters = np.arange(differences.shape[1]) if clusters is None else clusters
    return with_seeds(paired_test(differences.mean(axis=0)[None], clusters), {0: [differences]}, clusters)


@pytest.mark.slow
def test_the_error_is_that_of_a_crossed_design() -> None:
    """Keys and seeds as random factors of a two-way layout: mean squares by statsmodels, Satterthwaite's degrees of freedom."""
    more = 0
    for number in range(30):
        random = np.random.default_rng(number)
        values = simulated(random, 25, 4, 0.05)
        rows = [(f"s{s}", f"k{k}", values[s, k]) for s in range(4) for k in range(25)]
        table = anova_lm(smf.ols("y ~ C(s) + C(k)", pd.DataFrame(rows, columns=["s", "k", "y"])).fit())
        ms_seeds, ms_keys, ms_rest = (table.loc[name, "mean_sq"] for name in ("C(s)", "C(k)", "Residual"))
        found = counted(values)
        if ms_seeds <= ms_rest:  # no variance of seeds as wholes: the paired test of the means
            assert found.p[0] == pytest.approx(stats.ttest_1samp(values.mean(axis=0), 0).pvalue)
            continue
        more += 1
        variance = (ms_keys + ms_seeds - ms_rest) / 100
        freedom = (100 * variance) ** 2 / (ms_keys**2 / 24 + ms_seeds**2 / 3 + ms_rest**2 / 72)
        assert found.error[0] == pytest.approx(np.sqrt(variance))
        assert found.freedom[0] == pytest.approx(freedom)
        p = 2 * stats.t.sf(abs(values.mean()) / np.sqrt(variance), freedom)
        assert found.p[0] == pytest.approx(p)
        reach = stats.t.ppf(0.975, freedom) * np.sqrt(variance)
        assert (found.low[0], found.high[0]) == pytest.approx((values.mean() - reach, values.mean() + reach))
    assert more > 10


@pytest.mark.slow
@pytest.mark.parametrize(("of_seed", "least", "most"), [(0.0, 0.02, 0.065), (0.05, 0.0, 0.075)])
def test_no_difference_is_found_too_often(of_seed: float, least: float, most: float) -> None:
    """1,000 experiments without a difference, 60 keys and 3 seeds; the paired test of the means errs where seeds are wholes."""
    random = np.random.default_rng(11)
    drawn = [simulated(random, 60, 3, of_seed) for _ in range(1_000)]
    share = np.mean([counted(values).p[0] < 0.05 for values in drawn])
    plain = np.mean([stats.ttest_1samp(values.mean(axis=0), 0).pvalue < 0.05 for values in drawn])
    assert least <= share <= most
    assert (plain > 0.2) == (of_seed > 0)


def test_keys_of_one_cluster_are_one_draw_for_seeds_too() -> None:
    values = simulated(np.random.default_rng(3), 30, 3, 0.1)
    doubled, clusters = np.repeat(values, 2, axis=1), np.repeat(np.arange(30), 2)
    one, other = counted(values), counted(doubled, clusters)
    assert (other.mean[0], other.error[0], other.p[0]) == pytest.approx((one.mean[0], one.error[0], one.p[0]))


# ---------------------------------------------------------------- arms

SEEDS = {"full": 3, "general": 3, "rrf": 3, "other": 2}


def made(folder: Path, **settings: Any) -> tuple[Comparison, Any, dict[str, dict[str, list[str]]]]:
    """An ablation whose arm `rrf` shares its second and third answers with `full`."""
    arms = [
        arm("full", seeds=3), arm("full #2", "samples", seed_of="full", also=["rrf #2"]),
        arm("full #3", "samples", seed_of="full", also=["rrf #3"]), arm("original"),
        arm("general", seeds=3), arm("general #2", "samples", seed_of="general"),
        arm("general #3", "samples", seed_of="general"),
        arm("rrf", "arms", seeds=3), arm("other", "arms", seeds=2), arm("other #2", "samples", seed_of="other"),
        arm("best", "arms", k=1, members=["full", "general"]),
    ]  # fmt: skip
    random = np.random.default_rng(8)
    lists = {
        one["name"]: {row["query_id"]: [str(doc) for doc in random.permutation(DOCS)[:9]] for row in QUERIES}
        for one in arms
        if not one["members"]
    }
    run = ablation(folder, arms, lists, QUERIES, shard_size=20)
    measures = ["nDCG@10", "P@5"]
    return compare(run, Judgements("", GRADES), EvaluateSettings(measures=measures, **settings)), run, lists


def by_ir_measures(lists: dict[str, list[str]], measure: str) -> Floats:
    run = [
        ir_measures.ScoredDoc(query_id.upper(), doc_id, 1 / rank)
        for query_id, docs in lists.items()
        for rank, doc_id in enumerate(docs, start=1)
    ]
    qrels = [ir_measures.Qrel(key, doc_id, grade) for key, of in GRADES.items() for doc_id, grade in of.items()]
    values = {one.query_id: one.value for one in ir_measures.iter_calc([ir_measures.parse_measure(measure)], qrels, run)}
    return np.array([values[key] for key in sorted(GRADES)])


def stored_as(name: str) -> list[str]:
    second = "full" if name == "rrf" else name
    return [name, *(f"{second} #{n}" for n in range(2, SEEDS.get(name, 1) + 1))]


@pytest.mark.parametrize("measure", ["nDCG@10", "P@5"])
def test_means_deviations_and_tests_are_over_all_answers(tmp_path: Path, measure: str) -> None:
    found, _, lists = made(tmp_path)
    assert found.frame.arms == ("full", "original", "general", "rrf", "other", "best")
    of = {name: np.stack([by_ir_measures(lists[one], measure) for one in stored_as(name)]) for name in found.frame.arms[:-1]}
    for name, values in of.items():
        one = found.by_arm[name, measure]
        assert one.mean == pytest.approx(values.mean())
        assert one.seeds == len(values)
        assert one.seed_means == pytest.approx(tuple(values.mean(axis=1)) if len(values) > 1 else ())
        if len(values) > 1:
            assert one.deviation == pytest.approx(np.std(values.mean(axis=1), ddof=1))
        if name == "original":
            assert one.deviation is None
            continue
        expected = counted(values - of["original"])
        assert (one.p, one.low, one.high) == pytest.approx((expected.p[0], expected.low[0], expected.high[0]))
    place = found.frame.measures.index(measure)
    chosen = found.frame.values[found.frame.arms.index("best"), place]
    means = found.frame.values[[found.frame.arms.index(name) for name in ("full", "general")], :]
    best = means[:, 0].argmax(axis=0)  # by the first measure, of the means over seeds
    assert chosen.tolist() == pytest.approx(means[best, place, np.arange(KEYS)].tolist())


def test_two_arms_are_paired_by_seed_and_those_of_other_numbers_are_not(tmp_path: Path) -> None:
    found, _, lists = made(tmp_path, baselines={"rrf": "general", "other": "general"}, slices=["words"], pairs=True)
    of = {
        name: np.stack([by_ir_measures(lists[one], "nDCG@10") for one in stored_as(name)])
        for name in ("rrf", "general", "other")
    }
    keys = np.arange(KEYS)
    paired = counted(of["rrf"] - of["general"])
    apart = with_seeds(
        paired_test((of["other"].mean(axis=0) - of["general"].mean(axis=0))[None], keys),
        {0: [of["other"], of["general"]]},
        keys,
    )
    for name, expected in (("rrf", paired), ("other", apart)):
        one = found.by_arm[name, "nDCG@10"]
        assert one.baseline == "general"
        assert (one.p, one.low) == pytest.approx((expected.p[0], expected.low[0]))
    pair = next(one for one in found.pairs if (one.arm, one.other, one.measure) == ("general", "rrf", "nDCG@10"))
    assert (pair.p, pair.high) == pytest.approx((paired.p[0], -paired.low[0]))
    for part in found.slices:  # of a slice the same test over its own keys
        mine = [n for n in range(KEYS) if (n % 2 == 1) == (part.value == "6 and more")]
        test = counted((of["rrf"] - of["general"])[:, mine])
        assert part.keys == len(mine)
        assert (part.tests["rrf"].p, part.tests["rrf"].low) == pytest.approx((test.p[0], test.low[0]))
