"""Which measures can be compared by, what is said of the others, and how deep they read."""

from __future__ import annotations

import ir_measures
import pytest

from cluster.errors import ConfigError
from jobs.job.measure_checks import WHOLE, check_grades, check_measures, deepest_rank
from jobs.log.judgements import Judgements
from jobs.measure.measures import MEASURES, measured_lists


def test_measures_are_named_as_ir_measures_prints_them() -> None:
    assert check_measures(MEASURES) == MEASURES
    assert check_measures(["MAP@100", "MRR", "NDCG@5", "P(rel=2)@3", "IPrec@0.5"]) == (
        "AP@100", "RR", "nDCG@5", "P(rel=2)@3", "IPrec@0.5",
    )  # fmt: skip
    gains = check_measures(["nDCG(gains={0:0,1:1,2:7})@10"])
    assert check_measures(gains) == gains  # what is printed can be read again


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nDGC@10", "ir_measures knows no 'nDGC'; did you mean 'nDCG@10'?"),
        ("foo", "ir_measures knows no 'foo' (known: AP, "),
        ("R", "R: it needs a cutoff; write R@10"),
        ("IPrec", "IPrec: it needs a recall; write IPrec@0.5"),
        ("ERR", "ERR: it needs a cutoff; write ERR@10"),
        ("RBP", "RBP: it needs a rel; write RBP(rel=1) or another number"),
        ("SDCG@10", "it needs a max_rel; write SDCG(max_rel=1) or another number"),
        ("R@0", "cutoff cannot be 0: ranking cutoff threshold; give 1 or more"),
        ("R@True", "cutoff cannot be True: ranking cutoff threshold; give a whole number"),
        ("nDCG@10.5", "cutoff cannot be 10.5: ranking cutoff threshold; give a whole number"),
        ("P(rel=0)@5", "rel cannot be 0: minimum relevance score to be considered relevant (inclusive); give from 1 to 1,000"),
        ("IPrec@2.0", "recall cannot be 2.0: recall threshold; give from 0 to 1"),
        ("nDCG(dcg='x')@5", "dcg cannot be 'x': DCG formulation; give another value"),
        ("nDCG(gian={1:2})@5", "nDCG has no parameter 'gian'; did you mean 'gains'?"),
        ("nDCG(gains={1:2000})@5", "gains cannot be {1: 2000}; give whole numbers from 0 to 1,000"),
        ("nDCG(gains={1:0.5})@5", "gains cannot be {1: 0.5}; give whole numbers"),
        ("RR(judged_only=True)@10", "no package computes it with judged_only, cutoff together; leave out one"),
        ("alpha_nDCG@10", "it needs judgements by subtopic"),
        ("Accuracy", "it has no value for a list without a relevant document"),
        ("nDCG at 10", "is no measure; write it as nDCG@10"),
        ("nDCG(10)", "is no measure; write it as nDCG@10"),
        ("P(rel=-1)@5", "is no measure; write it as nDCG@10"),
        ("", "'' is no measure"),
    ],
)
def test_what_cannot_be_computed_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_measures(["P@5", name])
    assert refused.value.code == "config-value"
    assert refused.value.line.startswith("evaluate.measures: ")
    assert words in refused.value.line
    assert "\n" not in refused.value.line


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
