"""Quality: judgements as people write them, joined through query_map, figures computed by hand."""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.shards import File, Manifest, Plan, commit
from cluster.storage import FileStorage, Storage
from jobs.config import Fuse as FuseConfig
from jobs.evaluate import Evaluation, Judgements, evaluate, measure, read_qrels
from jobs.fuse import fuse_original
from jobs.part import ConfigError
from jobs.tables import STORED


@pytest.fixture
def qrels(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        (tmp_path / "qrels.tsv").write_text(text, encoding="utf-8")
        return str(tmp_path / "qrels.tsv")

    return write


# ---------------------------------------------------------------- reading judgements


@pytest.mark.parametrize(
    "text",
    [
        "l1\td1\t2\nl1\td2\t0\nl2\td1\t1\n",
        "l1\t0\td1\t2\nl1\t0\td2\t0\nl2\t0\td1\t1\n",
        "l1 0 d1 2\nl1 Q0 d2 0\n\n  \nl2 0 d1 1",
        "l1 d1 2\r\nl1 d2 0\r\nl2\td1\t1\r\n",
    ],
    ids=["three tabs", "four tabs", "TREC with spaces and blank lines", "three mixed, CRLF"],
)
def test_three_columns_and_four_are_read(qrels: Any, text: str) -> None:
    assert read_qrels(qrels(text)).grades == {"l1": {"d1": 2, "d2": 0}, "l2": {"d1": 1}}


def test_ids_may_have_spaces_where_tabs_part_them(qrels: Any) -> None:
    assert read_qrels(qrels("log 1\tdoc 1\t1\n")).grades == {"log 1": {"doc 1": 1}}


@pytest.mark.parametrize("line", ["l1\td1", "l1", "l1\td1\tgood", "l1\td1\t1.5", "l1 0 d1 1 more", "log_id\tdoc_id\trelevance"])
def test_a_bad_line_is_named(qrels: Any, line: str) -> None:
    path = qrels(f"l1\td1\t1\n\n{line}\nl2\td2\t1\n")
    with pytest.raises(ConfigError) as refused:
        read_qrels(path)
    assert f"evaluate.qrels: {path}: line 3 is neither" in str(refused.value)
    assert repr(line) in str(refused.value)


def test_a_file_that_holds_nothing_or_is_not_there(qrels: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"qrels\.tsv: holds no judgement"):
        read_qrels(qrels("\n\n"))
    with pytest.raises(ConfigError, match=r"none\.tsv: cannot be read: No such file"):
        read_qrels(str(tmp_path / "none.tsv"))
    (tmp_path / "bytes.tsv").write_bytes(b"l1\t\xff\t1\n")
    with pytest.raises(ConfigError, match=r"bytes\.tsv: cannot be read"):
        read_qrels(str(tmp_path / "bytes.tsv"))


# ---------------------------------------------------------------- figures


def by_hand(grades: dict[str, int], ranked: list[str]) -> tuple[float, float]:
    """nDCG@10 (gain: the grade, discount: log2(rank + 1)) and R@10."""
    gains = [grades.get(doc_id, 0) / log2(rank + 1) for rank, doc_id in enumerate(ranked[:10], 1)]
    ideal = [grade / log2(rank + 1) for rank, grade in enumerate(sorted(grades.values(), reverse=True)[:10], 1)]
    relevant = {doc_id for doc_id, grade in grades.items() if grade > 0}
    return sum(gains) / sum(ideal), len(relevant & set(ranked[:10])) / len(relevant)


GRADES = {"l1": {"d1": 2, "d2": 1, "d3": 0}, "l2": {"d4": 1}}


def ranking(*doc_ids: str) -> list[tuple[str, float]]:
    return [(doc_id, -float(place)) for place, doc_id in enumerate(doc_ids)]


def test_figures_are_those_by_hand() -> None:
    long = [f"x{n}" for n in range(9)] + ["d4", "d1"]  # d4 just within the ten
    ranked = {"q1": ["d3", "d2", "x", "d1"], "q2": long}
    found = measure(Judgements("", GRADES), {"l1": "q1", "l2": "q2"}, {name: ranking(*ids) for name, ids in ranked.items()})
    one, two = by_hand(GRADES["l1"], ranked["q1"]), by_hand(GRADES["l2"], long)
    assert found == pytest.approx({"nDCG@10": (one[0] + two[0]) / 2, "R@10": (one[1] + two[1]) / 2})


def test_a_judged_query_without_results_counts_zero() -> None:
    found = measure(Judgements("", GRADES), {"l1": "q1", "l2": "q2"}, {"q1": ranking("d1", "d2")})
    assert found == pytest.approx({"nDCG@10": 0.5, "R@10": 0.5})


def test_a_query_for_which_nothing_is_relevant_counts_zero() -> None:
    judged = Judgements("", {"l1": {"d1": 1}, "l2": {"d1": 0}})
    found = measure(judged, {"l1": "q1", "l2": "q1"}, {"q1": ranking("d1")})
    assert found == pytest.approx({"nDCG@10": 0.5, "R@10": 0.5})


def test_the_order_counts_whatever_the_scores() -> None:
    tied = {"q1": [("x", 1.0), ("d1", 1.0)]}  # by score and name, d1 would come first
    assert measure(Judgements("", {"l1": {"d1": 1}}), {"l1": "q1"}, tied)["nDCG@10"] == pytest.approx(1 / log2(3))


def test_nothing_judged_in_the_log_measures_nothing() -> None:
    assert measure(Judgements("", GRADES), {}, {}) == {"nDCG@10": 0.0, "R@10": 0.0}


# ---------------------------------------------------------------- of a run


def put(storage: Storage, table: str, rows: list[dict[str, Any]], name: str = "a") -> File:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, STORED[table]), sink)
    key = f"{table}/{name}.parquet"
    storage.put(key, sink.getvalue().to_pybytes())
    return File(key, len(rows), sink.getvalue().size)


