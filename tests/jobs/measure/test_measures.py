"""Measures: which can be compared by, how deep they read, and judged documents that the index does not have."""

import io
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from jobs.config.load import load_config
from jobs.index.index import index
from jobs.job.measure_checks import WHOLE, check_grades, check_measures, deepest_rank
from jobs.log.judgements import Judgements
from jobs.measure import measures as module
from jobs.measure import missing_documents
from jobs.measure.answers import CLOSED, best_overlap, overlap
from jobs.measure.evaluate import evaluate
from jobs.measure.measures import MEASURES, ListMeasures, measured_lists
from jobs.runs.folder import open_run
from jobs.terminal.live_display import LiveDisplay
from retrievers.retriever import open_documents
from tests.support.jobs.in_process_runs import QUERIES, prepared_job, run_in_process
from tests.support.retrievers.blocks import typed

GRADES = {"l1": {"d1": 2, "d2": 1, "d3": 0, "d5": -3}, "l2": {"d4": 1}}


def test_measures_are_named_as_ir_measures_prints_them() -> None:
    assert check_measures(MEASURES) == MEASURES
    assert check_measures(["MAP@100", "MRR", "NDCG@5", "P(rel=2)@3", "IPrec@0.5"]) == (
        "AP@100", "RR", "nDCG@5", "P(rel=2)@3", "IPrec@0.5",
    )  # fmt: skip
    gains = check_measures(["nDCG(gains={0:0,1:1,2:7})@10"])
    assert check_measures(gains) == gains  # what is printed can be read again


@pytest.mark.parametrize("names", [["P@5", "P@5"], ["AP", "MAP"], ["P(rel=1)@5", "P@5"]])
def test_a_measure_is_listed_once(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="is listed twice"):
        check_measures(names)


def test_packages_that_are_missing_are_named() -> None:
    if ir_measures.cwl_eval.is_available():
        pytest.skip("cwl_eval is installed")
    with pytest.raises(ConfigError, match=r"no installed package computes it; pip install ir-measures\[cwl_eval\]"):
        check_measures(["RBP(rel=1)"])


def test_the_deepest_rank_is_the_greatest_cutoff() -> None:
    assert deepest_rank(MEASURES) == 10
    assert deepest_rank(["P@5", "nDCG@300"]) == 300
    assert deepest_rank(["P@5", "AP"]) == deepest_rank(["RR"]) == deepest_rank(["IPrec@0.5"]) == WHOLE
    assert deepest_rank(["RR", "R@2000"]) == 2000


def test_grades_too_high_for_exponential_gains_are_refused() -> None:
    high, low = (Judgements("q.tsv", {"l": {"d": grade}}) for grade in (5, 4))
    for name in ("ERR@10", "nDCG(dcg='exp-log2')@10"):
        check_grades(["P@5", name], low)
        with pytest.raises(ConfigError, match=r"takes grades up to 4, q\.tsv has 5"):
            check_grades(["P@5", name], high)
    check_grades(MEASURES, high)


ALL = [
    "nDCG@10", "nDCG", "AP", "AP@3", "RR", "RR@2", "R@3", "P@5", "Success@1", "Rprec", "Bpref", "IPrec@0.5", "Judged@3",
    "SetF", "SetP", "NumRet", "Compat(p=0.9)", "ERR@5", "nDCG(dcg='exp-log2')@5", "P(rel=2)@3", "RR(rel=2)@3", "infAP",
]  # fmt: skip


def test_every_list_is_measured_as_ir_measures_measures_it_alone() -> None:
    grades = {"a": 2, "b": 1, "c": 0, "d": 1, "e": 3}
    lists = [["x", "b", "c", "a"], ["a"], ["y"], ["e", "d", "a", "b", "c", "x", "y"], []]
    found = measured_lists(ALL, [(grades, one) for one in lists])
    for row, one in enumerate(lists[:-1]):
        run = {"7": {doc_id: 1 / rank for rank, doc_id in enumerate(one, 1)}}
        for place, name in enumerate(ALL):
            measure = ir_measures.parse_measure(name)
            values = [each.value for each in ir_measures.iter_calc([measure], {"7": grades}, run) if each.query_id == "7"]
            assert found[row, place] == values[0], name
    assert not found[-1].any()


@pytest.mark.parametrize(("name", "value"), [("Bpref", 1.0), ("infAP", 0.75), ("AP", 0.5), ("P@1", 0.0), ("ERR@10", None)])
def test_a_grade_below_zero_is_pooled_and_not_judged(name: str, value: float | None) -> None:
    grades, listed = {"a": -2, "b": 1, "c": 0}, ["a", "b", "c"]
    found = measured_lists(["nDCG@10", name], [(grades, listed)])[0, 1]
    grades = grades if value is not None else {doc_id: max(0, grade) for doc_id, grade in grades.items()}
    run = {"7": {"a": 3.0, "b": 2.0, "c": 1.0}}
    measured = ir_measures.iter_calc([ir_measures.parse_measure(name)], {"7": grades}, run)
    (alone,) = (one.value for one in measured if one.query_id == "7")
    assert found == alone == (alone if value is None else value)


