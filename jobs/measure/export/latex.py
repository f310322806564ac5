"""The means of the arms of a comparison as a LaTeX table."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.storage.whole_file import written
from jobs.measure.compare.comparison_notes import cut_notes, named_notes
from jobs.measure.compare.difference import PART
from jobs.measure.compare.side_by_side import ArmMean, MeasureGroup, SideBySide, side_by_side
from jobs.measure.compare.standing import FAMILIES, MARKS, PLACES, Standing, standing
from jobs.measure.measured_depth import MARK
from jobs.measure.notes import TITLES, judge_notes

if TYPE_CHECKING:
    from jobs.measure.compare.comparison import Comparison

MOST_ROWS = 50
_KEYS = {"log_id": "log rows", "query_id": "queries", "query": "queries"}
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip
_SIGNS = {"†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", MARK: r"$^{*}$", PART: r"$^{\S}$"}


def latex(text: str) -> str:
    """Returns a text in which every character of LaTeX's own stands for itself; control characters become spaces."""
    return "".join(_SPECIAL.get(char, char if char.isprintable() else " ") for char in text)


def latex_table(comparison: Comparison, rows: int = MOST_ROWS) -> str:
    r"""Returns the means of the arms as a LaTeX table (booktabs): best bold, second best underlined, daggers.

    The baseline stands first, the others follow by the first measure. Differences in either direction are marked. Needs
    `\usepackage{booktabs}` and, for quotation marks in names, `\usepackage[T1]{fontenc}`.

    Args:
        comparison: of the arms.
        rows: the most arms; the caption says how many are left out.
    """
    found = standing(comparison)
    measures, baseline = comparison.frame.measures, comparison.baseline
    others = [arm for arm in found.ordered() if arm != baseline]
    shown = others[: max(0, rows - 1)]
    lines = [
        r"\begin{table}", r"\centering", rf"\caption{{{_caption(found, len(others) - len(shown))}}}",
        rf"\begin{{tabular}}{{l{'r' * len(measures)}}}", r"\toprule",
        " & ".join(["Arm", *map(latex, measures)]) + r" \\", r"\midrule",
        _row(found, baseline), r"\midrule",
        *(_row(found, arm) for arm in shown),
        r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _row(found: Standing, arm: str) -> str:
    group = MeasureGroup(found, found.comparison.frame.measures)
    cells = [latex(arm) + _SIGNS[PART] * (arm in found.comparison.parts)]
    cells += [_cell(group.mean(arm, measure)) for measure in group.measures]
    return " & ".join(cells) + r" \\"


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
    levels = ", ".join(f"{_SIGNS[sign]} $p < {level:g}$" for level, sign in reversed(MARKS))
    judges = [one.standing.comparison.frame.judge for one in found.groups]
    said = [f"All measures, each over its own queries: {latex(', '.join(over))}"]
    said += [f"Best in bold, second best underlined. {levels}"]
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
    value = f"{one.value:.{PLACES}f}"
    value = {"best": rf"\textbf{{{value}}}", "second": rf"\underline{{{value}}}"}.get(one.place, value)
    return value + "".join(_SIGNS[sign] for sign in one.mark)


def _caption(found: Standing, left_out: int) -> str:
    comparison, frame = found.comparison, found.comparison.frame
    levels = ", ".join(f"{_SIGNS[sign]} $p < {level:g}$" for level, sign in reversed(MARKS))
    families = [name for name in FAMILIES if name in set(comparison.families.values())]
    holm = [name for name in families if name in ("always", "arms", "subsets")]
    corrections = [f"Holm's correction within the family of {_and(holm)}"] * bool(holm)
    corrections += ["Benjamini-Hochberg $q$ within the family grid"] * ("grid" in families)
    keys = f"{len(frame.keys):,} {'' if frame.gold else 'judged '}{_KEYS[frame.key]}"
    of, by = ("with gold answers", "gold answers") if frame.gold else ("", "judgements")
    without = "an answer" if frame.answers else "results"
    said = [
        f"Means over {' '.join(filter(None, [keys, of]))}; queries without {without} count zero",
        f"Best in bold, second best underlined. {levels} against {latex(comparison.baseline)}: paired $t$-test, "
        + "; ".join(corrections),
    ]
    said += [latex(note) for note in judge_notes(frame.judge)]
    said += [f"Upper bounds that choose by {by}: {_and([latex(arm) for arm in found.bounds])}"] * bool(found.bounds)
    said += [f"{_SIGNS[MARK]} {latex(note.removeprefix(MARK).strip())}" for note in cut_notes(comparison)]
    said += [_named(note) for note in named_notes(comparison)]
    said += [f"{left_out:,} arms with lower {latex(found.first)} are left out"] * bool(left_out)
    return ". ".join(said) + "."


def _named(note: str) -> str:
    return f"{_SIGNS[PART]} {latex(note.removeprefix(PART).strip())}" if note.startswith(PART) else latex(note)


def _and(names: Collection[str]) -> str:
    if not names:
        return ""
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last


def write_latex(path: str, *comparisons: Comparison) -> None:
    """Writes `latex_table` of each to a local file or an object on S3, and before several of them all measures side by side."""
    both = side_by_side(comparisons)
    tables = [*([] if both is None else [latex_side_by_side(both)]), *map(latex_table, comparisons)]
    with written(path) as file:
        Path(file).write_text("\n".join(tables), encoding="utf-8")
