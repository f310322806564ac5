"""Tuning on runs in which it is known what helps: what is learnt, what is said, and that no held-out query chooses."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.measure.frame import measure
from jobs.pages.tune import tuning_values
from jobs.runs.folder import open_run
from jobs.tune import search
from jobs.tune.judged_lists import gather
from jobs.tune.search import RETRIEVERS, STRATEGIES, Objective
from jobs.tune.tune import ALONE, EQUAL, Tuning, conclusions, tune
from tests.support.jobs.tuned_runs import Found, Judged, half, judged_run, names_of, none, only_bm25, permuted


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """All lists are equally good."""
    return judged_run(tmp_path_factory.mktemp("alike"), half, names_of(120))


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """No list is worth anything."""
    return judged_run(tmp_path_factory.mktemp("nothing"), none, names_of(120))


def best_of_all(values: np.ndarray, clusters: np.ndarray, errors: float = 1.0) -> int:
    """A choice without any doubt."""
    return int(np.argmax(values.mean(axis=1)))


def means(tuning: Tuning) -> dict[str, float]:
    return {step.name: step.mean for step in tuning.steps.values()}


def test_where_lists_are_alike_equal_weights_stay(alike: Judged) -> None:
    tuning = tune(*alike)
    assert not tuning.chosen.learnt
    assert tuning.chosen.name == EQUAL
    said = "\n".join(conclusions(tuning))
    assert "tuning does not beat equal weights" in said
    assert "rewriting beats never rewriting: equal weights +" in said


@pytest.mark.parametrize(("name", "good", "count"), [("half", half, 60), ("only_bm25", only_bm25, 80)])
def test_figures_are_frozen(name: str, good: Found, count: int, tmp_path: Path) -> None:
    """As they were when a selection by type was learnt, too."""
    frozen = json.loads((Path(__file__).parents[1] / "measure" / "frozen.json").read_text())["tune"]
    for step in tuning_values(tune(*judged_run(tmp_path, good, names_of(count))), "x")["steps"]:
        *figures, retrievers, strategies = frozen[f"{name}/{step['name']}"]
        to_equal = step["to_equal_weights"] or {}
        own = [step["mean"], *(to_equal.get(of) for of in ("mean", "low", "high", "p"))]
        assert own == [None if one is None else pytest.approx(one, rel=1e-9, abs=1e-9) for one in figures]
        assert step["setting"]["retriever_weights"] == dict(retrievers)
        assert step["setting"]["strategy_ratios"] == dict(strategies)


def test_a_strategy_of_noise_loses_its_weight(tmp_path: Path) -> None:
    def good(draw: Random, name: str, strategy: str, retriever: str) -> bool:
        return strategy != "keyword" and draw.random() < 0.6

    tuning = tune(*judged_run(tmp_path, good, names_of(120)))
    step = tuning.steps[STRATEGIES]
    assert all(setting.weights["keyword"] < 1 for setting in (step.final, *step.of_folds))
    found = tuning.against(step, EQUAL)
    assert found is not None
    assert found.low > 0


@pytest.mark.slow
def test_labels_without_meaning_give_no_held_out_gain(nothing: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that takes the best of its queries whatever its error fits noise; only a leak would show that as a gain."""
    monkeypatch.setattr(search, "as_good_as_the_best", best_of_all)
    held_out, fitted = [], []
    for seed in range(8):
        judgements = permuted(nothing, seed)
        tuning = tune(nothing.run, judgements, seed=seed)
        equal, *learnt = [step for step in tuning.steps.values() if step.name == EQUAL or step.learnt]
        assert [step.name for step in learnt] == [RETRIEVERS, STRATEGIES]
        held_out.append(np.mean([step.mean - equal.mean for step in learnt]))
        objective = Objective(nothing.run.config, gather(nothing.run, judgements, None, "not asked for", 0), judgements)
        fitted.append((objective.values(learnt[-1].final) - objective.values(equal.final)).mean())
    error = np.std(held_out, ddof=1) / np.sqrt(len(held_out))  # of their mean; 24 drawings had a mean of -0.003, error 0.003
    assert abs(np.mean(held_out)) < 3 * error
    assert np.mean(fitted) > 3 * error, "a leak of this size would be seen"
    assert min(fitted) > 0


