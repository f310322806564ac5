"""What LaTeX tables of arms have in common: escaped texts, the marks of means, captions and the frame around rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster.errors import ConfigError, nearest
from jobs.config.settings import TableSettings
from jobs.job.measure_checks import printed
from jobs.measure.compare.difference import DEVIATION, PART
from jobs.measure.compare.standing import MARKS
from jobs.measure.measured_depth import MARK

MOST_ROWS = 50
DEFAULT_TABLE = TableSettings()
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip
SIGNS = {"†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", MARK: r"$^{*}$", PART: r"$^{\S}$", DEVIATION: r"$\pm$"}
_ARROWS = {"better": r"\uparrow", "worse": r"\downarrow"}


def latex(text: str) -> str:
    """Returns a text in which every character of LaTeX's own stands for itself; control characters become spaces."""
    return "".join(_SPECIAL.get(char, char if char.isprintable() else " ") for char in text)


def joined(names: Sequence[str]) -> str:
    """Returns 'a, b and c'."""
    if not names:
        return ""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def mean_words(value: float, table: TableSettings) -> str:
    """Returns a mean with the digits of a table."""
    return f"{100 * value if table.percent else value:.{table.digits}f}"


def in_place(words: str, place: str) -> str:
    """Returns a mean in bold where it is best, underlined where it is second."""
    return {"best": rf"\textbf{{{words}}}", "second": rf"\underline{{{words}}}"}.get(place, words)


def significance(difference: float, p: float | None, table: TableSettings) -> str:
    """Returns the mark of a difference; nothing where it is not significant, or was not tested (None)."""
    sign = None if p is None or table.marks == "none" else next((sign for level, sign in MARKS if p < level), None)
    if sign is None or difference == 0:
        return ""
    if table.marks == "either":
        return SIGNS[sign]
    arrow = _ARROWS["better" if difference > 0 else "worse"]
    return rf"$^{{{arrow * (2 if sign == MARKS[0][1] else 1)}}}$"


def levels(table: TableSettings) -> str:
    """Returns what the marks of a table mean; nothing where it has none."""
    if table.marks == "none":
        return ""
    if table.marks == "either":
        return ", ".join(f"{SIGNS[sign]} $p < {level:g}$" for level, sign in reversed(MARKS))
    return ", ".join(
        rf"$^{{{_ARROWS['better'] * times}}}$ better and $^{{{_ARROWS['worse'] * times}}}$ worse with $p < {level:g}$"
        for times, (level, _) in enumerate(reversed(MARKS), start=1)
    )


def chosen_arms(table: TableSettings, ordered: Sequence[str], baseline: str, most: int) -> tuple[list[str], int]:
    """Returns the arms of a table in their order, and how many are left out for want of room.

    Args:
        table: chooses them.
        ordered: all arms, the best first.
        baseline: stands first where none are chosen.
        most: rows, where none are chosen.

    Raises:
        ConfigError: one that is chosen does not exist.
    """
    if table.arms:
        for arm in table.arms:
            if arm not in ordered:
                raise ConfigError("config-value", f"ablate.table.arms: {arm!r} is no arm{nearest(arm, ordered)}")
        return list(table.arms), 0
    others = [arm for arm in ordered if arm != baseline]
    shown = others[: max(0, most - 1)]
    return [baseline, *shown], len(others) - len(shown)


def chosen_measures(table: TableSettings, known: Sequence[str]) -> list[str]:
    """Returns the measures of a table in their order, as ir_measures prints them.

    Raises:
        ConfigError: one that is chosen was not measured.
    """
    chosen = list(map(printed, table.measures))
    for name, shown in zip(table.measures, chosen, strict=True):
        if shown not in known:
            raise ConfigError("config-value", f"ablate.table.measures: {name!r} is not measured{nearest(name, known)}")
    return chosen or list(known)


def tables_of(
    table: TableSettings, measured: Sequence[Sequence[str]], arms: Sequence[Sequence[str]]
) -> list[TableSettings | None]:
    """Returns the table of each comparison with those of the chosen measures and arms that it has; None: it has none of them.

    Args:
        table: chooses measures and arms, or takes all.
        measured: measures of each comparison, as of lists and of answers.
        arms: of each comparison; not every arm may have answers.

    Raises:
        ConfigError: one that is chosen is in no comparison.
    """
    chosen = chosen_measures(table, list(dict.fromkeys(name for names in measured for name in names)))
    found = [[name for name in chosen if table.measures and name in names] for names in measured]
    chosen_arms(table, list(dict.fromkeys(name for names in arms for name in names)), "", 0)
    named = table.arms if isinstance(table.arms, dict) else {name: name for name in table.arms}
    tables: list[TableSettings | None] = []
    for own, names in zip(found, arms, strict=True):
        rows = {name: shown for name, shown in named.items() if name in names}
        empty = (table.measures and not own) or (table.arms and not rows)
        tables.append(None if empty else table.model_copy(update={"measures": own, "arms": rows}))
    return tables


def shown_name(table: TableSettings, arm: str) -> str:
    """Returns what an arm is called in a table, as LaTeX."""
    return latex(table.arms.get(arm, arm) if isinstance(table.arms, dict) else arm)


def framed(rows: Iterable[str], columns: str, said: str, table: TableSettings) -> str:
    """Returns rows, with their rules between, as a table.

    Args:
        rows: lines.
        columns: their alignment.
        said: what was measured and tested: the caption, or beside a caption of the user's own the note below.
        table: caption and label.
    """
    caption = said if table.caption is None else table.caption
    return "\n".join(
        [
            r"\begin{table}", r"\centering", rf"\caption{{{caption}}}",
            *([rf"\label{{{table.label}}}"] if table.label else []),
            rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *rows, r"\bottomrule", r"\end{tabular}",
            *([] if table.caption is None else [rf"\par\smallskip\footnotesize {said}"]),
            r"\end{table}",
        ]
    ) + "\n"  # fmt: skip
