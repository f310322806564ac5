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
from rerank_survival import CONFIG, MARGIN, PAGE, Gains, Outcome, Survival, by_hops, cells, shown, words

from jobs.chain.arms.arms import arms_of
from jobs.config.load import load_config

HERE = Path(__file__).parent
DRAWN = np.random.default_rng(7)
CONFIGURED = load_config(str(HERE / f"{CONFIG}.yaml"))


def drawn(queries: int, *means: float) -> np.ndarray:
    return np.array([DRAWN.normal(mean, 0.1, queries) for mean in means])


def test_one_set_is_the_paired_t_test() -> None:
    series = drawn(40, 0.0, 0.05)
    found = Gains.over_sets([Gains.of(series, np.arange(40))])
    assert found.p == pytest.approx([stats.ttest_1samp(one, 0).pvalue for one in series])
    low, high = stats.ttest_1samp(series[1], 0).confidence_interval(0.95)
    assert found.interval(1) == f"{series[1].mean():+.3f} ({low:+.3f} to {high:+.3f})"


def test_over_sets_it_is_welchs_test_of_the_sum_of_two_means() -> None:
    a, b = drawn(30, 0.02)[0], drawn(80, 0.03)[0] * 3
    found = Gains.over_sets([Gains.of(one[None], np.arange(len(one))) for one in (a, b)])
    wanted = stats.ttest_ind(a, -b, equal_var=False)  # of a - (-b), twice the mean
    assert (found.p[0], found.freedom[0]) == pytest.approx((wanted.pvalue, wanted.df))
    assert found.mean[0] == pytest.approx((a.mean() + b.mean()) / 2)


def test_equivalence_is_two_one_sided_tests_at_the_margin_of_the_config() -> None:
    assert CONFIGURED.evaluate.min_effect == MARGIN
    series = drawn(50, 0.004)
    one_sided = (
        stats.ttest_1samp(series[0], -MARGIN, alternative="greater").pvalue,
        stats.ttest_1samp(series[0], MARGIN, alternative="less").pvalue,
    )
    assert Gains.of(series, np.arange(50)).within[0] == pytest.approx(max(one_sided))


def test_verdicts() -> None:
    error, freedom = np.array([0.01, 0.005, 0.01, 0.03, 0.0]), np.full(5, 99.0)
    gains = Gains(np.array([0.08, 0.001, -0.09, 0.05, 0.0]), error, freedom)
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
