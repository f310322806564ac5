"""LaTeX tables of arms on one set and over sets: rows by baselines, seeds, captions and labels, tables of pairs by choice."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import ConfigError
from jobs.config.settings import EvaluateSettings, TableSettings
from jobs.job.baselines import arm_baselines
from jobs.measure.compare.comparison import Comparison, differences
from jobs.measure.compare.pairs import pairs_of
from jobs.measure.export.latex import latex_pairs, latex_table, write_latex
from jobs.measure.export.sets_latex import sets_latex_pairs, sets_latex_table, write_sets_latex
from jobs.measure.frame import JUDGED_LISTS
from jobs.measure.measured_depth import Looked
from jobs.measure.seeds import Seeded
from jobs.measure.sets.over_sets import SetsComparison, compare_over_sets
from tests.support.jobs.report_ablations import MEASURES, ArmOf, comparison_of, values_of

ARMS = [
    ArmOf("original", "always", ()),
    ArmOf("full", "always", effect=0.06),
    ArmOf("low", effect=-0.3),
    ArmOf("high", effect=0.4),
]


def compared(
    number: int = 0, arms: list[ArmOf] = ARMS, keys: int = 10, baselines: Mapping[str, str] | None = None, **frame: Any
) -> Comparison:
    """Every two arms of one set, and each with its baseline; of few queries, whose signs are all flipped in no time."""
    values = frame.pop("values", None)
    one = comparison_of(arms, values_of(arms, keys, seed=number) if values is None else values)
    changed = replace(one.frame, **frame)
    found = one.differences
    if baselines is not None or "seeds" in frame:
        bases = baselines or dict.fromkeys(changed.arms, "original")
        found = tuple(differences(changed, bases, 0.01, one.families, one.oracles))
    name_of = dict(zip(MEASURES, changed.measures, strict=True))
    found = tuple(replace(of, measure=name_of.get(of.measure, of.measure)) for of in found)
    pairs = tuple(pairs_of(changed, [arm.name for arm in arms if not arm.members], one.families, 0.01))
    return replace(one, frame=changed, baselines=baselines or {}, differences=found, pairs=pairs)


@cache
def one_set() -> Comparison:
    return compared()


def over_two(arms: list[ArmOf] = ARMS, baselines: Mapping[str, str] | None = None, **frame: Any) -> SetsComparison:
    return compare_over_sets({name: compared(n, arms, 10 + n, baselines, **frame) for n, name in enumerate(("one", "two"))})


@cache
def two_sets() -> SetsComparison:
    return over_two()


def with_frame(found: SetsComparison, **frame: Any) -> SetsComparison:
    """Of other things, or by other keys."""
    return replace(found, sets={name: replace(one, frame=replace(one.frame, **frame)) for name, one in found.sets.items()})


def caption(table: str) -> str:
    return table.partition(r"\caption{")[2].partition("}\n")[0]


def rows_of(table: str) -> list[str]:
    """The lines between the first rule below the heads and the last: rows and rules."""
    return table.partition(r"\midrule" + "\n")[2].partition(r"\bottomrule")[0].splitlines()


def names_of(table: str) -> list[str]:
    return [line.partition(" & ")[0] for line in rows_of(table) if line != r"\midrule"]


# ---------------------------------------------------------------- rows


def test_a_baseline_that_has_one_itself_has_one_row() -> None:
    bases = arm_baselines(EvaluateSettings(baselines={"high": "original", "low": "high"}), [arm.name for arm in ARMS])
    assert bases == {"original": "original", "full": "original", "low": "high", "high": "original"}
    for table in (latex_table(compared(baselines=bases)), sets_latex_table(over_two(baselines=bases))):
        lines = [line.partition(" & ")[0] for line in rows_of(table)]
        assert lines[:2] == ["original", r"\midrule"]
        assert set(lines[2:4]) == {"high", "full"}
        assert lines[4:] == [r"\midrule", "low"]
        assert "against its baseline" in table
        assert "compared with high: low" in table


@pytest.mark.parametrize("over", [False, True])
def test_whatever_the_baselines_each_row_stands_once_and_the_others_are_counted(over: bool) -> None:
    draw = random.Random(11)
    arms = [ArmOf("original", "always", ()), *(ArmOf(f"a{n}", effect=draw.uniform(-0.2, 0.2)) for n in range(9))]
    one, sets = compared(3, arms), over_two(arms)
    for _ in range(60):
        bases = {"original": "original"}
        for name in [arm.name for arm in arms[1:]]:
            bases[name] = draw.choice([name, "original", *bases])
        rows = draw.randint(1, len(arms) + 1)
        found = replace(one, baselines=bases)  # the figures are those of other baselines, which rows do not depend on
        if over:
            each = {name: replace(of, baselines=bases) for name, of in sets.sets.items()}
            table = sets_latex_table(replace(sets, sets=each), rows=rows)
        else:
            table = latex_table(found, rows=rows)
        shown, lines = names_of(table), rows_of(table)
        assert shown[0] == "original"
        assert len(shown) == len(set(shown)) <= rows
        assert all(bases[name] in shown for name in shown)
        counted = re.search(r"([\d,]+) arms with lower", table)
        assert len(shown) + (int(counted[1]) if counted else 0) == len(arms)
        assert (rows < len(arms)) <= (len(shown) < len(arms))
        assert lines[0] != r"\midrule" != lines[-1]
        assert all({*two} != {r"\midrule"} for two in pairwise(lines))
        groups = "\n".join(line.partition(" & ")[0] for line in lines).split("\n\\midrule\n")
        assert all(
            len({bases[name] for name in group.splitlines()}) == 1 for group in groups
        )  # nothing is compared across a rule


def test_a_further_baseline_beyond_the_rows_is_left_out_and_counted() -> None:
    arms = [ArmOf("original", "always", ()), *(ArmOf(f"a{n}", effect=0.02) for n in range(57)), ArmOf("low", effect=-0.3),
            ArmOf("lower", effect=-0.3)]  # fmt: skip
    bases = {arm.name: "original" for arm in arms} | {"low": "low", "lower": "low"}
    table = latex_table(replace(comparison_of(arms, values_of(arms, 8)), baselines=bases))
    assert len(names_of(table)) == 50
    assert "10 arms with lower nDCG@10 are left out" in table


def test_a_name_that_begins_as_an_argument_of_latex_is_a_cell() -> None:
    arms = [
        ArmOf("original", "always", ()),
        ArmOf("[2] prompts", effect=0.02),
        ArmOf("*best", effect=0.04),
        ArmOf(" [3]", effect=0.01),
    ]
    one, chosen = compared(0, arms), TableSettings(arms={"original": "[BM25]", "*best": "Ours"})
    for table in (latex_table(one), latex_table(one, table=chosen), sets_latex_table(over_two(arms)), latex_pairs(one)):
        assert not re.search(r"(\\\\|rule)\s*[\[*]", table)
    assert {"{}[2] prompts", "{}*best", "{} [3]", "original"} == set(names_of(latex_table(one)))


# ---------------------------------------------------------------- marks


@pytest.mark.parametrize("percent", [False, True])
def test_means_on_a_set_have_the_deviation_over_seeds(percent: bool) -> None:
    answers = {name: np.random.default_rng(n).random((3, len(MEASURES), 10 + n)) for n, name in enumerate(("one", "two"))}

    def seeded(name: str, number: int) -> Comparison:
        plain = compared(number, keys=10 + number)
        values = plain.frame.values.copy()
        for arm in ("original", "high"):
            values[plain.frame.arms.index(arm)] = answers[name].mean(axis=0)
        seeds = {arm: Seeded((arm, f"{arm} #2", f"{arm} #3"), answers[name]) for arm in ("original", "high")}
        return compared(number, keys=10 + number, values=values, seeds=seeds)

    found = compare_over_sets({name: seeded(name, n) for n, name in enumerate(answers)})
    table = sets_latex_table(found, TableSettings(digits=3, percent=percent))
    rows = {line.partition(" & ")[0]: line.removesuffix(r" \\").split(" & ")[1:] for line in rows_of(table)}
    wanted = [of[:, place].mean(axis=1).std(ddof=1) for of in answers.values() for place in range(len(MEASURES))]
    for arm in ("original", "high"):
        shown = [re.findall(r"\$\\pm\$([\d.]+)", cell) for cell in rows[arm]]
        assert shown[:8] == [[f"{100 * value if percent else value:.3f}"] for value in wanted]
        assert shown[8:] == [[]] * 5  # the mean over sets, and the sets won
    assert r"\pm" not in "".join(rows["low"])
    assert caption(table).count(r"$\pm$ original, high: mean and standard deviation of 3 seeds") == 1


def test_lists_that_were_cut_are_marked_in_each_row_of_a_set_and_in_the_mean() -> None:
    sets = {name: compared(n) for n, name in enumerate(("one", "two"))}
    of_two = {(one.arm, one.measure): one for one in sets["two"].differences}
    cut = of_two | {("original", "P@5"): replace(of_two["original", "P@5"], looked=Looked(5, 4.0, 3))}
    found = compare_over_sets(sets | {"two": replace(sets["two"], differences=tuple(cut.values()))})
    table = sets_latex_table(found)
    marked = [line.partition(" & ")[0] for line in rows_of(table) if "$^{*}$" in line]
    assert marked == ["original"]
    cells = next(line for line in rows_of(table) if line.startswith("original")).split(" & ")
    assert [place for place, cell in enumerate(cells) if "$^{*}$" in cell] == [1 + 4 + 2, 1 + 8 + 2]


# ---------------------------------------------------------------- captions and labels


def test_a_caption_says_what_is_measured_on_one_set_as_over_several() -> None:
    bound = [*ARMS, ArmOf("best of two", effect=0.3, members=("full", "low"))]
    of_lists, of_answers = (whole := over_two(bound)), with_frame(whole, kind="answers", key="log_id")
    said = caption(sets_latex_table(of_lists))
    assert said.startswith("Means over the judged queries of one (10) and two (11); queries without results count zero.")
    assert "Upper bounds that choose by judgements: best of two" in said
    said = caption(sets_latex_table(of_answers))
    assert said.startswith(
        "Answers: means over the log rows with gold answers of one (10) and two (11); queries without an answer count zero."
    )
    assert "Upper bounds that choose by gold answers: best of two" in said
    assert caption(latex_table(compared(0, bound, kind="answers"))).startswith(
        "Answers: means over 10 queries with gold answers;"
    )
    assert caption(latex_table(compared(kind="accuracy"))).startswith(
        "Accuracy: means over 10 judged queries; queries without an"
    )
    both = compare_over_sets({"one": one_set(), "two": compared(1, key="log_id")})
    assert "the judged queries and log rows of one" in caption(sets_latex_table(both))


@pytest.mark.parametrize("own", ["Main.", "Main", ""])
@pytest.mark.parametrize("sets", [False, True])
def test_tables_of_one_file_have_captions_and_labels_of_their_own(tmp_path: Path, own: str, sets: bool) -> None:
    path, table = tmp_path / "t.tex", TableSettings(label="tab:main", caption=own)
    if sets:
        write_sets_latex(
            str(path),
            two_sets(),
            with_frame(two_sets(), kind=JUDGED_LISTS),
            with_frame(two_sets(), kind="answers"),
            table=table,
        )
    else:
        judged, answers = (replace(one_set(), frame=replace(one_set().frame, kind=kind)) for kind in (JUDGED_LISTS, "answers"))
        write_latex(str(path), one_set(), judged, answers, table=table)
    text = path.read_text()
    labels = [*([] if sets else ["-measures"]), "", "-relevance", "-answers", "-pairs", "-relevance-pairs", "-answers-pairs"]
    assert re.findall(r"\\label\{(.*)\}", text) == [f"tab:main{suffix}" for suffix in labels]
    captions = re.findall(r"\\caption\{(.*)\}", text)
    assert len(set(captions)) == len(labels)
    if not sets:
        assert captions.pop(0) == {"Main.": "Main: all measures.", "Main": "Main: all measures", "": "all measures"}[own]
    assert captions[0] == own
    assert (
        captions[2:4]
        == {
            "Main.": ["Main: answers, against gold answers.", "Main: every two arms."],
            "Main": ["Main: answers, against gold answers", "Main: every two arms"],
            "": ["answers, against gold answers", "every two arms"],
        }[own]
    )
    assert text.count("corrected over all 6 pairs") == 3  # below the tables


def test_without_the_measures_of_lists_the_table_of_answers_has_the_label(tmp_path: Path) -> None:
    path, answers = tmp_path / "t.tex", compared(kind="answers", measures=("F1", "EM", "a", "b"))
    write_latex(str(path), one_set(), answers, table=TableSettings(label="tab:main", measures=["EM", "F1"]))
    text = path.read_text()
    assert re.findall(r"\\label\{(.*)\}", text) == ["tab:main", "tab:main-pairs"]
    assert "Differences in EM, row less column" in text
    assert "nDCG" not in text


def test_all_measures_stand_side_by_side_with_the_digits_and_marks_of_the_table(tmp_path: Path) -> None:
    path, answers = tmp_path / "t.tex", compared(3, keys=12, kind="answers", measures=("F1", "EM", "a", "b"))
    table = TableSettings(digits=1, percent=True, marks="direction", label="tab:main")
    write_latex(str(path), one_set(), answers, table=table)
    first, second, third = path.read_text().split(r"\end{table}")[:3]
    assert r"\label{tab:main-measures}" in first
    assert "better and" in caption(first)
    assert "dagger" not in first
    both, own, other = (
        {cells[0]: cells[1:] for line in rows_of(one) if (cells := line.removesuffix(r" \\").split(" & "))[1:]}
        for one in (first, second, third)
    )
    assert both == {arm: own[arm] + other[arm] for arm in own}
    for chosen in (TableSettings(arms=["low"]), TableSettings(measures=["nDCG@10"])):
        write_latex(str(path), one_set(), answers, table=chosen)
        assert "All measures" not in path.read_text()


def test_side_by_side_an_arm_that_a_kind_does_not_measure_has_dashes(tmp_path: Path) -> None:
    path, answers = tmp_path / "t.tex", compared(3, ARMS[:3], 12, kind="answers", measures=("F1", "EM", "a", "b"))
    write_latex(str(path), one_set(), answers)
    row = next(line for line in rows_of(path.read_text()) if line.startswith("high"))
    assert row.endswith(r"-- & -- & -- & -- \\")
    assert row.count("--") == 4


def test_captions_call_arms_as_the_table_does() -> None:
    names = {"original": "BM25", "high": "Ours_1", "low": "Lower"}
    table = TableSettings(arms=names)
    bases = {"original": "original", "full": "original", "low": "high", "high": "original"}
    changes: dict[str, Any] = {"parts": {"high": ("a", "b")}, "same_as": {"low": "high"}, "also": {"original": ("low",)}}
    answers = np.random.default_rng(5).random((2, 3, 4, 10))
    seeds = {arm: Seeded((arm, f"{arm} #2", f"{arm} #3"), answers[n]) for n, arm in enumerate(("original", "high"))}
    one = replace(compared(baselines=bases, seeds=seeds), **changes)
    sets = compare_over_sets({"one": one, "two": replace(compared(1, baselines=bases, seeds=seeds), **changes)})
    plain = caption(latex_table(one)), caption(sets_latex_table(sets))
    assert all("compared with high: low" in said and "low is high under another name" in said for said in plain)
    for said in (caption(latex_table(one, table=table)), caption(sets_latex_table(sets, table))):
        assert r"compared with Ours\_1: Lower" in said
        assert r"Lower is Ours\_1 under another name" in said
        assert r"$^{\S}$ Ours\_1: texts are parts" in said
        assert "BM25 is also Lower" in said
        assert r"$\pm$ BM25, Ours\_1: mean and standard deviation of 3 seeds" in said
        assert "one seed: full, Lower" in said
    shown = caption(latex_table(one, table=table))
    assert re.search(r"with a power of 80 .* at 0\.05 .*: \.?\d\S* \((Ours\\_1|Lower|full)\)", shown), shown


# ---------------------------------------------------------------- pairs


@pytest.mark.parametrize("over", [False, True])
def test_the_table_of_pairs_has_the_chosen_arms_measure_digits_and_marks(over: bool) -> None:
    table = TableSettings(
        arms={"low": "L_1", "high": "Ours", "original": "BM25"}, measures=["R@10"], digits=1, percent=True, marks="direction"
    )
    one, found = compared(keys=12), two_sets()
    pairs = sets_latex_pairs(found, table) if over else latex_pairs(one, table)
    rows = [line.removesuffix(r" \\").split(" & ") for line in rows_of(pairs)]
    assert [row[0] for row in rows] == [r"(1) L\_1", "(2) Ours", "(3) BM25"]
    frames = [of.frame for of in found.sets.values()] if over else [one.frame]
    means = [
        100 * np.mean([frame.values[frame.arms.index(arm), 1].mean() for frame in frames])
        for arm in ("low", "high", "original")
    ]
    p_of = {
        frozenset((pair.arm, pair.other)): pair.corrected for pair in (found if over else one).pairs if pair.measure == "R@10"
    }
    significant = 0
    for n, row in enumerate(rows):
        assert row[1 + n] == "--"
        for m in {0, 1, 2} - {n}:
            cell, difference = row[1 + m], means[n] - means[m]
            value = re.fullmatch(r"(\+|\$-\$)(\d+\.\d)(?:\$\^\{((?:\\uparrow|\\downarrow)+)\}\$)?", cell)
            assert value is not None
            assert (value[1] == "+") == (difference > 0)
            assert float(value[2]) == pytest.approx(abs(difference), abs=0.0501)
            p = p_of[frozenset(name for name, place in (("low", 0), ("high", 1), ("original", 2)) if place in (n, m))]
            assert p is not None
            arrow = r"\uparrow" if difference > 0 else r"\downarrow"
            assert (value[3] or "") == arrow * ((p < 0.05) + (p < 0.01))
            significant += p < 0.05
    assert significant > 0
    assert "better" in caption(pairs)
    assert "corrected over all 6 pairs" in caption(pairs)
    none = TableSettings(marks="none")
    assert "p <" not in (plain := sets_latex_pairs(found, none) if over else latex_pairs(one, none))
    assert "dagger" not in plain


def test_there_is_no_table_of_pairs_of_one_chosen_arm_nor_of_a_choice_that_a_kind_lacks(tmp_path: Path) -> None:
    assert latex_pairs(one_set(), TableSettings(arms=["low"])) == ""
    with pytest.raises(ConfigError, match=r"ablate\.table\.measures: 'AP' is not measured"):
        latex_pairs(one_set(), TableSettings(measures=["AP"]))
    path = tmp_path / "t.tex"
    write_latex(str(path), one_set(), table=TableSettings(arms=["low"]))
    assert path.read_text() == latex_table(one_set(), table=TableSettings(arms=["low"]))
    write_sets_latex(
        str(path), two_sets(), over_two(kind="answers", measures=("F1", "EM", "a", "b")), table=TableSettings(measures=["F1"])
    )
    assert path.read_text().count("Differences in F1") == 1
    assert path.read_text().count(r"\begin{table}") == 2


def test_all_chosen_arms_have_a_row_among_the_pairs_and_else_the_twelve_best() -> None:
    arms = [ArmOf("original", "always", ()), *(ArmOf(f"a{n:02d}", effect=0.01 * n) for n in range(14))]
    one = compared(0, arms, 5)
    assert len(names_of(latex_pairs(one))) == 12
    assert "3 arms with lower nDCG@10 are left out" in latex_pairs(one)
    chosen = [arm.name for arm in arms]
    every = latex_pairs(one, TableSettings(arms=chosen))
    assert names_of(every) == [f"({n}) {name}" for n, name in enumerate(chosen, start=1)]
    assert "left out" not in every
