"""The means of the arms of a comparison as a LaTeX table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cluster.storage.whole_file import written
from jobs.config.settings import TableSettings
from jobs.measure.compare.comparison_notes import cut_notes, named_notes
from jobs.measure.compare.difference import PART
from jobs.measure.compare.side_by_side import ArmMean, MeasureGroup, SideBySide, side_by_side
from jobs.measure.compare.standing import FAMILIES, PLACES, Standing, cut_mark, places, standing
from jobs.measure.export.latex_cells import (
    SIGNS,
    chosen_arms,
    chosen_measures,
    framed,
    in_place,
    joined,
    latex,
    levels,
    mean_words,
    shown_name,
    significance,
    tables_of,
)
from jobs.measure.measured_depth import MARK
from jobs.measure.notes import TITLES, judge_notes

if TYPE_CHECKING:
    from jobs.measure.compare.comparison import Comparison

MOST_ROWS = 50
_DEFAULT = TableSettings()
_KEYS = {"log_id": "log rows", "query_id": "queries", "query": "queries"}


def latex_table(comparison: Comparison, rows: int = MOST_ROWS, table: TableSettings = _DEFAULT) -> str:
    r"""Returns the means of the arms as a LaTeX table (booktabs): best bold, second best underlined, marks.

    Where no arms are chosen, the baseline stands first, and the others follow by the first measure. Needs
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
    arms, left_out = chosen_arms(table, found.ordered(), comparison.baseline, rows)
    able = [arm for arm in (arms if table.arms else frame.arms) if found.contends(arm)]
    noise = dict(zip(frame.measures, frame.noise or (0.0,) * len(frame.measures), strict=True))
    digits = table.digits + 2 * table.percent
    placed = {name: places({arm: found.means[arm][name] for arm in able}, noise[name], digits) for name in measures}
    lines = [" & ".join(["Arm", *map(latex, measures)]) + r" \\", r"\midrule"]
    for number, arm in enumerate(arms):
        cells = [shown_name(table, arm) + SIGNS[PART] * (arm in comparison.parts)]
        for name in measures:
            best, second = placed[name]
            place = "best" if arm in best else "second" if arm in second else ""
            cells.append(in_place(mean_words(found.means[arm][name], table), place) + _marks(comparison, arm, name, table))
        lines.append(" & ".join(cells) + r" \\")
        if number == 0 and not table.arms:
            lines.append(r"\midrule")
    return framed(lines, "l" + "r" * len(measures), _caption(found, left_out, table), table)


def _marks(comparison: Comparison, arm: str, measure: str, table: TableSettings) -> str:
    """Returns the marks of a significant difference to the baseline, and of lists that were cut."""
    one = comparison.by_arm[arm, measure]
    p = None if arm == comparison.baseline or one.within_noise else one.corrected
    return significance(one.difference, p, table) + SIGNS[MARK] * bool(cut_mark(one))


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
    said += [f"Best in bold, second best underlined. {levels(_DEFAULT)}"]
    said += dict.fromkeys(latex(note) for judge in judges for note in judge_notes(judge))
    said += [f"{left_out:,} arms are left out"] * (left_out > 0)
    lines = [
        r"\begin{table}", r"\centering", rf"\caption{{{'. '.join(said)}.}}",
        rf"\begin{{tabular}}{{l{'r' * len(measures)}}}", r"\toprule",
        " & ".join(["", *heads]) + r" \\",
        " & ".join(["Arm", *measures]) + r" \\", r"\midrule",
        *(" & ".join([latex(arm), *map(_cell, found.means(arm))]) + r" \\" for arm in shown),
        r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _kind(group: MeasureGroup) -> str:
    return group.standing.comparison.frame.kind


def _cell(one: ArmMean | None) -> str:
    """Returns a mean with its place and marks; a dash where the arm is not measured."""
    if one is None:
        return "--"
    return in_place(f"{one.value:.{PLACES}f}", one.place) + "".join(SIGNS[sign] for sign in one.mark)


def _caption(found: Standing, left_out: int, table: TableSettings) -> str:
    comparison, frame = found.comparison, found.comparison.frame
    families = [name for name in FAMILIES if name in set(comparison.families.values())]
    holm = [name for name in families if name in ("always", "arms", "subsets")]
    corrections = [f"Holm's correction within the family of {joined(holm)}"] * bool(holm)
    corrections += ["Benjamini-Hochberg $q$ within the family grid"] * ("grid" in families)
    keys = f"{len(frame.keys):,} {'' if frame.gold else 'judged '}{_KEYS[frame.key]}"
    of, by = ("with gold answers", "gold answers") if frame.gold else ("", "judgements")
    without = "an answer" if frame.answers else "results"
    said = [
        f"Means over {' '.join(filter(None, [keys, of]))}; queries without {without} count zero",
        "Best in bold, second best underlined",
    ]
    if marks := levels(table):
        tests = f"paired $t$-test, {'; '.join(corrections)}"
        said.append(f"{marks} against {shown_name(table, comparison.baseline)}: {tests}")
    said += [latex(note) for note in judge_notes(frame.judge)]
    bounds = joined([shown_name(table, arm) for arm in found.bounds])
    said += [f"Upper bounds that choose by {by}: {bounds}"] * bool(bounds)
    said += [f"{SIGNS[MARK]} {latex(note.removeprefix(MARK).strip())}" for note in cut_notes(comparison)]
    said += [_named(note) for note in named_notes(comparison)]
    said += [f"{left_out:,} arms with lower {latex(found.first)} are left out"] * bool(left_out)
    return ". ".join(said) + "."


def _named(note: str) -> str:
    return f"{SIGNS[PART]} {latex(note.removeprefix(PART).strip())}" if note.startswith(PART) else latex(note)


def write_latex(path: str, *comparisons: Comparison, table: TableSettings = _DEFAULT) -> None:
    """Writes `latex_table` of each to a local file or an object on S3, and before several of them all measures side by side.

    Of a table of chosen arms or measures there is none side by side.

    Raises:
        ConfigError: a chosen arm or measure does not exist.
    """
    both = side_by_side(comparisons) if table == _DEFAULT else None
    each = zip(comparisons, tables_of(table, [one.frame.measures for one in comparisons]), strict=True)
    tables = [*([] if both is None else [latex_side_by_side(both)]), *(latex_table(one, table=of) for one, of in each if of)]
    with written(path) as file:
        Path(file).write_text("\n".join(tables), encoding="utf-8")
