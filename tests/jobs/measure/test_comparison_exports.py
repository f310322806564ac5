"""What a comparison gives to other tools: CSV and Parquet, TREC run files."""

from __future__ import annotations

import csv
import io
import re
from itertools import pairwise
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from jobs.measure.comparison import Comparison
from jobs.measure.export.tables import write_long
from jobs.measure.export.trec import run_tags, write_trec
from tests.support.jobs.report_ablations import ARMS, MEASURES, ArmOf, ablation_at, comparison_of, query_id, values_of

# ---------------------------------------------------------------- values


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_every_value_is_a_row(tmp_path: Path, ending: str) -> None:
    comparison = comparison_of(ARMS, values_of(ARMS, 5), queries=(None,) * 5, query_ids=("q0", "q1", "q2", "q3", None))
    path = tmp_path / f"values.{ending}"
    write_long(str(path), comparison.frame)
    rows = list(csv.DictReader(path.open(newline=""))) if ending == "csv" else pq.read_table(path).to_pylist()
    frame = comparison.frame
    assert list(rows[0]) == ["key", "query_id", "arm", "measure", "value"]
    assert len(rows) == frame.values.size
    found = {(row["arm"], row["measure"], row["key"]): float(row["value"]) for row in rows}
    for a, arm in enumerate(frame.arms):
        for m, measure in enumerate(frame.measures):
            for k, key in enumerate(frame.keys):
                assert found[arm, measure, key] == frame.values[a, m, k]
    assert {row["key"]: row["query_id"] or None for row in rows} == dict(zip(frame.keys, frame.query_ids, strict=True))


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither Parquet nor CSV"):
        write_long(str(tmp_path / "a.txt"), comparison_of(ARMS, values_of(ARMS, 5)).frame)


# ---------------------------------------------------------------- TREC run files

DOCS = [f"d{n}#x" for n in range(12)]
JUDGED = {f"k{n}": {DOCS[(n * 5 + place) % 12]: place for place in range(4)} for n in range(6)}  # key -> doc_id -> grade


def an_ablation(folder: Path) -> tuple[Comparison, dict[str, dict[str, list[str]]], list[ArmOf]]:
    """An ablation whose values are ir_measures' of its lists; `best` chooses between two arms by the first measure."""
    arms = [ArmOf("original", "always", ()), ArmOf("one/two", effect=0.1), ArmOf("empty")]
    random = np.random.default_rng(0)
    lists = {arm.name: {f"k{n}": list(random.permutation(DOCS)[:10]) for n in range(6)} for arm in arms[:2]}
    lists["original"].pop("k5")  # a query without results
    lists["empty"] = {}
    values = np.stack([measured(lists[arm.name]) for arm in arms])
    chosen = values[:2, 0].argmax(axis=0)
    arms.append(ArmOf("best", members=("original", "one/two")))
    values = np.concatenate([values, np.stack([values[arm, :, key] for key, arm in enumerate(chosen)], axis=-1)[None]])
    lists["best"] = {
        key: docs for n, key in enumerate(JUDGED) if (docs := lists[arms[chosen[n]].name].get(key)) is not None
    }  # fmt: skip
    return comparison_of(arms, values), lists, arms


def measured(lists: dict[str, list[str]]) -> np.ndarray:
    ranked = {key: {doc: -float(place) for place, doc in enumerate(docs)} for key, docs in lists.items()}
    if not ranked:
        return np.zeros((len(MEASURES), len(JUDGED)))
    return by_key(ir_measures.iter_calc([ir_measures.parse_measure(name) for name in MEASURES], JUDGED, ranked))


def by_key(found: object) -> np.ndarray:
    values = np.zeros((len(MEASURES), len(JUDGED)))
    for one in found:  # type: ignore[attr-defined]
        values[MEASURES.index(str(one.measure)), list(JUDGED).index(one.query_id)] = one.value
    return values


def test_run_files_give_the_same_measures(tmp_path: Path) -> None:
    comparison, lists, arms = an_ablation(tmp_path)
    stored = [(query_id(int(key[1:])), arm, docs) for arm in ("original", "one/two") for key, docs in lists[arm].items()]
    run = ablation_at(tmp_path, arms, stored)
    paths = write_trec(str(tmp_path / "runs"), run, comparison.frame)
    assert set(paths) == {arm.name for arm in arms}
    for number, arm in enumerate(comparison.frame.arms):
        rows = Path(paths[arm]).read_text().splitlines()
        read = list(ir_measures.read_trec_run(io.StringIO("\n".join(rows))))
        wanted = lists[arm]
        assert {key: [one.doc_id for one in read if one.query_id == key] for key in wanted} == wanted
        if read:
            judged = [ir_measures.Qrel(key, doc, grade) for key, of in JUDGED.items() for doc, grade in of.items()]
            values = by_key(ir_measures.iter_calc([ir_measures.parse_measure(name) for name in MEASURES], judged, read))
            assert np.array_equal(values, comparison.frame.values[number])
        for before, after in pairwise(read):
            assert before.query_id != after.query_id or before.score > after.score
        assert {row.split()[-1] for row in rows} <= {Path(paths[arm]).stem}


def test_where_keys_are_texts_a_topic_is_the_query(tmp_path: Path) -> None:
    arms = [ArmOf("original", "always", ())]
    further = {"keys": ("two words", "other words", "rejected"), "query_ids": (query_id(0), query_id(1), None), "key": "query"}
    comparison = comparison_of(arms, values_of(arms, 3), queries=("", "", None), **further)
    run = ablation_at(tmp_path, arms, [(query_id(n), "original", ["d1"]) for n in range(3)])
    path = write_trec(str(tmp_path / "runs"), run, comparison.frame)["original"]
    assert [one.query_id for one in ir_measures.read_trec_run(path)] == [query_id(0), query_id(1)]


def test_an_id_with_white_space_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    arms = [ArmOf("original", "always", ())]
    run = ablation_at(tmp_path, arms, [(query_id(0), "original", ["a doc"])])
    with pytest.raises(ConfigError, match="'a doc' has white space"):
        write_trec(str(tmp_path / "runs"), run, comparison_of(arms, values_of(arms, 1)).frame)
    assert list((tmp_path / "runs").iterdir()) == []


@given(st.lists(st.text(min_size=1, max_size=130), unique=True, max_size=8))
def test_any_arm_has_a_file_of_its_own(arms: list[str]) -> None:
    tags = run_tags(arms)
    assert len({tag.lower() for tag in tags.values()}) == len(arms)
    for tag in tags.values():
        assert re.fullmatch(r"[A-Za-z0-9_+=][A-Za-z0-9._+=-]{0,120}", tag)
    assert run_tags(["full", "Full", "fuse.k=10"])["fuse.k=10"] == "fuse.k=10"
