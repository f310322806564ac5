"""The funnel of each strategy: by hand, and against plain loops over made-up lists."""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.log.judgements import Judgements
from jobs.measure import list_portions as list_files
from jobs.measure.funnel import Funnel, StrategyFunnel, funnel
from jobs.runs.folder import RunFolder
from tests.support.jobs.list_folders import Row, arm, list_row, query_ids, ranked, write_folder

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


def of(result: Funnel | None) -> dict[str, StrategyFunnel]:
    assert result is not None
    return {one.strategy: one for one in result.strategies}


def counts(one: StrategyFunnel) -> tuple[int | None, ...]:
    return one.relevant_found, one.found_alone, one.survived_fusion, one.survived_reranker, one.in_top


def test_an_ablation_by_hand(tmp_path: Path) -> None:
    made = [
        {"query_id": A, "strategy": "general", "position": 1, "text": "x", "arm": "full"},
        {"query_id": A, "strategy": "general", "position": 1, "text": "y", "arm": "full #2"},
        {"query_id": B, "strategy": "keyword", "position": 1, "text": "z", "arm": "full"},
    ]
    run = write_folder(tmp_path, LISTS | {"rewrites": made}, queries=2, shard_size=1, arms=ARMS, rerank=RERANK)
    result = funnel(run, JUDGEMENTS, top=2)
    assert result is not None
    assert (result.judged_queries, result.relevant, result.found, result.top) == (2, 7, 6, 2)
    found = of(result)
    assert list(found) == ["original", "general", "keyword"]
    assert [one.rewrites for one in found.values()] == [2, 1, 1]
    assert counts(found["original"]) == (1, 0, 0, 0, 0)  # d1 is in general's list as well
    assert counts(found["general"]) == (4, 3, 2, 1, 0)  # d4 is no candidate, d7 no result, d3 third
    assert counts(found["keyword"]) == (2, 2, 2, 2, 2)
    assert [one.unique_contribution for one in found.values()] == [0, pytest.approx(3 / 6), pytest.approx(2 / 6)]
    assert found["original"].overlap == 1.0
    assert found["general"].overlap == pytest.approx(1 / 4)  # bm25 of A alone: dense has no list of the original
    assert found["keyword"].overlap == pytest.approx((0 + 1 + 1 / 2) / 3)
    assert found["original"].redundancy == pytest.approx((1 / 4 + 1) / 2)
    assert found["general"].redundancy == pytest.approx((1 / 4 + 0) / 2)
    assert found["keyword"].redundancy == pytest.approx((0 + 1 + 1 / 2) / 3)


def test_hits_below_a_floor_or_an_own_depth_are_not_found(tmp_path: Path) -> None:
    floor = {"kind": "local", "index": "nowhere", "score_floor": 97.5}
    retrieve = {"retrievers": {"bm25": floor, "dense": {"kind": "local", "index": "nowhere"}}}
    found = of(funnel(write_folder(tmp_path, LISTS, queries=2, arms=ARMS, rerank=RERANK, retrieve=retrieve), JUDGEMENTS))
    assert counts(found["general"])[:2] == (3, 2)  # d4 is third, with a score of 97


def test_without_a_reranker_the_results_of_a_plain_run_are_the_candidates(tmp_path: Path) -> None:
    results = ranked(A, ["d1", "d5", "d3"], arm="run") + ranked(B, ["d2"], arm="run")
    found = of(funnel(write_folder(tmp_path, {"runs": RUNS, "results": results}, queries=2), JUDGEMENTS, top=2))
    assert counts(found["general"]) == (4, 3, 1, None, 0)
    assert counts(found["keyword"]) == (2, 2, 2, None, 2)


def test_with_a_reranker_the_scored_pairs_of_a_plain_run_are_the_candidates(tmp_path: Path) -> None:
    scores = [{"query_id": A, "doc_id": doc_id, "model": "m", "score": 0.5} for doc_id in ("d1", "d3", "d4", "d5")]
    results = ranked(A, ["d4"], arm="run") + ranked(B, ["d2"], arm="run")  # the reranker failed on B
    run = write_folder(tmp_path, {"runs": RUNS, "results": results, "scores": scores}, queries=2, rerank=RERANK)
    found = of(funnel(run, JUDGEMENTS))
    assert counts(found["general"]) == (4, 3, 2, 1, 1)
    assert counts(found["keyword"]) == (2, 2, 2, 1, 1)


def test_queries_that_are_not_committed_do_not_count(tmp_path: Path) -> None:
    run = write_folder(tmp_path, LISTS, queries=2, shard_size=1, committed=1, arms=ARMS)
    result = funnel(run, JUDGEMENTS)
    assert result is not None
    assert (result.judged_queries, result.relevant, result.found) == (1, 6, 5)


def test_a_run_without_lists_has_no_funnel(tmp_path: Path) -> None:
    retrieve = {"retrievers": {"bm25": {"kind": "local", "index": "x"}}, "keep_runs": False}
    assert funnel(write_folder(tmp_path, {}, queries=1, retrieve=retrieve), JUDGEMENTS) is None


def test_it_does_not_depend_on_how_much_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_folder(tmp_path, LISTS, queries=2, shard_size=1, arms=ARMS)
    whole = funnel(run, JUDGEMENTS)
    monkeypatch.setattr(list_files, "PORTION", 1)
    assert funnel(run, JUDGEMENTS) == whole


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


def by_loops(job: dict[str, Any], top: int) -> dict[str, list[float | None]]:
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
    values: dict[str, list[float | None]] = {}
    for name in STRATEGIES:
        alone = [pair for pair in found if finders[pair] == {name}]
        fused = [(query_id, doc_id) for query_id, doc_id in alone if doc_id in job["fused"][query_id]]
        kept = [(query_id, doc_id) for query_id, doc_id in fused if doc_id in job["kept"][query_id]]
        first = [(query_id, doc_id) for query_id, doc_id in kept if doc_id in job["kept"][query_id][:top]]
        greatest, with_original = [], []
        for (query_id, strategy, retriever, _), doc_ids in lists.items():
            others = [
                (other[1], jaccard(doc_ids, theirs))
                for other, theirs in lists.items()
                if (other[0], other[2]) == (query_id, retriever) and other[1] != strategy
            ]
            if strategy == name:
                greatest.append(max((value for _, value in others), default=0.0))
                with_original += [value for other, value in others if other == "original"]
        overlap = (1.0 if greatest else None) if name == "original" else mean(with_original)
        share = len(alone) / len(found) if found else 0.0
        values[name] = [sum(name in finders[pair] for pair in found), len(alone), len(fused), len(kept), len(first)]
        values[name] += [overlap, mean(greatest), share]
    return values


def jaccard(one: list[str], other: list[str]) -> float:
    first, second = set(one[:10]), set(other[:10])
    return len(first & second) / len(first | second)


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(job(), st.integers(1, 6))
def test_it_is_what_plain_loops_count_and_only_ever_falls(job: dict[str, Any], top: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = of(funnel(written(Path(folder), job), Judgements("qrels", job["grades"]), top))
    wanted = by_loops(job, top)
    for name, one in result.items():
        values = [*counts(one), one.overlap, one.redundancy, one.unique_contribution]
        assert [value if value is None else pytest.approx(value) for value in wanted[name]] == values
        falling = [value for value in counts(one) if value is not None]
        assert falling == sorted(falling, reverse=True)
        assert 0 <= one.unique_contribution <= 1
    assert sum(one.unique_contribution for one in result.values()) <= 1 + 1e-9
