"""The means of the arms of a comparison as a LaTeX table."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.storage.whole_file import written
from jobs.measure.compare.comparison_notes import cut_notes, named_notes
from jobs.measure.compare.difference import PART
from jobs.measure.compare.standing import FAMILIES, MARKS, PLACES, Standing, cut_mark, mark, standing
from jobs.measure.measured_depth import MARK
from jobs.measure.notes import judge_notes

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
    cells = [latex(arm) + _SIGNS[PART] * (arm in found.comparison.parts)]
    for measure in found.comparison.frame.measures:
        value = f"{found.means[arm][measure]:.{PLACES}f}"
        if arm in found.best[measure]:
            value = rf"\textbf{{{value}}}"
        elif arm in found.second[measure]:
            value = rf"\underline{{{value}}}"
        one = found.comparison.by_arm[arm, measure]
        cells.append(value + _SIGNS.get(mark(found.differences.get((arm, measure))), "") + _SIGNS.get(cut_mark(one), ""))
    return " & ".join(cells) + r" \\"


def _caption(found: Standing, left_out: int) -> str:
    comparison, answers = found.comparison, found.comparison.frame.answers
    levels = ", ".join(f"{_SIGNS[sign]} $p < {level:g}$" for level, sign in reversed(MARKS))
    families = [name for name in FAMILIES if name in set(comparison.families.values())]
    holm = [name for name in families if name in ("always", "arms", "subsets")]
    corrections = [f"Holm's correction within the family of {_and(holm)}"] * bool(holm)
    corrections += ["Benjamini-Hochberg $q$ within the family grid"] * ("grid" in families)
    keys = f"{len(comparison.frame.keys):,} {'' if answers else 'judged '}{_KEYS[comparison.frame.key]}"
    of, without, by = ("with gold answers", "an answer", "gold answers") if answers else ("", "results", "judgements")
    said = [
        f"Means over {' '.join(filter(None, [keys, of]))}; queries without {without} count zero",
        f"Best in bold, second best underlined. {levels} against {latex(comparison.baseline)}: paired $t$-test, "
        + "; ".join(corrections),
    ]
    said += [latex(note) for note in judge_notes(comparison.frame.judge)]
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
    """Writes `latex_table` of each to a local file or an object on S3."""
    with written(path) as file:
        Path(file).write_text("\n".join(map(latex_table, comparisons)), encoding="utf-8")
