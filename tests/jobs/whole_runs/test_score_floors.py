"""Floors of the original and of a retriever: what takes part in fusion, in a run, alone, and as arms."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.run.ablation import prepare_ablation
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows

QUERIES = {"yeast": "bread yeast", "moon and tides": "new moon", "lamp of a lighthouse": "lighthouse lamp"}
FLOORED = {
    "of the original": {"fuse.original_floor": 1.0},
    "of a retriever": {"retrieve.retrievers.bm25.score_floor": 1.2},
    "both": {"fuse.original_floor": 2.0, "retrieve.retrievers.bm25.score_floor": 1.2},
    "nothing left": {"retrieve.retrievers.bm25.score_floor": 1e6},
}
Of = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def path(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": list(QUERIES)}), "log.parquet")
    lines = [{"query": query, "completions": {"general": text}} for query, text in QUERIES.items()]
    (tmp_path / "recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["retrieve"] |= {"retrievers": {"bm25": bm25}}
    values["rewrite"] |= {"strategies": ["general"], "calls": "separate"}
    values["fuse"] = {"method": "weighted", "redundancy": "none", "weights": {"original": 1, "general": 1}}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none"}, "limits": {"error_rate": 1}}
    return config_file(values)


def settings(changes: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in changes.items()]


def done(path: str, changes: dict[str, Any]) -> Path:
    job = prepare(load_config(path, settings(changes)), path)
    return run_in_process(job)


def results(folder: Path, arm: str) -> Of:
    found: Of = defaultdict(list)
    for row in sorted(rows(folder, "results"), key=lambda row: row["rank"]):
        if row["arm"] == arm:
            found[row["query_id"]].append((row["doc_id"], pytest.approx(row["score"], abs=1e-6)))
    return found


def summed(folder: Path, floors: dict[str, float]) -> Of:
    """The sums of the scores of hits that are not below their list's floor, best first."""
    sums: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows(folder, "runs"):
        if row["score"] >= floors[row["strategy"]]:
            sums[row["query_id"]][row["doc_id"]] = sums[row["query_id"]].get(row["doc_id"], 0.0) + row["score"]
    return {query: sorted(of.items(), key=lambda one: (-round(one[1], 9), one[0])) for query, of in sums.items()}


def test_a_floor_leaves_hits_out_of_fusion_and_not_out_of_the_lists_and_an_arm_is_its_run(path: str) -> None:
    lists = rows(done(path, {}), "runs")
    arms = json.dumps({"arms": FLOORED})
    ablation = prepare_ablation(load_config(path, [f"ablate={arms}"]), path)
    measured = run_in_process(ablation)
    lengths = set()
    for name, changes in FLOORED.items():
        folder = done(path, changes)
        of_retriever = changes.get("retrieve.retrievers.bm25.score_floor", 0.0)
        floors = {"original": max(changes.get("fuse.original_floor", 0.0), of_retriever), "general": of_retriever}
        assert sorted(map(str, rows(folder, "runs"))) == sorted(map(str, lists))
        found = results(folder, "run")
        assert summed(folder, floors) == found, name
        assert {query: of[: len(found[query])] for query, of in results(measured, name).items()} == found, name
        assert len([row for row in rows(folder, "errors") if row["reason"] == "no_hits"]) == len(QUERIES) - len(found)
        lengths.add(sum(map(len, found.values())))
    assert len(lengths) >= 3, "the floors cut nothing: the test tests nothing"
