"""What a comparison gives to other tools: CSV and Parquet, TREC run files."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import ir_measures
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from jobs.measure.export.tables import write_long
from jobs.measure.export.trec import run_tags, write_trec
from tests.support.jobs.report_ablations import ARMS, ArmOf, ablation_at, comparison_of, values_of
from tests.support.jobs.report_runs import query_id

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


def test_where_keys_are_texts_a_topic_is_the_query(tmp_path: Path) -> None:
    arms = [ArmOf("original", "always", ())]
    further = {"keys": ("two words", "other words", "rejected"), "query_ids": (query_id(0), query_id(1), None), "key": "query"}
    comparison = comparison_of(arms, values_of(arms, 3), queries=("", "", None), **further)
    run = ablation_at(tmp_path, arms, [(query_id(n), "original", ["d1"]) for n in range(3)])
    path = write_trec(str(tmp_path / "runs"), run, comparison.frame)["original"]
    assert [one.query_id for one in ir_measures.read_trec_run(path)] == [query_id(0), query_id(1)]


@given(st.lists(st.text(min_size=1, max_size=130), unique=True, max_size=8))
def test_any_arm_has_a_file_of_its_own(arms: list[str]) -> None:
    tags = run_tags(arms)
    assert len({tag.lower() for tag in tags.values()}) == len(arms)
    for tag in tags.values():
        assert re.fullmatch(r"[A-Za-z0-9_+=][A-Za-z0-9._+=-]{0,120}", tag)
    assert run_tags(["full", "Full", "fuse.k=10"])["fuse.k=10"] == "fuse.k=10"
