"""Quality of a run, joined through query_map: what counts, what is left out and said, and what a person is shown."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cluster.run.shards import write_table
from jobs.log.judgements import Judgements, Key
from jobs.measure.evaluate import Evaluation, evaluate
from jobs.measure.judged_rows import fuse_original
from jobs.measure.measures import MEASURES, measured_lists
from jobs.measure.notes import table_notes
from jobs.runs.folder import RunFolder
from jobs.tables import STORED
from retrievers.settings import FuseSettings
from tests.support.jobs.run_folders import ask, list_row, ranked, write_folder

RETRIEVE: dict[str, Any] = {"retrievers": {"bm25": {"kind": "local", "index": "none"}}}
MAP = [("l1", "q1"), ("l1-again", "q1"), ("l2", "q2"), ("rejected", None), ("other", "q3"), ("l4", "q4")]
GRADES = {"l1": {"d1": 2, "d2": 1, "d3": 0}, "l2": {"d4": 1}}
TABLES = {
    "results": ranked("q1", ["d1", "d2"], arm="run")[::-1] + ranked("q3", ["d4"], arm="run"),
    "runs": list_row("q1", "keyword", "bm25", ["d1"]) + list_row("q1", "original", "bm25", ["x", "d2"]),
}
Run = Callable[..., RunFolder]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Makes a run of q1 to q4, of which those of these places are committed, or all."""

    def made(committed: Collection[int] | None = None, log_map: Any = MAP, **config: Any) -> RunFolder:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        queries = [ask(f"q{n}", f"Query  {n}", n, normalised=f"query {n}") for n in range(1, 5)]
        sections = {"retrieve": RETRIEVE, "rerank": {}} | config
        run = write_folder(
            folder, TABLES, queries=queries, log_map=log_map, strategies=(), shard_size=1, committed=committed, **sections
        )
        write_table(run.storage, "results", 1, pa.Table.from_pylist(ranked("q2", ["d4"], arm="run"), STORED["results"]))
        return run  # the last table is of an attempt that did not commit

    return made


def judged(run: RunFolder, grades: dict[str, dict[str, int]] = GRADES, measures: list[str] | None = None) -> Evaluation:
    return evaluate(run, Judgements("", grades), measures)


def means(*lists: tuple[dict[str, int], list[str]]) -> Any:
    return pytest.approx(dict(zip(MEASURES, measured_lists(MEASURES, lists).mean(axis=0).tolist(), strict=True)))


def results_of(found: Evaluation) -> dict[str, float]:
    return {name: pair.b for name, pair in found.pairs.items()}


def originals_of(found: Evaluation) -> dict[str, float | None]:
    return {name: pair.a for name, pair in found.pairs.items()}


# ---------------------------------------------------------------- what counts


def test_results_and_the_original_alone_of_a_run(run: Run) -> None:
    found = judged(run())
    frame = found.frame
    assert (frame.judged, frame.missing, frame.not_committed, len(frame.keys), frame.distinct) == (2, 0, 0, 2, 2)
    assert results_of(found) == means((GRADES["l1"], ["d1", "d2"]), (GRADES["l2"], []))  # l2 has no committed result
    assert originals_of(found) == means((GRADES["l1"], ["x", "d2"]), (GRADES["l2"], []))
    assert found.frame.failed[0] == 1
    assert found.frame.unjudged.tolist() == [0, 0.5]
    assert found.pairs["RR@10"].difference == pytest.approx((1 - 1 / 2) / 2)


@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ({}, "axby"),
        ({"original/dense": 0}, "ab"),
        ({"original": 0, "original/dense": 0.5}, "xy"),
        ({"original": 4, "original/dense": 3.99}, "axby"),
        ({"original": 4, "original/dense": 0.1, "keyword/bm25": 9}, "abxy"),
        ({"original": 0}, "axby"),  # left out of the run; alone it is fused all the same
    ],
)
def test_the_original_alone_has_the_weights_of_its_own_lists(weights: dict[str, float], order: str) -> None:
    rows = [("bm25", "a", 2.0), ("bm25", "b", 1.0), ("dense", "x", 2.0), ("dense", "y", 1.0)]
    table = pa.table(
        {
            "query_id": ["q"] * 4, "position": pa.array([1] * 4, pa.int32()), "retriever": [name for name, *_ in rows],
            "doc_id": [doc_id for _, doc_id, _ in rows], "score": [score for *_, score in rows],
        }
    )  # fmt: skip
    assert fuse_original(table, FuseSettings(method="rrf", weights=weights)) == {"q": list(order)}


ROWS = {"l1": {"d1": 1}, "l2": {"d4": 1}, "other": {"d4": 1}, "l4": {"d1": 1}}