def test_fixed_steps_are_what_evaluate_measures(alike: Judged) -> None:
    tuning, values = tune(*alike), measure(*alike)
    assert values.arms == ("run", "original")
    assert list(values.query_ids) == sorted(alike.judgements.grades)
    equal, alone = tuning.steps[EQUAL], tuning.steps[ALONE]
    np.testing.assert_allclose(equal.values, values.values[0, 0], atol=1e-12)
    np.testing.assert_allclose(alone.values, values.values[1, 0], atol=1e-12)


def test_a_measure_that_looks_deeper_than_the_lists_reach_is_not_tuned_by(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"R@100: reads 100 documents, and lists end at 50; raise fuse\.depth \(30\).*, or measure R@50"
    ):
        tune(*judged_run(tmp_path, half, names_of(20), evaluate={"measures": ["R@100"]}))


def test_compat_is_what_evaluate_measures_too(tmp_path: Path) -> None:
    """It takes documents without a score for those of score 0, so that lists with scores below it would be turned round."""
    whole = {"depth": 1000, "keep": 1000}
    judged = judged_run(tmp_path, half, names_of(20), evaluate={"measures": ["Compat(p=0.9)"]}, fuse=whole)
    grades = {key: {f"missing {n}": 1 for n in range(3)} | of for key, of in judged.judgements.grades.items()}
    judged = judged._replace(judgements=judged.judgements._replace(grades=grades))
    equal = tune(*judged).steps[EQUAL]
    assert equal.values.any()
    np.testing.assert_allclose(equal.values, measure(*judged).values[0, 0], atol=1e-12)


@pytest.mark.parametrize(("keep", "reranked"), [(100, True), (12, False)])
def test_reranked_where_every_pair_has_a_score(tmp_path: Path, keep: int, reranked: bool) -> None:
    rerank = {"kind": "cross_encoder", "combine": "replace"}
    judged = judged_run(tmp_path, half, names_of(20), rerank=rerank, fuse={"keep": keep})
    tuning = tune(*judged)
    equal = tuning.steps[EQUAL]
    assert any("reranked and ordered" in note for note in tuning.notes) == reranked
    assert any("not reranked" in note for note in tuning.notes) != reranked
    if reranked:
        np.testing.assert_allclose(equal.values, measure(*judged).values[0, 0], atol=1e-12)


def test_an_ablation_is_read_as_its_arm_full(tmp_path: Path) -> None:
    judged = judged_run(tmp_path, half, names_of(20))
    before = means(tune(*judged))
    for path in judged.run.tables["rewrites"]:
        table = pq.read_table(path)
        other = table.set_column(table.schema.get_field_index("weight"), "weight", pa.array([9.0] * len(table)))
        both = [one.append_column("arm", pa.array([arm] * len(one))) for one, arm in ((table, "full"), (other, "full #2"))]
        pq.write_table(pa.concat_tables(both), path)
    assert means(tune(open_run(judged.run.storage.root), judged.judgements)) == before


def test_what_cannot_be_learnt_is_said(tmp_path: Path) -> None:
    judged = judged_run(tmp_path, half, names_of(20), select="classified")
    tuning = tune(*judged)
    assert any("redundancy" in note and "no retriever is dense" in note for note in tuning.notes)


def test_refused_in_one_line(tmp_path: Path, alike: Judged) -> None:
    judged = judged_run(tmp_path, half, names_of(20), keep_runs=False)
    with pytest.raises(ConfigError, match=r"did not keep its lists; run it again with retrieve.keep_runs: true") as refused:
        tune(*judged)
    assert refused.value.code == "run-missing"
    with pytest.raises(ConfigError, match="none of 1 judged query_ids is in the log: the judgements say 'other', the log"):
        tune(alike.run, alike.judgements._replace(grades={"other": {"d": 1}}))
    few = dict(list(alike.judgements.grades.items())[:3])
    with pytest.raises(ConfigError, match="3 different queries are judged, which is fewer than 5 folds"):
        tune(alike.run, alike.judgements._replace(grades=few))
