"""The funnel of each strategy, by hand and against plain loops over made-up lists, and its worth without judgements."""

import itertools
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.log.judgements import Judgements
from jobs.measure import strategies as measured
from jobs.measure.strategies import TOP, Worth, funnel, worth
from jobs.runs.folder import RunFolder
from tests.support.jobs.run_folders import Row, arm, list_row, query_ids, ranked, write_folder

A, B, C, D = query_ids(4)
RERANK = {"kind": "bi_encoder", "encoder": {"model": "models/small"}, "keep": 10}
ARMS = [arm(name) for name in ("full", "original", "general", "keyword")]
RUNS = [
    *list_row(A, "original", "bm25", ["d1", "d2"]),
    *list_row(A, "general", "bm25", ["d1", "d3", "d4"]),
    *list_row(A, "keyword", "bm25", ["d5", "d6"]),
    *list_row(A, "general", "dense", ["d7"]),
    *list_row(B, "original", "bm25", ["d1"]),
    *list_row(B, "keyword", "bm25", ["d1"]),
    *list_row(B, "keyword", "bm25", ["d2", "d1"], position=2),
]
GRADES = {"L0": {"d1": 1, "d3": 2, "d4": 1, "d5": 1, "d7": 1, "d8": 1, "d2": 0}, "L1": {"d2": 1, "d9": -1}}
LISTS = {
    "runs": RUNS,
    "candidates": ranked(A, ["d1", "d3", "d5", "d7", "d2"]) + ranked(B, ["d1", "d2"]),
    "results": ranked(A, ["d1", "d5", "d3"], arm="full") + ranked(B, ["d2"], arm="full") + ranked(A, ["d7"], arm="general"),
}
JUDGEMENTS = Judgements("qrels", GRADES)


@pytest.mark.parametrize("portion", [1, measured.PORTION])
def test_an_ablation_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion: int) -> None:
    monkeypatch.setattr(measured, "PORTION", portion)
    result = funnel(write_folder(tmp_path, LISTS, queries=2, shard_size=1, arms=ARMS, rerank=RERANK), JUDGEMENTS)
    assert (result.judged_queries, result.relevant, result.found) == (2, 7, 6)
    assert result.strategies == {
        "original": [1, 0, 0, 0, 0],  # d1 is in general's list as well
        "general": [4, 3, 2, 1, 1],  # d4 is no candidate, d7 no result
        "keyword": [2, 2, 2, 2, 2],
    }


def test_hits_below_a_floor_or_an_own_depth_are_not_found(tmp_path: Path) -> None:
    floor = {"kind": "local", "index": "nowhere", "score_floor": 97.5}
    retrieve = {"retrievers": {"bm25": floor, "dense": {"kind": "local", "index": "nowhere"}}}
    found = funnel(write_folder(tmp_path, LISTS, queries=2, arms=ARMS, rerank=RERANK, retrieve=retrieve), JUDGEMENTS).strategies
    assert found["general"][:2] == [3, 2]  # d4 is third, with a score of 97


def test_queries_that_are_not_committed_do_not_count(tmp_path: Path) -> None:
    run = write_folder(tmp_path, LISTS, queries=2, shard_size=1, committed=[0], arms=ARMS)
    result = funnel(run, JUDGEMENTS)
    assert (result.judged_queries, result.relevant, result.found) == (1, 6, 5)


# ---------------------------------------------------------------- against plain loops

DOCUMENTS = [f"d{n}" for n in range(14)]
STRATEGIES = ("original", "general", "keyword")
ranking = st.lists(st.sampled_from(DOCUMENTS), unique=True, max_size=13)


@st.composite
def job(draw: st.DrawFn) -> dict[str, Any]:
    """Random lists of three queries; candidates among what was found, results among the candidates."""
    lists: dict[tuple[str, str, str, int], list[str]] = {}
    grades: dict[str, dict[str, int]] = {}
    fused, kept = {}, {}
    for n, query_id in enumerate(query_ids(3)):
        for strategy, retriever in itertools.product(STRATEGIES, ("bm25", "dense")):
            for position in range(1, 2 if strategy == "original" else draw(st.integers(1, 3))):
                lists[query_id, strategy, retriever, position] = draw(ranking)
        union = sorted({doc_id for key, found in lists.items() if key[0] == query_id for doc_id in found})
        fused[query_id] = draw(st.permutations(union))[: draw(st.integers(0, len(union)))]
        kept[query_id] = draw(st.permutations(fused[query_id]))[: draw(st.integers(0, len(fused[query_id])))]
        if draw(st.booleans()):
            grades[f"L{n}"] = draw(st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(-1, 2)))
    grades["L9"] = {"d1": 1}  # not in the log
    return {"lists": lists, "grades": grades, "fused": fused, "kept": kept, "depth": draw(st.integers(1, 13))}