def test_a_list_measured_in_a_later_chunk_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [({f"d{n}": n % 3 for n in range(7)}, [f"d{(n + place) % 7}" for n in range(7)]) for place in range(7)]
    whole = measured_lists(MEASURES, lists)
    monkeypatch.setattr(module, "CHUNK", 3)
    assert (measured_lists(MEASURES, lists) == whole).all()
    assert len(set(whole[:, 0].tolist())) > 3


def test_lists_measured_again_by_the_same_grades_are_measured_anew() -> None:
    measures = ListMeasures(["RR", "Compat(p=0.9)"], [GRADES["l1"], GRADES["l2"]])
    first = measures([["d1", "d2"], ["x", "d4"]])
    assert measures([["x"], []]).tolist() == [[0, 0], [0, 0]]
    assert (measures([["d1", "d2"], ["x", "d4"]]) == first).all()


WORDS = st.sampled_from(
    ["the", "A", "an", "tide", "Moon,", "moon", "is", "high!", "twice", "U.S.", "yes", "No", "noanswer", "7"]
)

TEXTS = st.lists(WORDS, max_size=8).map(" ".join) | st.text(max_size=12)


def by_hand(text: str) -> list[str]:
    """The words that count, one rule after the other."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def test_any_of_several_gold_answers_counts() -> None:
    assert best_overlap("the blue moon", ["sun", "moon", "blue moon rising"]) == pytest.approx((0.8, 0.0))
    assert best_overlap("moon", ["sun", "The Moon"]) == (1.0, 1.0)
    assert best_overlap("moon", []) == (0.0, 0.0)


@given(TEXTS, TEXTS)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(answer: str, gold: str) -> None:
    found, wanted = by_hand(answer), by_hand(gold)
    common = sum((Counter(found) & Counter(wanted)).values())
    closed = {" ".join(found), " ".join(wanted)} & CLOSED
    f1 = 0.0
    if common and (not closed or found == wanted):
        precision, recall = common / len(found), common / len(wanted)
        f1 = 2 * precision * recall / (precision + recall)
    if not found and not wanted:
        f1 = 1.0
    assert overlap(answer, gold) == pytest.approx((f1, float(found == wanted)))


SOME_UNKNOWN = {QUERIES[1]: {"d01": 1, "D02": 1}, QUERIES[2]: {"d06": 2, "msmarco-7": 0}}


def notes(folder: Path, grades: dict[str, dict[str, int]]) -> list[str]:
    found = evaluate(open_run(str(folder)), Judgements("qrels.tsv", grades, "query"))
    return [note for note in found.notes if "judged documents" in note]


def test_they_are_counted_and_said(bm25_job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_in_process(prepared_job(bm25_job))
    (said,) = notes(folder, SOME_UNKNOWN)
    assert said.startswith("warning: 2 of 4 judged documents are not in the index (")
    assert "such as 'D02': they cannot be found" in said
    found = evaluate(open_run(str(folder)), Judgements("qrels.tsv", SOME_UNKNOWN, "query")).values()
    assert found["unknown_documents"] == {"unknown": 2, "looked_up": 4}
    assert "none of the judged documents can be found" in notes(folder, {QUERIES[1]: {"7": 1}})[0]
    assert notes(folder, {QUERIES[1]: {"d01": 1}}) == []
    monkeypatch.setattr(missing_documents, "MOST", 2)
    assert "1 of 2 judged documents drawn from 4 are not" in notes(folder, SOME_UNKNOWN)[0]


def test_a_store_knows_its_documents(bm25: dict[str, Any]) -> None:
    assert open_documents("r", typed(bm25)).known(["d08", "", "d01", "zz", "d0"]) == [True, False, True, False, False]


def test_index_says_what_it_replaces_and_which_texts_are_missing(
    tmp_path: Path, values: dict[str, Any], config_file: Any
) -> None:
    values["retrieve"]["retrievers"]["bm25"]["index"] = str(tmp_path / "index")
    config = load_config(config_file(values))
    first, second = str(tmp_path / "first.parquet"), str(tmp_path / "second.parquet")
    pq.write_table(pa.table({"doc_id": ["a", "b", "c", "d"], "text": ["the sea", None, " ", "moon"]}), first)
    pq.write_table(pa.table({"doc_id": ["a"], "text": ["bread"]}), second)

    def built(corpus: str) -> dict[str, Any]:
        (found,) = index(config, [corpus], LiveDisplay(io.StringIO()), replace=True)
        return found

    told = "analyzer english: no language is recognised in 4 documents, whose letters English has"
    found = built(first)
    assert (found["done"], found["without_text"], found["replaced"]) == (f"built; 2 documents have no text; {told}", 2, None)
    assert built(first)["done"] == f"exists already, nothing to do; 2 documents have no text; {told}"
    found = built(second)
    assert found["done"].startswith("built, in place of the index of another corpus (4 documents); analyzer english: ")
    assert (found["without_text"], found["replaced"]) == (0, 4)