def results(query_id: str, *doc_ids: str) -> list[dict[str, Any]]:
    return [
        {"query_id": query_id, "arm": "run", "rank": rank, "doc_id": doc_id, "score": 1.0, "fused_score": 1.0, "sources": []}
        for rank, doc_id in enumerate(doc_ids, 1)
    ]


def runs(query_id: str, strategy: str, *doc_ids: str) -> list[dict[str, Any]]:
    kept = {"query_id": query_id, "strategy": strategy, "position": 1, "retriever": "bm25"}
    return [kept | {"doc_id": doc_id, "rank": rank, "score": 9.0 - rank} for rank, doc_id in enumerate(doc_ids, 1)]


MAP = [("l1", "q1"), ("l1-again", "q1"), ("l2", "q2"), ("rejected", None), ("other", "q3")]


@pytest.fixture
def run(tmp_path: Path) -> tuple[Storage, Plan]:
    storage = FileStorage(str(tmp_path / "run"))
    query_map = put(storage, "query_map", [{"log_id": log_id, "query_id": query_id} for log_id, query_id in MAP])
    lists = runs("q1", "keyword", "d1") + runs("q1", "original", "x", "d2") + runs("q2", "general", "d4")
    files = {
        "results": put(storage, "results", results("q1", "d1", "d2")[::-1] + results("q3", "d4")),
        "runs": put(storage, "runs", lists),
    }
    commit(storage, Manifest(0, 1, files, {}, {}))
    put(storage, "results", results("q2", "d4"), name="orphan")  # of an attempt that did not commit
    return storage, Plan([], {}, 10, {"query_map": [query_map]}, [])


def judged(grades: dict[str, dict[str, int]], run: tuple[Storage, Plan]) -> Evaluation:
    return evaluate(*run, Judgements("", grades), lambda rows: fuse_original(rows, FuseConfig().model_dump()))


def test_results_and_the_original_alone_of_a_run(run: tuple[Storage, Plan]) -> None:
    found = judged(GRADES, run)
    one = by_hand(GRADES["l1"], ["d1", "d2"]), by_hand(GRADES["l1"], ["x", "d2"])
    assert (found.judged, found.missing) == (2, 0)
    assert found.results == pytest.approx({"nDCG@10": one[0][0] / 2, "R@10": one[0][1] / 2})  # l2 has no committed result
    assert found.original == pytest.approx({"nDCG@10": one[1][0] / 2, "R@10": one[1][1] / 2})


def test_judged_ones_that_the_log_lacks_are_counted_and_left_out_of_the_mean(run: tuple[Storage, Plan]) -> None:
    found = judged(GRADES | {"gone": {"d1": 1}}, run)
    assert (found.judged, found.missing) == (3, 1)
    assert found.results == judged(GRADES, run).results


def test_log_rows_of_one_query_count_each(run: tuple[Storage, Plan]) -> None:
    found = judged({"l1": {"d1": 1}, "l1-again": {"d2": 1}}, run)
    assert found.results["nDCG@10"] == pytest.approx((1 + 1 / log2(3)) / 2)


def test_without_kept_runs_the_original_is_not_measured(run: tuple[Storage, Plan]) -> None:
    assert evaluate(*run, Judgements("", GRADES), None).original is None


def test_nothing_judged_is_in_the_log(run: tuple[Storage, Plan]) -> None:
    found = judged({"gone": {"d1": 1}}, run)
    assert (found.judged, found.missing, found.results["R@10"]) == (1, 1, 0.0)


def test_a_judged_row_that_was_rejected_counts_zero(run: tuple[Storage, Plan]) -> None:
    found = judged({"l1": {"d1": 1}, "rejected": {"d1": 1}}, run)
    assert found.missing == 0
    assert found.results["nDCG@10"] == pytest.approx(0.5)
