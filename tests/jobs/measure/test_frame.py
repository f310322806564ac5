"""The frame of query x arm x measure: its values against ir_measures on exported files, what counts, and oracle arms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cluster.errors import ConfigError
from jobs.log.judgements import Judgements
from jobs.measure import judged_rows
from jobs.measure.comparison import compare
from jobs.measure.frame import measure
from jobs.measure.measures import MEASURES
from tests.support.jobs.run_folders import ablation, arm, ask

QUERIES = [ask(f"q{n}", f"query number{n}", log_count=n + 1) for n in range(5)]
GRADES = {f"Q{n}": {"a": 2, "b": 1, "c": 0} for n in range(5)}
ARMS = [arm("full"), arm("original"), arm("general")]
LISTS = {
    "full": {f"q{n}": ["a", "x", "b"] for n in range(5)},
    "original": {"q0": ["x", "a"], "q1": ["b"], "q2": ["x", "y"], "q3": ["c", "a", "b"]},
    "general": {"q0": ["b"], "q1": ["a", "b"], "q4": ["a"]},
    "not an arm": {"q0": ["a"]},
}
MORE = ["nDCG@10", "RR(rel=2)@3", "AP", "P@5", "Judged@2", "nDCG(dcg='exp-log2')@5"]


def test_condensed_lists_have_no_unjudged_documents(tmp_path: Path) -> None:
    lists = {"full": {"q0": ["x", "y", "a", "b", "x2", "c"]}, "original": {"q0": ["a", "b"]}}
    frame = measure(ablation(tmp_path, ARMS, lists, QUERIES), Judgements("", {"Q0": GRADES["Q0"]}), ["RR@2", "P@2"])
    assert frame.values[0, :, 0].tolist() == [0, 0]
    assert frame.condensed[0, :, 0].tolist() == [1, 1]  # from below the deepest rank, too
    assert (frame.condensed[1] == frame.values[1]).all()
    assert frame.unjudged[:2].tolist() == [1, 0]
    assert np.isnan(frame.unjudged[2])


def test_an_oracle_arm_is_its_best_member_query_by_query(tmp_path: Path) -> None:
    arms = [*ARMS, arm("oracle", "arms", k=1, members=["original", "general"])]
    frame = measure(ablation(tmp_path, arms, LISTS, QUERIES), Judgements("", GRADES), ["nDCG@10", "P@5", "Judged@2"])
    members, oracle = frame.values[1:3], frame.values[3]
    best = members[:, 0].argmax(axis=0)
    assert best.tolist() == [0, 1, 0, 0, 1]
    assert (oracle == np.array([members[place, :, key] for key, place in enumerate(best)]).T).all()
    assert (oracle[1] < members[:, 1].max(axis=0)).sum() == 0
    assert (frame.condensed[3, 0] >= 0).all()
    assert frame.failed[3] == 0  # q2 is the original's, q4 general's
    assert frame.unjudged[3] == pytest.approx(3 / (2 + 2 + 2 + 3 + 1))


def test_keys_of_one_query_have_its_lists_and_share_its_traffic(tmp_path: Path) -> None:
    log = [("l1", "q1"), ("l2", "q1"), ("l3", "q3")]
    grades = {"l1": {"b": 1}, "l2": {"x": 1}, "l3": {"a": 1}}
    frame = measure(ablation(tmp_path, ARMS, LISTS, QUERIES, log), Judgements("", grades), ["RR"])
    assert frame.values[1, 0].tolist() == [1, 0, 0.5]
    assert frame.counts.tolist() == [2, 2, 4]
    assert frame.weights.tolist() == pytest.approx([1 / 6, 1 / 6, 4 / 6])
    assert frame.clusters.tolist() == [0, 0, 1]


def test_earlier_turns_are_words_of_a_query(tmp_path: Path) -> None:
    queries = [
        ask("q0", "and there", context="rain in rome"),
        ask("q1", "and there", context="trains to oslo"),
        ask("q2", "rome"),
    ]
    log = {"path": "none", "query_column": "query", "context_column": "turns"}
    run = ablation(tmp_path, ARMS, LISTS, queries, None, log=log)
    grades = {f"Q{n}": {"a": 1} for n in range(3)}
    assert measure(run, Judgements("", grades), ["RR"]).clusters.tolist() == [0, 1, 2]


def test_rows_come_by_query_arm_and_rank_however_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(ablation(tmp_path / "a", ARMS, LISTS, QUERIES), Judgements("", GRADES), MORE)
    monkeypatch.setattr(judged_rows, "BATCH_ROWS", 1)
    turned = {name: dict(reversed(of.items())) for name, of in reversed(LISTS.items())}
    again = measure(ablation(tmp_path / "b", ARMS, turned, QUERIES, shard_size=1), Judgements("", GRADES), MORE)
    assert (again.values == whole.values).all()
    assert (again.condensed == whole.condensed).all()


def test_hostile_document_ids(tmp_path: Path) -> None:
    lists = {"full": {"q0": ["d\0b", "", "d 1"]}}
    grades = {"Q0": {"d\0a": 1, "": 1, "d 1": -3}}
    frame = measure(ablation(tmp_path, ARMS, lists, QUERIES), Judgements("", grades), ["RR", "P@3", "Judged@3"])
    assert frame.values[0, :, 0].tolist() == pytest.approx([1 / 2, 1 / 3, 2 / 3])


def test_a_run_is_no_ablation(tmp_path: Path) -> None:
    run = ablation(tmp_path, ARMS, LISTS, QUERIES)
    del run.record["ablation"]
    with pytest.raises(ConfigError, match="is a run, which has no arms; give an ablation's folder"):
        compare(run, Judgements("", GRADES), run.config.evaluate)


def test_a_damaged_folder_is_one_line(tmp_path: Path) -> None:
    run = ablation(tmp_path, ARMS, LISTS, QUERIES)
    run.storage.delete(run.manifests[0].files["results"][0].key)
    with pytest.raises(ConfigError, match="the run's tables cannot be read"):
        measure(run, Judgements("", GRADES), MEASURES)
