"""Tuning on runs in which it is known what helps: lists that are read, what is learnt, and that no held-out query chooses."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cluster.errors import ConfigError
from jobs.log.judgements import Judgements
from jobs.measure.frame import measure
from jobs.pages.tune import tuning_values
from jobs.runs.folder import open_run
from jobs.tune import judged_lists as module
from jobs.tune import search
from jobs.tune.judged_lists import gather
from jobs.tune.search import (
    RETRIEVERS,
    STRATEGIES,
    Objective,
    as_good_as_the_best,
    chosen_values,
    draw_folds,
    equal_weights,
)
from jobs.tune.tune import ALONE, EQUAL, Tuning, _compared, conclusions, tune
from retrievers.fusion import fuse
from retrievers.retriever import SearchText
from tests.support.jobs.run_folders import Query, RunMaker, arm, query_id, stored
from tests.support.jobs.tuned_runs import Found, Judged, half, judged_run, names_of, none, only_bm25, permuted


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """All lists are equally good."""
    return judged_run(tmp_path_factory.mktemp("alike"), half, names_of(120))


def means(tuning: Tuning) -> dict[str, float]:
    return {step.name: step.mean for step in tuning.steps.values()}


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
    assert tuning.chosen.name == STRATEGIES
    assert "tuning beats equal weights: +" in "\n".join(conclusions(tuning))


@pytest.mark.slow
def test_labels_without_meaning_give_no_held_out_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that takes the best of its queries whatever its error fits noise; only a leak would show that as a gain."""
    monkeypatch.setattr(search, "as_good_as_the_best", best)
    nothing = judged_run(tmp_path, none, names_of(120))
    held_out, fitted = [], []
    for seed in range(8):
        judgements = permuted(nothing, seed)
        tuning = tune(nothing.run, judgements, seed=seed)
        equal, *learnt = [step for step in tuning.steps.values() if step.name == EQUAL or step.of_folds]
        assert [step.name for step in learnt] == [RETRIEVERS, STRATEGIES]
        held_out.append(np.mean([step.mean - equal.mean for step in learnt]))
        objective = Objective(nothing.run.config, gather(nothing.run, judgements, "not asked for", 0), judgements)
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
    judged.run.record["ablation"] = {"arms": [arm("full", strategies=judged.run.config.rewrite.planned)]}
    assert means(tune(*judged)) == before


def test_what_cannot_be_learnt_is_said(tmp_path: Path) -> None:
    tuning = tune(*judged_run(tmp_path, half, names_of(20)))
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


@pytest.mark.parametrize("fusion", [{"method": "rrf", "k": 60}, {"method": "minmax", "depth": 4}, {"method": "weighted"}])
def test_fused_again_it_is_the_run(tmp_path: Path, fusion: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 7)
    judged = judged_run(tmp_path, half, names_of(30), fuse=fusion)
    gathered = gather(judged.run, judged.judgements, "none", 0)
    assert [len(block.hits.pair_offsets) > 1 for block in gathered.blocks] == [True] * 5
    settings = equal_weights(judged.run.config, gathered)
    again: dict[str, list[str]] = {}
    names = iter(gathered.query_ids)
    for block in gathered.blocks:
        fused = fuse(block.hits, settings, block.similarity)
        for begin, end in zip(fused.offsets[:-1], fused.offsets[1:], strict=True):
            again[next(names)] = fused.doc_ids[begin:end].to_pylist()
    before: dict[str, list[str]] = {}
    for row in sorted(stored(judged.run, "results"), key=lambda row: row["rank"]):
        before.setdefault(row["query_id"], []).append(row["doc_id"])
    assert again == before


def test_cuts_of_a_strategy_hold(tmp_path: Path) -> None:
    rewrite = {"engine": {"kind": "recorded", "path": "r.jsonl"}, "strategies": [{"general": {"depth": 2, "name": "short"}}]}
    query = Query("tea", {"short": "green tea"}, hits={("original", "bm25"): ["a"], ("short", "bm25"): ["b", "c", "d"]})
    run = RunMaker(tmp_path)([query], ("short",), rewrite=rewrite)
    run.record["identity"] = {"rewrite": {"rewriter": {"strategies": [{"name": "short", "depth": 2}]}}}
    gathered = gather(run, Judgements("q", {query_id(0): {"a": 1}}, "query_id"), "none", 0)
    (block,) = gathered.blocks
    assert block.hits.doc_ids.to_pylist() == ["a", "b", "c"]
    assert gathered.own_weights == {"original": 1.0, "short": 1.0}


def test_the_original_is_encoded_as_it_was_searched(tmp_path: Path) -> None:
    heard: list[str] = []

    class Hearing:
        def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
            heard.extend(one.text for one in texts)
            return np.eye(len(texts), dtype=np.float32)

    name = "a lighthouse and its keeper"
    query = Query(name, {"general": "the lamp"}, hits={("original", "bm25"): ["a"], ("general", "bm25"): ["b"]})
    retrieve = {"retrievers": {"bm25": {"kind": "local", "index": "nowhere"}}}
    run = RunMaker(tmp_path)([query], ("general",), retrieve=retrieve)
    gather(run, Judgements("q", {query_id(0): {"a": 1}}, "query_id"), Hearing(), 0)
    assert heard == [name, "the lamp"]


