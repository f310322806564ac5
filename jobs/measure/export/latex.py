"""The means of the arms of a comparison as a LaTeX table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.storage.whole_file import written
from jobs.config.settings import TableSettings
from jobs.measure.compare.comparison_notes import baseline_notes, cut_notes, detectable_notes, named_notes, seed_notes
from jobs.measure.compare.difference import PART
from jobs.measure.compare.side_by_side import ArmMean, MeasureGroup, SideBySide, side_by_side
from jobs.measure.compare.standing import FAMILIES, Standing, cut_mark, paired_arms, places, standing
from jobs.measure.export.latex_captions import bounds_said, means_over, note_words, table_of_pairs, tables_of
from jobs.measure.export.latex_cells import (
    DEFAULT_TABLE,
    MOST_ROWS,
    SIGNS,
    chosen_arms,
    chosen_measures,
    framed,
    in_place,
    joined,
    latex,
    levels,
    mean_words,
    row,
    ruled,
    shown_name,
    significance,
    spread,
)
from jobs.measure.export.latex_pairs import pairs_table
from jobs.measure.measured_depth import MARK
from jobs.measure.notes import TITLES, judge_notes

if TYPE_CHECKING:
    from jobs.measure.compare.comparison import Comparison


def latex_table(comparison: Comparison, rows: int = MOST_ROWS, table: TableSettings = DEFAULT_TABLE) -> str:
    r"""Returns the means of the arms as a LaTeX table (booktabs): best bold, second best underlined, marks.

    Where no arms are chosen, the baseline stands first, and the others follow by the first measure; of several baselines each
    before its own arms. Needs
    `\usepackage{booktabs}` and, for quotation marks in names, `\usepackage[T1]{fontenc}`.

    Args:
        comparison: of the arms.
        rows: the most arms, where none are chosen; the caption says how many are left out.
        table: choice of arms and measures, digits, marks, caption, label.

    Raises:
        ConfigError: a chosen arm or measure does not exist.
    """
    found, frame = standing(comparison), comparison.frame
    measures = chosen_measures(table, frame.measures)
    groups, left_out = chosen_arms(table, found.ordered(), comparison.baseline, comparison.base_of, rows)
    able = [arm for arm in (groups[0] if table.arms else frame.arms) if found.contends(arm)]
    noise = dict(zip(frame.measures, frame.noise or (0.0,) * len(frame.measures), strict=True))
    digits = table.digits + 2 * table.percent
    placed = {name: places({arm: found.means[arm][name] for arm in able}, noise[name], digits) for name in measures}

    def cells(arm: str) -> Iterator[str]:
        yield shown_name(table, arm) + SIGNS[PART] * (arm in comparison.parts)
        for name in measures:
            best, second = placed[name]
            place = "best" if arm in best else "second" if arm in second else ""
            yield in_place(mean_words(found.means[arm][name], table), place) + _marks(comparison, arm, name, table)

    heads = row(["Arm", *map(latex, measures)])
    lines = ruled([[heads], *([row(cells(arm)) for arm in group] for group in groups)])
    return framed(lines, "l" + "r" * len(measures), _caption(found, left_out, table), table)


def _marks(comparison: Comparison, arm: str, measure: str, table: TableSettings) -> str:
    """Returns the marks of a significant difference and of lists that were cut, and the deviation over seeds."""
    one = comparison.by_arm[arm, measure]
    p = None if comparison.is_baseline(arm) else one.deciding
    return significance(one.difference, p, table) + SIGNS[MARK] * bool(cut_mark(one)) + spread(one.deviation, table)


def latex_side_by_side(found: SideBySide, rows: int = MOST_ROWS) -> str:
    r"""Returns the means by all measures, of lists and of answers, as one LaTeX table: `latex_table` has what they are over.

    Args:
        found: the comparisons.
        rows: the most arms; the caption says how many are left out.
    """
    shown, left_out = found.arms[:rows], len(found.arms) - rows
    heads = [rf"\multicolumn{{{len(one.measures)}}}{{c}}{{{latex(TITLES[_kind(one)])}}}" for one in found.groups]
    measures = [latex(name) for one in found.groups for name in one.measures]
    over = [f"{TITLES[_kind(one)].lower()} over {len(one.standing.comparison.frame.keys):,}" for one in found.groups]
    judges = [one.standing.comparison.frame.judge for one in found.groups]
    said = [f"All measures, each over its own queries: {latex(', '.join(over))}"]
    said += [f"Best in bold, second best underlined. {levels(DEFAULT_TABLE)}"]
    said += dict.fromkeys(latex(note) for judge in judges for note in judge_notes(judge))
    said += [f"{left_out:,} arms are left out"] * (left_out > 0)
    lines = [
        r"\begin{table}", r"\centering", rf"\caption{{{'. '.join(said)}.}}",
        rf"\begin{{tabular}}{{l{'r' * len(measures)}}}", r"\toprule",
        row(["", *heads]),
        row(["Arm", *measures]), r"\midrule",
        *(row([latex(arm), *map(_cell, found.means(arm))]) for arm in shown),
        r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def latex_pairs(comparison: Comparison, table: TableSettings = DEFAULT_TABLE) -> str:
    """Returns `pairs_table` of every two arms by the first measure; nothing where fewer than two of the chosen are compared.

    Raises:
        ConfigError: a chosen measure does not exist.
    """
    return pairs_table(comparison.pairs, comparison.frame.measures, paired_arms(comparison), "paired $t$-test", table)


def _kind(group: MeasureGroup) -> str:
    return group.standing.comparison.frame.kind


def _cell(one: ArmMean | None) -> str:
    """Returns a mean with its place and marks; a dash where the arm is not measured."""
    if one is None:
        return "--"
    marks = "".join(SIGNS[sign] for sign in one.mark) + spread(one.deviation, DEFAULT_TABLE)
    return in_place(mean_words(one.value, DEFAULT_TABLE), one.place) + marks


def _caption(found: Standing, left_out: int, table: TableSettings) -> str:
    comparison, frame = found.comparison, found.comparison.frame
    families = [name for name in FAMILIES if name in set(comparison.families.values())]
    holm = [name for name in families if name in ("always", "arms", "subsets")]
    of_pairs = "over all pairs of arms of" if comparison.pairs else "within the family of"
    corrections = [f"Holm's correction {of_pairs} {joined(sorted(holm))}"] * bool(holm)
    of_grid = "over all pairs with an arm of the" if comparison.pairs else "within the family"
    corrections += [f"Benjamini-Hochberg $q$ {of_grid} grid"] * ("grid" in families)
    said = [means_over([frame]), "Best in bold, second best underlined"]
    if marks := levels(table):
        tests = f"paired $t$-test, {'; '.join(corrections)}"
        against = shown_name(table, comparison.baseline) if len(comparison.of_baselines) == 1 else comparison.against
        said.append(f"{marks} against {against}: {tests}")
    said += [latex(note[0].upper() + note[1:]) for note in detectable_notes(comparison)]
    said += [latex(note) for note in judge_notes(frame.judge)]
    said += [bounds_said(frame, [shown_name(table, arm) for arm in found.bounds])] * bool(found.bounds)
    said += [f"{SIGNS[MARK]} {latex(note.removeprefix(MARK).strip())}" for note in cut_notes(comparison)]
    said += [note_words(note) for note in (*named_notes(comparison), *baseline_notes(comparison), *seed_notes(comparison))]
    said += [f"{left_out:,} arms with lower {latex(found.first)} are left out"] * bool(left_out)
    return ". ".join(said) + "."


def write_latex(path: str, *comparisons: Comparison, table: TableSettings = DEFAULT_TABLE) -> None:
    """Writes `latex_table` of each to a local file or an object on S3, and before several of them all measures side by side.

    Of a table of chosen arms or measures there is none side by side. Where every two arms are compared, the tables of pairs
    follow, by the same choices. The caption and the label of `table` are those of the first; the others are told apart from it.

    Raises:
        ConfigError: a chosen arm or measure does not exist.
    """
    both = side_by_side(comparisons) if table == DEFAULT_TABLE else None
    frames = [one.frame for one in comparisons]
    own = tables_of(table, [one.kind for one in frames], [one.measures for one in frames], [one.arms for one in frames])
    each = [(one, of) for one, of in zip(comparisons, own, strict=True) if of is not None]
    tables = [*([] if both is None else [latex_side_by_side(both)]), *(latex_table(one, table=of) for one, of in each)]
    tables += filter(None, (latex_pairs(one, table_of_pairs(of)) for one, of in each if one.pairs))
    with written(path) as file:
        Path(file).write_text("\n".join(tables), encoding="utf-8")
