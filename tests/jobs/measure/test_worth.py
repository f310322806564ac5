"""The worth of strategies without judgements: the reranker's scores, what they add to the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.measure.worth import Worth, worth
from jobs.runs.folder import RunFolder
from tests.support.jobs.list_folders import Row, arm, list_row, query_ids, ranked, write_folder

A, B, C = query_ids(3)
RERANK = {"kind": "bi_encoder", "encoder": {"model": "models/small"}}
ARMS = [arm("full", reranker="own"), arm("original")]
RUNS = [
    *list_row(A, "original", "bm25", ["d1", "d2"]),
    *list_row(A, "general", "bm25", ["d2", "d3"]),
    *list_row(A, "general", "dense", ["d4"]),
    *list_row(B, "original", "bm25", ["d1"]),
    *list_row(B, "general", "bm25", ["d9"]),
    *list_row(C, "keyword", "bm25", ["d5"]),
]


def scored(query_id: str, reranker: str = "own", **scores: float) -> list[Row]:
    row = {"query_id": query_id, "model": "/absolute/models/small", "reranker": reranker}
    return [row | {"doc_id": doc_id, "score": score} for doc_id, score in scores.items()]


SCORES = [
    *scored(A, d1=0.5, d2=0.25, d3=1.0),
    *scored(B, d1=0.75),  # d9 is no candidate
    *scored(C, d5=2.0),  # nothing of the original
    *scored(A, "with another prompt", d1=0.0, d3=9.0),
]
RESULTS = ranked(A, ["d3", "d1", "d4"], arm="full") + ranked(B, ["d9"], arm="full") + ranked(C, ["d5"], arm="full")


def of(run: RunFolder, **more: Any) -> dict[str, Worth]:
    found = worth(run, **more)
    assert found is not None
    return {one.strategy: one for one in found}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    others = ranked(A, ["d2"], arm="original")
    tables = {"runs": RUNS, "scores": SCORES, "results": RESULTS + others}
    return write_folder(tmp_path, tables, queries=3, arms=ARMS, rerank=RERANK)


def test_the_best_score_of_a_strategy_is_compared_with_the_original_s(run: RunFolder) -> None:
    found = of(run)
    assert list(found) == ["original", "general", "keyword"]
    assert found["general"].reranker_gain == pytest.approx(1.0 - 0.5)  # of A alone: B's list has no scored document
    assert found["original"].reranker_gain == 0.0
    assert found["keyword"].reranker_gain is None


def test_where_the_config_itself_has_no_reranker_there_is_no_gain(tmp_path: Path) -> None:
    tables = {"runs": RUNS, "scores": SCORES, "results": RESULTS}
    run = write_folder(tmp_path, tables, queries=3, arms=[arm("full"), arm("original")], rerank=RERANK)
    assert of(run)["general"].reranker_gain is None


def test_results_that_the_original_does_not_have(run: RunFolder) -> None:
    found = of(run)
    assert {name: (one.increment, one.increment_share) for name, one in found.items()} == {
        "original": (0.0, 0.0),
        "general": (pytest.approx(3 / 3), pytest.approx(3 / 5)),  # d3 and d4 of A, d9 of B
        "keyword": (pytest.approx(1 / 3), pytest.approx(1 / 5)),
    }


def test_without_a_reranker_there_is_no_gain(tmp_path: Path) -> None:
    run = write_folder(tmp_path, {"runs": RUNS, "results": RESULTS}, queries=3, arms=ARMS)
    assert {one.reranker_gain for one in of(run).values()} == {None}


def test_a_plain_run(tmp_path: Path) -> None:
    results = [row | {"arm": "run"} for row in RESULTS]
    tables = {"runs": RUNS, "scores": [row for row in SCORES if row["reranker"] == "own"], "results": results}
    found = of(write_folder(tmp_path, tables, queries=3, rerank=RERANK))
    assert [found["general"].reranker_gain, found["general"].increment] == pytest.approx([0.5, 1.0])


def test_hits_below_a_floor_are_not_the_original_s(tmp_path: Path) -> None:
    results = ranked(A, ["d3", "d1", "d4", "d2"], arm="full") + ranked(B, ["d9"], arm="full")
    scores = scored(A, d1=0.5, d2=1.5, d3=1.0)
    tables = {"runs": RUNS, "scores": scores, "results": results}
    run = write_folder(tmp_path, tables, queries=3, arms=ARMS, rerank=RERANK, fuse={"original_floor": 98.5})
    found = of(run)
    assert found["general"].increment == pytest.approx(4 / 3)  # d2, too: the original has it second, below its floor
    assert found["general"].reranker_gain == pytest.approx(1.5 - 0.5)


def test_a_run_without_lists_tells_nothing(tmp_path: Path) -> None:
    retrieve = {"retrievers": {"bm25": {"kind": "local", "index": "x"}}, "keep_runs": False}
    assert worth(write_folder(tmp_path, {}, queries=1, retrieve=retrieve)) is None
