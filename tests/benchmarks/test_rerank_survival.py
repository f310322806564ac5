"""The tests of rerank_survival.py beside scipy's, its parts of queries, and the page beside what was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))

from page_tables import marked, table_of
from perfect_reranker import Perfect
from rerank_survival import CONFIG, MARGIN, PAGE, Outcome, Survival, by_hops, cells, interval, shown, words

from jobs.chain.arms.arms import arms_of
from jobs.config.load import load_config
from jobs.measure.join import StratifiedTest, stratified_test
from jobs.measure.significance import paired_test

HERE = Path(__file__).parent
DRAWN = np.random.default_rng(7)
CONFIGURED = load_config(str(HERE / f"{CONFIG}.yaml"))


def drawn(queries: int, *means: float) -> np.ndarray:
    return np.array([DRAWN.normal(mean, 0.1, queries) for mean in means])


def test_a_gain_has_the_interval_of_the_paired_t_test() -> None:
    series = drawn(40, 0.0, 0.05)
    low, high = stats.ttest_1samp(series[1], 0).confidence_interval(0.95)
    found = stratified_test([paired_test(series, np.arange(40))])
    assert interval(found, 1) == f"{series[1].mean():+.3f} ({low:+.3f} to {high:+.3f})"


def test_the_margin_is_that_of_the_config() -> None:
    assert CONFIGURED.evaluate.min_effect == MARGIN


def test_verdicts() -> None:
    mean, error, freedom = np.array([0.08, 0.001, -0.09, 0.05, 0.0]), np.array([0.01, 0.005, 0.01, 0.03, 0.0]), np.full(5, 99.0)
    p = np.array([*(2 * stats.t.sf(np.abs(mean[:4]) / error[:4], 99.0)), 1.0])
    gains = StratifiedTest(mean, error, mean, mean, p, freedom)
    assert cells(gains) == [r"+0.080\*", "+0.001 =", "-0.090 (worse)", "+0.050", "+0.000 ="]


def test_parts_and_what_a_reranker_takes() -> None:
    values = np.array([[0.5, 0.5, 0.5, 0.5, 0.5, 0.5], [0.9, 0.8, 0.9, 0.7, 0.9, 0.5]])
    keys = ["2hop__1", "2hop__2", "2hop__3", "2hop__4", "2hop__5", "3hop1__1"]
    plain = Outcome("", ["original", "hyde"], keys, values, np.arange(6), 0)
    reranked = plain._replace(values=np.array([[0.6] * 6, [0.7, 0.6, 0.7, 0.5, 0.7, 0.6]]))
    found = Survival(
        {("MuSiQue", "none"): plain, ("MuSiQue", "cross-encoder"): reranked}, ["MuSiQue"], ["none", "cross-encoder"]
    )
    taken = np.mean(reranked.gains()[1] - plain.gains()[1])
    assert f"| hyde | {plain.gains()[1].mean():+.3f} | {taken:+.3f} (" in found.kept()
    row = found.split(by_hops, ("none",)).splitlines()[-1]
    assert row == f"| hyde | 5 | {plain.gains()[1][:5].mean():+.3f}† | 1 | - |"


def test_an_answer_is_found_by_whole_words() -> None:
    assert words("Ada Renn.") in words("It was ada renn, the keeper")
    assert words("Renn") not in words("the Renner of lamps")


def test_the_perfect_reranker_goes_by_the_judgements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query_id": ["q"], "query": ["who kept it"]}), "log.parquet")
    pq.write_table(pa.table({"doc_id": ["1", "2"], "title": ["Sea", ""], "text": ["deep", "a  lamp"]}), "corpus.parquet")
    Path("qrels.tsv").write_text("q\t2\t3\nother\t1\t1\n")
    grades = Perfect(kind="perfect_reranker.py:Perfect").open("cpu")
    assert grades.score(["who kept it"] * 2, ["Sea. deep", "a lamp"]) == [0.0, 3.0]
    with pytest.raises(KeyError):
        grades.score(["who kept it"], ["Sea"])


def test_the_tables_of_the_page_have_the_arms_of_the_config() -> None:
    page = PAGE.read_text(encoding="utf-8")
    arms = [shown(arm.name) for arm in arms_of(CONFIGURED) if arm.name != "original"]
    assert marked(page) == ["gains", "kept", "leaks", "hops"]
    for name in marked(page):
        rows = [row[0] for row in table_of(page, name)[1:]]
        assert rows == (["the original alone: nDCG@10", *arms] if name == "gains" else arms)
    measured = (HERE / "measured" / "rerank-survival.md").read_text(encoding="utf-8")
    for name in marked(page):
        inside = page.partition(f"<!-- table {name} -->")[2].partition(f"<!-- end {name} -->")[0].strip()
        assert inside in measured
