"""Two runs measured over the same judged keys: what is paired, what is left out and said, who gained and who lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from jobs.log.judgements import Judgements
from jobs.measure.diff import quality as quality_module
from jobs.measure.diff.diff import diff, diff_values
from jobs.measure.diff.quality import Paired, QueryChange, quality
from jobs.measure.frame import Frame
from jobs.measure.judged_rows import AskedQuery
from jobs.pages.diff import diff_page
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import p_words
from tests.support.jobs.run_folders import Query, RunMaker, frame_of, query_id
from tests.support.jobs.terminals import printed

Side = Callable[..., RunFolder]
BEST, SECOND = 1.0, 1 / np.log2(3)
GRADES = {query_id(n): {"right": 1} for n in range(6)}


def ranked(**asked: int) -> list[Query]:
    """Queries by the place of the document that is right: `first`, `second`, `nowhere`; a name's end is cut off."""
    lists = {"f": ["right", "x"], "s": ["x", "right"], "n": ["x"]}
    return [Query(name[1:], hits={("original", "bm25"): lists[name[0]]}, asked=n) for name, n in asked.items()]


@pytest.fixture
def side(tmp_path: Path) -> Side:
    def make(name: str, *arguments: Any, **settings: Any) -> RunFolder:
        return RunMaker(tmp_path / name)(*arguments, (), **settings)

    return make


@pytest.fixture
def two(side: Side) -> tuple[RunFolder, RunFolder]:
    a = side("a", ranked(fone=1, stwo=1, sthree=1, nfour=1, ffive=1))
    return a, side("b", ranked(fone=1, ftwo=2, fthree=9, ffour=4, sfive=1))


def of_queries(grades: dict[str, dict[str, int]] = GRADES) -> Judgements:
    return Judgements("", grades, "query_id")


def page(a: RunFolder, b: RunFolder, judgements: Judgements) -> str:
    return " ".join(printed(diff_page(diff(a, b, judgements, None, 2))).split())


@pytest.mark.slow
def test_means_differences_and_intervals_are_paired(two: tuple[RunFolder, RunFolder]) -> None:
    found = quality(*two, of_queries(), 2)
    assert (found.frame.judged, len(found.frame.keys), found.frame.distinct, found.missing) == (6, 5, 5, (1, 1))
    values = np.array([[BEST, BEST], [SECOND, BEST], [SECOND, BEST], [0, BEST], [BEST, SECOND]])
    ndcg = found.measures["nDCG@10"]
    assert (ndcg.a, ndcg.b) == pytest.approx(tuple(values.mean(axis=0)))
    assert ndcg.difference == pytest.approx(np.mean(values[:, 1] - values[:, 0]))
    assert ndcg.interval == pytest.approx(tuple(stats.ttest_rel(values[:, 1], values[:, 0]).confidence_interval(0.95)))
    moved = values[:, 1] - values[:, 0]
    effect = TTestPower().solve_power(nobs=5, alpha=0.05, power=0.8, alternative="two-sided")
    assert ndcg.detectable == pytest.approx(effect * moved.std(ddof=1), rel=1e-4)
    stored = diff_values(diff(*two, of_queries(), None, 2))["quality"]["measures"]["nDCG@10"]
    assert stored["detectable"] == ndcg.detectable
    words = "smallest difference that these queries show, with a power of 80 % at 0.05: nDCG@10 "
    assert f"{words}{ndcg.detectable:.4f}" in page(*two, of_queries())
    assert ndcg.verdict == stored["verdict"] == "no clear difference"
    assert ndcg.p == pytest.approx(stats.ttest_rel(values[:, 1], values[:, 0]).pvalue)
    assert f" {p_words(ndcg.p)} 3 1 " in page(*two, of_queries())
    assert (ndcg.better, ndcg.worse) == (3, 1)
    assert (found.measures["R@10"].better, found.measures["R@10"].worse) == (1, 0)
    assert found.frame.unjudged.tolist() == [5 / 9, 0.5]


@pytest.mark.slow
def test_who_gained_and_who_lost_most(two: tuple[RunFolder, RunFolder]) -> None:
    found = quality(*two, of_queries(), 2)
    assert found.gained == [  # of equal gains that of the query which is asked more often
        QueryChange(query_id(3), "four", 4, 0.0, pytest.approx(BEST)),
        QueryChange(query_id(2), "three", 9, pytest.approx(SECOND), pytest.approx(BEST)),
    ]
    assert found.lost == [QueryChange(query_id(4), "five", 1, pytest.approx(BEST), pytest.approx(SECOND))]
    words = page(*two, of_queries())
    assert "gained most, by nDCG@10 +1.0000 0.0000 1.0000 4 times four +0.3691 0.6309 1.0000 9 times three" in words
    assert "lost most, by nDCG@10 -0.3691 1.0000 0.6309 once five" in words
    assert "judged in both: 5 distinct queries; left out: 1 not in the log of A, 1 not in the log of B" in words