def test_of_many_judged_queries_some_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_QUERIES", 12)
    judged = judged_run(tmp_path, half, names_of(30))
    one, again, other = (gather(judged.run, judged.judgements, "none", seed) for seed in (0, 0, 1))
    assert len(one.query_ids) == 12
    assert one.query_ids == again.query_ids != other.query_ids
    assert one.notes == ("12 of 30 judged queries were drawn (--seed)",)


def test_a_query_counts_once_whatever_is_judged_of_it(tmp_path: Path) -> None:
    queries = [Query("tea", hits={("original", "bm25"): ["a", "b"]}), Query("bread", hits={("original", "bm25"): ["c"]})]
    run = RunMaker(tmp_path)(queries, ("general",))
    judgements = Judgements("q", {query_id(0): {"b": 1}, query_id(1): {"c": 1}, "other": {"a": 1}}, "query_id")
    gathered = gather(run, judgements, "none", 0)
    two = module.GatheredQueries(
        **{name: getattr(gathered, name) for name in gathered.__dataclass_fields__} | {"keys": (("l1", "l2"), ("l3",))}
    )
    grades = {"l1": {"a": 1}, "l2": {"b": -1, "none": 2}, "l3": {"c": 1}}
    objective = Objective(run.config, two, Judgements("q", grades))
    assert objective.values(equal_weights(run.config, two)) == pytest.approx([0.5, 1.0])
    assert gathered.notes == ("left out of what is judged: 1 not in the log",)
    assert pa.types.is_string(gathered.blocks[0].hits.doc_ids.type)


def test_queries_after_other_turns_are_no_near_duplicates(tmp_path: Path) -> None:
    """The clusters are those of `ablate`: by the words of earlier turns, too."""
    judged = judged_run(tmp_path, half, ["and there", "and  there", "and there"])
    (queries,) = judged.run.tables["queries"]
    table = pq.read_table(queries)
    turns = pa.array(["rain in rome", "trains to oslo", "trains to oslo"])
    pq.write_table(table.append_column("context", turns), queries)
    assert gather(open_run(judged.run.storage.root), judged.judgements, "none", 0).clusters.tolist() == [0, 1, 1]


QUERIES, STEPS, TUNINGS = 100, 6, 1500


def simulated(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Never rewriting, and steps, all of independent noise: the unfavourable case."""
    values = np.random.default_rng(number).random((STEPS + 1, QUERIES))
    return values[0], values[1:]


def best(values: np.ndarray, clusters: np.ndarray, errors: float = 1.0) -> int:
    """A choice without any doubt."""
    return int(np.argmax(values.mean(axis=1)))


def test_what_choosing_is_worth_has_no_bias() -> None:
    clusters, found, maximum = np.arange(QUERIES), [], []
    for number in range(TUNINGS):
        alone, steps = simulated(number)
        chosen = chosen_values(steps, draw_folds(clusters, 5, number), clusters, best)
        found.append((chosen - alone).mean())
        maximum.append((steps[best(steps, clusters)] - alone).mean())
    error = np.std(found) / np.sqrt(TUNINGS)
    assert abs(np.mean(found)) < 3 * error
    assert np.mean(maximum) > 10 * error


def test_a_true_best_step_is_found() -> None:
    values = np.random.default_rng(1).random((3, QUERIES)) + np.array([[0.0], [0.0], [0.5]])
    clusters = np.arange(QUERIES)
    assert np.array_equal(chosen_values(values, draw_folds(clusters, 5, 0), clusters, best), values[2])


@given(st.integers(0, 50))
def test_the_first_within_a_standard_error_of_the_best_is_taken(seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 1, (6, 25)).cumsum(axis=0) / 3
    chosen, top = as_good_as_the_best(values, np.arange(25)), values[values.mean(axis=1).argmax()]

    def within(option: np.ndarray) -> bool:
        return bool((top - option).mean() <= stats.sem(top - option))

    assert within(values[chosen]) or (values[chosen] == top).all()
    assert not any(within(option) for option in values[:chosen])


def test_where_all_gain_alike_nothing_is_said_to_be_beaten_or_not() -> None:
    assert _compared(np.full(30, 1.0), np.arange(30), EQUAL) == (
        "tuning against equal weights: +1.0000 for every query, so there is no test"
    )


@given(st.lists(st.integers(0, 40), min_size=20, max_size=80), st.integers(2, 6), st.integers(0, 3))
def test_folds_hold_whole_clusters_and_are_even(numbers: list[int], count: int, seed: int) -> None:
    clusters = np.unique([*numbers, *range(41, 48)], return_inverse=True)[1]
    folds = draw_folds(clusters, count, seed)
    assert set(folds.tolist()) == set(range(count))
    for cluster in set(clusters.tolist()):
        assert len(set(folds[clusters == cluster].tolist())) == 1
    sizes = np.bincount(folds)
    assert sizes.max() - sizes.min() <= np.bincount(clusters).max()
    assert (folds == draw_folds(clusters, count, seed)).all()
    assert (draw_folds(np.arange(50), 5, seed) != draw_folds(np.arange(50), 5, seed + 1)).any()