@pytest.mark.parametrize(
    ("committed", "grades", "counts", "mean"),
    [
        (None, ROWS | {"gone": {"d1": 1}}, (1, 0, 0, 4, 4, 2), 1 / 2),
        ([2], ROWS, (0, 3, 0, 1, 1, 0), 1),  # q3 alone
        ([0, 1, 2], ROWS, (0, 1, 0, 3, 3, 1), 2 / 3),
        (None, {"l1": {"d1": 1}, "l1-again": {"d2": 1}}, (0, 0, 0, 2, 1, 0), 3 / 4),  # two log rows of one query
        (None, {"l1": {"d1": 1}, "rejected": {"d1": 1}}, (0, 0, 1, 2, 2, 0), 1 / 2),  # a rejected row counts zero
        (None, {"gone": {"d1": 1}}, (1, 0, 0, 0, 0, 0), np.nan),  # a mean over nothing is not 0
        ([], GRADES, (0, 2, 0, 0, 0, 0), np.nan),
    ],
)
def test_what_does_not_count_is_counted(
    run: Run, committed: list[int] | None, grades: dict[str, dict[str, int]], counts: tuple[int, ...], mean: float
) -> None:
    found = judged(run(committed), grades)
    frame = found.frame
    left_out = frame.missing, frame.not_committed, frame.rejected
    assert (*left_out, len(frame.keys), frame.distinct, frame.failed[0]) == counts
    assert found.pairs["RR@10"].b == pytest.approx(mean, nan_ok=True)
    assert (found.pairs["RR@10"].interval is None) == (frame.distinct < 2)
    nothing = "gone" in grades and len(grades) == 1
    assert (frame.unmatched and frame.unmatched[0]) == ("gone" if nothing else None)
    assert not nothing or frame.unmatched[1] in dict(MAP)


def test_an_id_that_was_also_rejected_once_counts_with_its_query(run: Run) -> None:
    found = judged(run(log_map=[("l1", None), ("l1", "q1"), ("l1", None)]), {"l1": {"d1": 1}})
    assert (found.frame.rejected, found.pairs["RR@10"].b) == (0, 1)


def test_without_kept_runs_the_original_is_not_measured(run: Run) -> None:
    found = judged(run(retrieve=RETRIEVE | {"keep_runs": False}))
    assert {(pair.a, pair.difference, pair.interval) for pair in found.pairs.values()} == {(None, None, None)}
    assert results_of(found) == results_of(judged(run()))


def test_an_original_that_was_searched_with_its_rewrites_is_not_measured(run: Run) -> None:
    (name, block), *others = RETRIEVE["retrievers"].items()
    joined = RETRIEVE | {"retrievers": {name: block | {"together": True}} | dict(others)}
    rewriting = {"engine": {"kind": "recorded", "path": "r"}, "strategies": ["keyword"]}
    found = judged(run(retrieve=joined, rewrite=rewriting))
    assert {(pair.a, pair.difference, pair.interval) for pair in found.pairs.values()} == {(None, None, None)}
    said = " ".join(found.notes)
    assert f"original alone: not measured, since {name} searched it as one with its rewrites" in said
    alone = judged(run(retrieve=joined, rewrite=rewriting | {"strategies": []}))
    assert alone.has_original


@pytest.mark.parametrize(
    ("config", "kept", "reranked"),
    [
        ({"rerank": {"keep": 1}}, 1, True),
        ({"rerank": {"keep": 10}, "fuse": {"keep": 1}}, 1, True),  # candidates are fewer than the reranker would keep
        ({"rerank": {"kind": "none", "keep": 1}, "fuse": {"keep": 7}}, 7, False),
    ],
)
def test_the_original_ends_where_the_results_end(run: Run, config: dict[str, Any], kept: int, reranked: bool) -> None:
    found = judged(run(**config), {"l1": {"d2": 1}}, ["R@1", "R@10"])
    assert (found.config.results, found.reranked) == (kept, reranked)
    assert originals_of(found) == ({"R@1": 0} if kept == 1 else {"R@1": 0, "R@10": 1})  # d2 is the original's second
    assert results_of(found) == originals_of(found)


# ---------------------------------------------------------------- judgements of queries


@pytest.mark.parametrize(("key", "names"), [("query_id", ("q1", "q2")), ("query", ("query 1", "query 2"))])
def test_judgements_may_name_queries(run: Run, key: Key, names: tuple[str, str]) -> None:
    assert evaluate(run([0, 1]), Judgements("", {names[0][:-1] + "4": {"d1": 1}}, key)).frame.not_committed == 1
    by_row = judged(run())
    found = evaluate(run(), Judgements("", dict(zip(names, GRADES.values(), strict=True)), key))
    assert found.pairs == by_row.pairs
    frame = found.frame
    assert (len(frame.keys), frame.distinct, frame.failed[0]) == (2, 2, 1)
    assert found.notes[0] == "judged: 2 distinct queries"
    gone = {names[0]: {"d1": 1}, "gone": {"d1": 1}}
    assert evaluate(run(), Judgements("", gone, key)).frame.missing == 1


# ---------------------------------------------------------------- what is shown


def test_values_are_json_and_say_the_same(run: Run) -> None:
    found = judged(run(evaluate={"margin": 0.9}), GRADES | {"other": {"d4": 1}, "l4": {"d1": 1}, "gone": {"d1": 1}})
    values = json.loads(json.dumps(found.values(), allow_nan=False))
    pair = found.pairs["P@5"]
    assert values["measures"]["P@5"] == {
        "results": pair.b, "original": pair.a, "difference": pair.difference, "interval": list(pair.interval or ()),
        "detectable": pair.detectable, "verdict": "equivalent",
    }  # fmt: skip
    assert (values["judged"], values["missing"], values["not_committed"], values["counted"]) == (5, 1, 0, 4)
    assert values["notes"] == found.notes
    assert any("equivalent (=) within 0.9" in note for note in table_notes(found.pairs, found.config.evaluate.margin))
    assert (values["warning"], values["key"]) == (None, "log_id")
    nothing = json.loads(json.dumps(judged(run([]), {"gone": {"d1": 1}}).values(), allow_nan=False))
    assert nothing["measures"]["P@5"] == dict.fromkeys(values["measures"]["P@5"])
    assert nothing["notes"] == [f"warning: {nothing['warning']}"]
