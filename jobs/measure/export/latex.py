"""The means of the arms of a comparison as a LaTeX table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.storage.whole_file import written
from jobs.config.settings import TableSettings
from jobs.measure.compare.comparison_notes import baseline_notes, cut_notes, detectable_notes, named_notes, seed_notes
from jobs.measure.compare.difference import PART
from jobs.measure.compare.side_by_side import MeasureGroup, SideBySide, side_by_side
from jobs.measure.compare.standing import FAMILIES, Standing, cut_mark, paired_arms, places, standing
from jobs.measure.export.latex_captions import (
    bounds_said,
    means_over,
    note_words,
    table_of_pairs,
    table_side_by_side,
    tables_of,
)
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
    renamed,
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
    means = _means(found, measures, groups[0] if table.arms else frame.arms, table)

    def cells(arm: str) -> Iterator[str]:
        yield shown_name(table, arm) + SIGNS[PART] * (arm in comparison.parts)
        yield from means(arm)

    heads = row(["Arm", *map(latex, measures)])
    lines = ruled([[heads], *([row(cells(arm)) for arm in group] for group in groups)])
    return framed(lines, "l" + "r" * len(measures), _caption(found, left_out, table), table)


def _means(
    found: Standing, measures: Sequence[str], arms: Sequence[str], table: TableSettings
) -> Callable[[str], Iterator[str]]:
    """Returns the function from an arm to its cells, with the places among some arms; dashes of an arm that is not measured."""
    frame, digits = found.comparison.frame, table.digits + 2 * table.percent
    able = [arm for arm in arms if found.contends(arm)]
    noise = dict(zip(frame.measures, frame.noise or (0.0,) * len(frame.measures), strict=True))
    placed = {name: places({arm: found.means[arm][name] for arm in able}, noise[name], digits) for name in measures}

    def cells(arm: str) -> Iterator[str]:
        for name in measures:
            if arm not in found.means:
                yield "--"
                continue
            best, second = placed[name]
            place = "best" if arm in best else "second" if arm in second else ""
            yield in_place(mean_words(found.means[arm][name], table), place) + _marks(found.comparison, arm, name, table)

    return cells


def _marks(comparison: Comparison, arm: str, measure: str, table: TableSettings) -> str:
    """Returns the marks of a significant difference and of lists that were cut, and the deviation over seeds."""
    one = comparison.by_arm[arm, measure]
    p = None if comparison.is_baseline(arm) else one.deciding
    return significance(one.difference, p, table) + SIGNS[MARK] * bool(cut_mark(one)) + spread(one.deviation, table)


def latex_side_by_side(found: SideBySide, rows: int = MOST_ROWS, table: TableSettings = DEFAULT_TABLE) -> str:
    r"""Returns the means by all measures, of lists and of answers, as one LaTeX table: `latex_table` has what they are over.

    Args:
        found: the comparisons.
        rows: the most arms; the caption says how many are left out.
        table: digits, marks, caption, label; a table of chosen arms or measures is of one comparison.
    """
    shown, left_out = found.arms[:rows], len(found.arms) - rows
    heads = [rf"\multicolumn{{{len(one.measures)}}}{{c}}{{{latex(TITLES[_kind(one)])}}}" for one in found.groups]
    measures = [latex(name) for one in found.groups for name in one.measures]
    over = [f"{TITLES[_kind(one)].lower()} over {len(one.standing.comparison.frame.keys):,}" for one in found.groups]
    judges = [one.standing.comparison.frame.judge for one in found.groups]
    said = [f"All measures, each over its own queries: {latex(', '.join(over))}", "Best in bold, second best underlined"]
    said += filter(None, [levels(table)])
    said += dict.fromkeys(latex(note) for judge in judges for note in judge_notes(judge))
    said += [f"{left_out:,} arms are left out"] * (left_out > 0)
    groups = [_means(one.standing, one.measures, one.standing.comparison.frame.arms, table) for one in found.groups]

    def cells(arm: str) -> Iterator[str]:
        yield latex(arm)
        for means in groups:
            yield from means(arm)

    body = ruled([[row(["", *heads]), row(["Arm", *measures])], [row(cells(arm)) for arm in shown]])
    return framed(body, "l" + "r" * len(measures), ". ".join(said) + ".", table)


def latex_pairs(comparison: Comparison, table: TableSettings = DEFAULT_TABLE) -> str:
    """Returns `pairs_table` of every two arms by the first measure; nothing where fewer than two of the chosen are compared.

    Raises:
        ConfigError: a chosen measure does not exist.
    """
    return pairs_table(comparison.pairs, comparison.frame.measures, paired_arms(comparison), "paired $t$-test", table)


def _kind(group: MeasureGroup) -> str:
    return group.standing.comparison.frame.kind


def _caption(found: Standing, left_out: int, table: TableSettings) -> str:
    comparison, frame, named = found.comparison, found.comparison.frame, renamed(table)
    families = [name for name in FAMILIES if name in set(comparison.families.values())]
    holm = [name for name in families if name in ("always", "arms", "subsets")]
    of_pairs = "over all pairs of arms of" if comparison.pairs else "within the family of"
    corrections = [f"Holm's correction {of_pairs} {joined(sorted(holm))}"] * bool(holm)
    of_grid = "over all pairs with an arm of the" if comparison.pairs else "within the family"
    corrections += [f"Benjamini-Hochberg $q$ {of_grid} grid"] * ("grid" in families)
    said = [means_over([frame]), "Best in bold, second best underlined"]
    if marks := levels(table):
        tests = f"paired $t$-test, {'; '.join(corrections)}"
        said.append(f"{marks} against {latex(named(comparison.against))}: {tests}")
    said += [latex(note[0].upper() + note[1:]) for note in detectable_notes(comparison, named)]
    said += [latex(note) for note in judge_notes(frame.judge)]
    said += [bounds_said(frame, [shown_name(table, arm) for arm in found.bounds])] * bool(found.bounds)
    said += [f"{SIGNS[MARK]} {latex(note.removeprefix(MARK).strip())}" for note in cut_notes(comparison, named)]
    notes = (of(comparison, named) for of in (named_notes, baseline_notes, seed_notes))
    said += [note_words(note) for some in notes for note in some]
    said += [f"{left_out:,} arms with lower {latex(found.first)} are left out"] * bool(left_out)
    return ". ".join(said) + "."


def write_latex(path: str, *comparisons: Comparison, table: TableSettings = DEFAULT_TABLE) -> None:
    """Writes `latex_table` of each to a local file or an object on S3, and before several of them all measures side by side.

    Of a table of chosen arms or measures there is none side by side. Where every two arms are compared, the tables of pairs
    follow, by the same choices. The caption and the label of `table` are those of the first comparison; the other tables are
    told apart from it.

    Raises:
        ConfigError: a chosen arm or measure does not exist.
    """
    both = None if table.arms or table.measures else side_by_side(comparisons)
    frames = [one.frame for one in comparisons]
    own = tables_of(table, [one.kind for one in frames], [one.measures for one in frames], [one.arms for one in frames])
    each = [(one, of) for one, of in zip(comparisons, own, strict=True) if of is not None]
    tables = [
        *([] if both is None else [latex_side_by_side(both, table=table_side_by_side(table))]),
        *(latex_table(one, table=of) for one, of in each),
    ]
    tables += filter(None, (latex_pairs(one, table_of_pairs(of)) for one, of in each if one.pairs))
    with written(path) as file:
        Path(file).write_text("\n".join(tables), encoding="utf-8")
