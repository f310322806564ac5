"""The page of an ablation: its figures against those handed in, what it leaves out, what strangers' texts do to it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.measure.comparison import Comparison
from jobs.measure.costs import ArmCost
from jobs.measure.funnel import Funnel
from jobs.measure.significance import holm, paired_test
from jobs.measure.slices import Slice
from jobs.measure.standing import mark, standing, verdict_words
from jobs.measure.worth import Worth
from jobs.pages.ablation import ablation_report
from jobs.pages.ablation.cost_chart import pareto_front
from jobs.pages.ablation.tables import arm_rows, left_out, noise
from jobs.pages.charts import linear
from jobs.pages.closing import ComparedArms
from jobs.plan.work import saved
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import p_words, shown, signed
from tests.support.jobs.report_ablations import (
    ARMS,
    MEASURES,
    ArmOf,
    ablation_at,
    comparison_of,
    costs_of,
    funnel_of,
    query_id,
    values_of,
    worth_of,
)
from tests.support.jobs.report_runs import Page

KEYS = 60
HOSTILE = "</title></style></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&lt;\u202egnp\x00{{ 7*7 }}"


def compared(arms: list[ArmOf] = ARMS, keys: int = KEYS, **further: Any) -> Comparison:
    return comparison_of(arms, values_of(arms, keys), **further)


def html(folder: Path, comparison: Comparison | None, arms: list[ArmOf] = ARMS, **options: Any) -> str:
    tables = {name: options.pop(name) for name in ("results", "rerank") if name in options}
    run = ablation_at(folder, arms, **tables)
    funnel = funnel_of() if comparison else None
    return report_of(run, comparison, funnel, worth_of(), costs_of(arms, comparison), **options)


def report_of(
    run: RunFolder,
    comparison: Comparison | None,
    funnel: Funnel | None = None,
    worth: Sequence[Worth] = (),
    costs: Sequence[ArmCost] = (),
    **options: Any,
) -> str:
    found = ComparedArms(run, None, saved(run), comparison, funnel, worth, costs)
    return ablation_report(found, **options)


# ---------------------------------------------------------------- figures


def test_the_main_table_has_the_figures_of_the_comparison(tmp_path: Path) -> None:
    found = compared()
    page = Page(html(tmp_path, found))
    for number, arm in enumerate(found.frame.arms):
        name = f"{arm} baseline" if arm == found.baseline else arm
        cells = page.row("arms", name)
        means = [f"{value:.4f}" for value in found.frame.values[number].mean(axis=1)]
        assert [cell.rstrip("†‡") for cell in cells[: len(MEASURES)]] == means
        assert cells[-3] == f"{found.frame.condensed[number, 0].mean():.4f}"
        if arm == found.baseline:
            assert cells[len(MEASURES)] == "–"
            continue
        difference = next(one for one in found.differences if (one.arm, one.measure) == (arm, MEASURES[0]))
        assert cells[len(MEASURES)] == signed(difference.difference)
        assert cells[len(MEASURES) + 1] == f"{signed(difference.low)} to {signed(difference.high)}"
        assert cells[len(MEASURES) + 3] == verdict_words(difference, 0.01)
        assert f"{difference.wins} / {difference.ties} / {difference.losses}" in cells
    glance = page.sections["glance"]
    assert f"{len(ARMS)} of {len(ARMS)}" in glance
    assert "9,600" in glance
    assert "87.5 %" in glance


def test_best_and_second_best_are_marked_as_printed() -> None:
    arms = [ArmOf(name) for name in "abcde"] + [ArmOf("bound", members=("a",)), ArmOf("full #2", "samples")]
    values = np.tile(np.array([0.5, 0.50004, 0.4, 0.49999, 0.3, 0.9, 0.8])[:, None, None], (1, len(MEASURES), 4))
    found = standing(comparison_of(arms, values, "e"))
    assert found.best["P@5"] == {"a", "b", "d"}
    assert found.second["P@5"] == {"c"}
    assert found.leader == "b"
    same = standing(comparison_of(arms, np.full_like(values, 0.5), "e"))
    assert same.second["P@5"] == frozenset()


@pytest.mark.parametrize(
    ("p_holm", "q", "p_equivalent", "moved", "sign", "said"),
    [
        (0.049, None, 0.5, 0.1, "†", "better"),
        (0.009, None, 0.5, -0.1, "‡", "worse"),
        (0.05, None, 0.5, 0.1, "", "no clear difference"),
        (0.2, None, 0.04, 0.001, "", "equivalent"),
        (0.001, None, 0.04, 0.001, "‡", "better, by less than 0.01"),
        (None, 0.02, 0.5, 0.1, "†", "better"),
        (None, None, 0.5, 0.1, "", "not tested"),
    ],
)
def test_marks_and_verdicts_are_by_corrected_p(
    p_holm: float | None, q: float | None, p_equivalent: float, moved: float, sign: str, said: str
) -> None:
    one = replace(compared().differences[0], p=0.0001, p_holm=p_holm, q=q, p_equivalent=p_equivalent, difference=moved)
    assert mark(one) == sign
    assert verdict_words(one, 0.01) == said
    assert one.corrected == (q if p_holm is None else p_holm)


def test_leave_one_out_is_the_loss_to_the_whole(tmp_path: Path) -> None:
    comparison = compared()
    found = left_out(standing(comparison))
    assert found is not None
    assert [row.average for row in found.rows] == sorted((row.average for row in found.rows), reverse=True)
    frame = comparison.frame
    whole = frame.values[frame.arms.index("full")]
    for row in found.rows:
        without = frame.values[frame.arms.index(f"without {row.strategy}")]
        assert row.losses == pytest.approx((whole - without).mean(axis=1))
        assert row.average == pytest.approx((whole - without).mean())
        assert (row.worse, row.same, row.better) == tuple(
            int(n) for n in np.bincount(np.sign(without[0] - whole[0]).astype(int) + 1)
        )
    page = Page(html(tmp_path, comparison))
    assert "mean of the losses over the measures of this table" in html(tmp_path, comparison)
    assert "as in Table 4" not in html(tmp_path, comparison)
    cells = page.row("left-out", found.rows[0].strategy)
    assert cells[1] == signed(found.rows[0].losses[0])
    assert cells[-3] == signed(found.rows[0].average)
    tested = [paired_test((whole - of)[:1], frame.clusters).p[0] for of in (
        frame.values[frame.arms.index(f"without {row.strategy}")] for row in found.rows
    )]  # fmt: skip
    assert [row.p for row in found.rows] == pytest.approx(holm(np.array(tested)).tolist())
    assert cells[-2] == p_words(found.rows[0].p)
    without_subsets = [arm for arm in ARMS if arm.family != "subsets"]
    assert left_out(standing(compared(without_subsets))) is None


def test_the_noise_floor_is_that_of_the_samples() -> None:
    comparison = compared()
    found = noise(standing(comparison))
    assert found is not None
    assert found.arms == ["full", "full #2", "full #3"]
    places = [comparison.frame.arms.index(arm) for arm in found.arms]
    means = comparison.frame.values[places, 0].mean(axis=1)
    assert found.rows[0].deviation == pytest.approx(np.std(means, ddof=1))
    assert found.rows[0].greatest == pytest.approx(means.max() - means.min())
    whole = comparison.frame.values[0, 0].mean()
    for arm in found.within:
        assert abs(comparison.frame.values[comparison.frame.arms.index(arm), 0].mean() - whole) <= found.rows[0].greatest
    assert noise(standing(compared(ARMS[:-2]))) is None


# ---------------------------------------------------------------- charts


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_is_cheaper_and_better_than(points: list[tuple[int, int]]) -> None:
    spent = {str(n): float(x) for n, (x, _) in enumerate(points)}
    quality = {str(n): float(y) for n, (_, y) in enumerate(points)}
    front = pareto_front(spent, quality)

    def beaten(arm: str) -> bool:
        return any(
            spent[other] <= spent[arm]
            and quality[other] >= quality[arm]
            and (spent[other], quality[other]) != (spent[arm], quality[arm])
            for other in spent
        )

    assert {(spent[arm], quality[arm]) for arm in spent if not beaten(arm)} == {(spent[arm], quality[arm]) for arm in front}
    assert [spent[arm] for arm in front] == sorted({spent[arm] for arm in front})


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.booleans())
def test_an_axis_holds_its_values_in_order(values: list[float], falling: bool) -> None:
    start, end = (100.0, 0.0) if falling else (0.0, 100.0)
    axis = linear(values, start, end)
    least = 1e-8 * (axis.high - axis.low)
    assert axis.low <= min(values) + least
    assert axis.high >= max(values) - least
    places = [axis.place(value) for value in sorted(values)]
    assert places == sorted(places, reverse=falling)
    assert 2 <= len(axis.ticks) <= 9
    assert all(0 <= place <= 100 for place in map(axis.place, axis.ticks))


# ---------------------------------------------------------------- many arms


@pytest.mark.slow
def test_of_many_arms_the_best_have_rows_and_the_rest_a_compact_table(tmp_path: Path) -> None:
    arms = [*ARMS, *(ArmOf(f"grid {n}", "grid", effect=n / 3000) for n in range(200))]
    comparison = compared(arms, 20)
    rows = arm_rows(standing(comparison))
    assert (len(rows.top), len(rows.top) + len(rows.rest)) == (50, len(arms))
    assert {"original", "full", "general", "keyword"} <= {row.arm for row in rows.top}
    page = Page(html(tmp_path, comparison, arms))
    for row in rows.rest:
        assert page.row("arms", row.arm)[0].rstrip("†‡") == f"{row.means[0].value:.4f}"
    assert f"{len(arms) - 50} more arms" in page.sections["arms"]


# ---------------------------------------------------------------- the page as such


def test_the_page_is_whole_in_itself_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    text = html(tmp_path, compared())
    found = Page(text)
    assert not {tag for tag, _ in found.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in found.tags:
        assert not {name for name in attributes if name.startswith("on") or name in {"src", "action", "srcset"}}, tag
    assert not re.search(r"@import|url\(", text)
    assert set(re.findall(r"https?://[^\s\"<]+", text)) <= {"http://www.w3.org/2000/svg"}
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(attributes["href"])[1:] for _, attributes in found.tags if "href" in attributes} <= set(ids)
    heads = [attributes for tag, attributes in found.tags if tag == "th"]
    assert all(attributes.get("scope") in {"row", "col"} for attributes in heads)
    drawings = [attributes for tag, attributes in found.tags if tag == "svg"]
    assert drawings
    assert all(
        attributes.get("role") == "img" and attributes.keys() & {"aria-label", "aria-labelledby"} for attributes in drawings
    )


def test_strangers_texts_and_names_stay_texts(tmp_path: Path) -> None:
    arms = [*ARMS, ArmOf(HOSTILE, effect=0.3, changes={HOSTILE: HOSTILE})]
    slices = (Slice(HOSTILE, HOSTILE, 40, {"original": (0.1, 0.0), HOSTILE: (0.2, 0.1)}, few=False),)
    comparison = compared(arms, queries=tuple(HOSTILE for _ in range(KEYS)), slices=slices, notes=(HOSTILE,))
    text = html(tmp_path, comparison, arms)
    found = Page(text)
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert [tag for tag, _ in found.tags].count("style") == 1
    assert "img" not in {tag for tag, _ in found.tags}
    assert not [code for code in (*range(9), *range(11, 32), 127, 0x202E) if chr(code) in text]
    assert found.sections["arms"].count(shown(HOSTILE)) == 1
    data = json.loads(re.findall(r'id="scatter-data">(.*?)</script>', text)[0])
    assert data["labels"][0] == shown(HOSTILE, 60)


def test_nothing_that_somebody_wrote_is_on_a_page_without_texts(tmp_path: Path) -> None:
    queries = tuple(f"privateword {n}" for n in range(KEYS))
    comparison = compared(keys=KEYS, queries=queries)
    comparison = replace(comparison, frame=replace(comparison.frame, keys=queries))
    assert "privateword" in html(tmp_path / "a", comparison)
    closed = html(tmp_path / "b", comparison, texts=False)
    assert "privateword" not in closed
    assert query_id(3) in closed


def test_without_judgements_costs_and_worth_are_left(tmp_path: Path) -> None:
    page = Page(html(tmp_path, None))
    assert "Nothing is measured: there are no relevance judgements" in page.sections["glance"]
    assert set(page.sections) & {"arms", "left-out", "queries", "slices", "noise"} == set()
    assert page.row("cost", "full")
    assert page.row("strategies", "general")