def test_what_only_one_run_counts_is_left_out(side: Side) -> None:
    a = side("a", ranked(fone=1, ftwo=1, fthree=1), commit=2, finished=False)
    b = side("b", ranked(fone=1, stwo=1, fthree=1, ffour=1))
    found = quality(a, b, of_queries(), 2)
    assert (len(found.frame.keys), found.missing, found.not_committed) == (2, (3, 2), (1, 0))
    assert found.measures["RR@10"].b == 0.75
    assert "1 not committed in A" in page(a, b, of_queries())


def made(keys: dict[str, tuple[str | None, float]], counts: dict[str | None, int]) -> Frame:
    """Values as `measure` finds them: key -> query and the value of every measure."""
    order = sorted(keys, key=lambda key: (keys[key][0] is None, keys[key][0] or ""))
    ids = tuple(keys[key][0] for key in order)
    words = {query_id(0): "one", query_id(1): "two"}
    asked = tuple(AskedQuery(words.get(one or ""), None, counts.get(one, 1)) for one in ids)
    return frame_of(
        [[keys[key][1] for key in order]], keys=tuple(order), query_ids=ids, asked=asked, judged=9,
        rejected=ids.count(None),
    )  # fmt: skip


def paired(
    monkeypatch: pytest.MonkeyPatch, run: RunFolder, a: dict[str, tuple[str | None, float]], b: dict[str, Any]
) -> Paired:
    counts = {query_id(0): 1, query_id(1): 7}
    values = iter([made(a, counts), made(b, counts)])
    monkeypatch.setattr(quality_module, "measure", lambda *_, **__: next(values))
    return quality(run, run, Judgements("", GRADES), 5)


def test_log_rows_of_one_query_are_one_query(monkeypatch: pytest.MonkeyPatch, side: Side) -> None:
    run = side("a", ranked(fone=1, ftwo=7))
    a = {"l1": (query_id(0), 0.0), "l2": (query_id(1), 0.5), "l3": (query_id(0), 0.5)}
    b = {"l3": (query_id(0), 0.5), "l1": (query_id(0), 0.5), "l2": (query_id(1), 0.25)}
    found = paired(monkeypatch, run, a, b)
    assert (len(found.frame.keys), found.frame.distinct) == (3, 2)
    assert (found.measures["P@5"].a, found.measures["P@5"].b) == pytest.approx((1 / 3, 1.25 / 3))
    assert (found.measures["P@5"].better, found.measures["P@5"].worse) == (1, 1)
    assert found.gained == [QueryChange(query_id(0), "one", 1, 0.25, 0.5)]
    assert found.lost == [QueryChange(query_id(1), "two", 7, 0.5, 0.25)]


def test_a_log_id_that_is_another_query_is_left_out(monkeypatch: pytest.MonkeyPatch, side: Side) -> None:
    run = side("a", ranked(fone=1, ftwo=7))
    a = {"l1": (query_id(0), 1.0), "l2": (query_id(1), 1.0), "l3": (None, 0.0)}
    b = {"l1": (query_id(1), 0.0), "l2": (query_id(1), 1.0), "l3": (None, 0.0)}
    found = paired(monkeypatch, run, a, b)
    assert (len(found.frame.keys), found.others, found.frame.distinct) == (2, 1, 2)  # a row that both rejected counts zero
    assert (found.measures["P@5"].a, found.measures["P@5"].b) == (0.5, 0.5)


def test_a_row_that_one_run_rejected_counts_zero_there(monkeypatch: pytest.MonkeyPatch, side: Side) -> None:
    run = side("a", ranked(fone=1, ftwo=7))
    found = paired(monkeypatch, run, {"l1": (None, 0.0), "l2": (query_id(1), 1.0)},
                   {"l1": (query_id(0), 1.0), "l2": (query_id(1), 1.0)})  # fmt: skip
    assert (len(found.frame.keys), found.measures["P@5"].a, found.measures["P@5"].b) == (2, 0.5, 1.0)
    assert found.gained == [QueryChange(query_id(0), "one", 1, 0.0, 1.0)]