def written(folder: Path, job: dict[str, Any]) -> RunFolder:
    tables: dict[str, list[Row]] = {"runs": [], "candidates": [], "results": []}
    for (query_id, strategy, retriever, position), doc_ids in job["lists"].items():
        tables["runs"] += list_row(query_id, strategy, retriever, doc_ids, position)
    for query_id, doc_ids in job["fused"].items():
        tables["candidates"] += ranked(query_id, doc_ids)
    for query_id, doc_ids in job["kept"].items():
        tables["results"] += ranked(query_id, doc_ids, arm="full")
    return write_folder(folder, tables, queries=3, arms=ARMS, rerank=RERANK, fuse={"depth": job["depth"]})


def by_loops(job: dict[str, Any]) -> dict[str, list[int]]:
    lists = {key: doc_ids for key, doc_ids in job["lists"].items() if doc_ids}
    finders = defaultdict(set)
    for (query_id, strategy, _, _), doc_ids in lists.items():
        for doc_id in doc_ids[: job["depth"]]:
            finders[query_id, doc_id].add(strategy)
    ids = query_ids(3)
    relevant = [
        (ids[int(key[1:])], doc_id)
        for key, grades in job["grades"].items() if key != "L9" for doc_id, grade in grades.items() if grade > 0
    ]  # fmt: skip
    found = [pair for pair in relevant if finders[pair]]
    values: dict[str, list[int]] = {}
    for name in STRATEGIES:
        alone = [pair for pair in found if finders[pair] == {name}]
        fused = [(query_id, doc_id) for query_id, doc_id in alone if doc_id in job["fused"][query_id]]
        kept = [(query_id, doc_id) for query_id, doc_id in fused if doc_id in job["kept"][query_id]]
        first = [(query_id, doc_id) for query_id, doc_id in kept if doc_id in job["kept"][query_id][:TOP]]
        values[name] = [sum(name in finders[pair] for pair in found), len(alone), len(fused), len(kept), len(first)]
    return values


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(job())
def test_it_is_what_plain_loops_count_and_only_ever_falls(job: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = funnel(written(Path(folder), job), Judgements("qrels", job["grades"])).strategies
    assert result == by_loops(job)
    assert all(counts == sorted(counts, reverse=True) for counts in by_loops(job).values())


# ---------------------------------------------------------------- worth

RANKED_ARMS = [arm("full"), arm("original")]
LISTED = [
    *list_row(A, "original", "bm25", ["d1", "d2"]),
    *list_row(A, "general", "bm25", ["d2", "d3"]),
    *list_row(A, "general", "dense", ["d4"]),
    *list_row(B, "original", "bm25", ["d1"]),
    *list_row(B, "general", "bm25", ["d9"]),
    *list_row(C, "keyword", "bm25", ["d5"]),
]


FOUND = ranked(A, ["d3", "d1", "d4"], arm="full") + ranked(B, ["d9"], arm="full") + ranked(C, ["d5"], arm="full")


def worths(run: RunFolder) -> dict[str, Worth]:
    return {one["strategy"]: one for one in worth(run)}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    others = ranked(A, ["d2"], arm="original")
    return write_folder(tmp_path, {"runs": LISTED, "results": FOUND + others}, queries=3, arms=RANKED_ARMS)


def test_results_that_the_original_does_not_have(run: RunFolder) -> None:
    found = worths(run)
    assert {name: (one["increment"], one["increment_share"]) for name, one in found.items()} == {
        "original": (0.0, 0.0),
        "general": (pytest.approx(3 / 3), pytest.approx(3 / 5)),  # d3 and d4 of A, d9 of B
        "keyword": (pytest.approx(1 / 3), pytest.approx(1 / 5)),
    }
