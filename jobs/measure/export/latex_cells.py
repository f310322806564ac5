"""What LaTeX tables of arms have in common: escaped texts, the marks of means, captions and the frame around rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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


def spread(deviation: float | None, table: TableSettings) -> str:
    """Returns the standard deviation of the means of seeds, which stands behind a mean; nothing where there is one seed."""
    return "" if deviation is None else rf" {{\scriptsize$\pm${mean_words(deviation, table)}}}"


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


def known_arms(table: TableSettings, known: Sequence[str]) -> None:
    """Checks that the chosen arms of a table are known.

    Raises:
        ConfigError: one does not exist.
    """
    for arm in table.arms:
        if arm not in known:
            raise ConfigError("config-value", f"ablate.table.arms: {arm!r} is no arm{nearest(arm, known)}")


def chosen_arms(
    table: TableSettings, ordered: Sequence[str], baseline: str, base_of: Callable[[str], str], most: int
) -> tuple[list[list[str]], int]:
    """Returns the arms of a table in groups between which a rule stands, and how many are left out for want of room.

    Each arm is in one group: chosen ones in their order in a single one. Else a baseline is before the arms that are compared
    with it; it stands among those of its own baseline, where it has one. No arm is shown without its baseline.

    Args:
        table: chooses them.
        ordered: all arms, the best first.
        baseline: stands first where none are chosen.
        base_of: returns the arm that an arm is compared with; itself: with none.
        most: rows, where none are chosen.

    Raises:
        ConfigError: one that is chosen does not exist.
    """
    known_arms(table, ordered)
    if table.arms:
        return [list(table.arms)], 0
    shown = {baseline}
    for arm in ordered:
        more, one = set[str](), arm
        while one in ordered and one not in shown | more:  # a baseline may have one itself
            more.add(one)
            one = base_of(one)
        if len(shown) + len(more) > most:
            break
        shown |= more
    bases = dict.fromkeys([baseline, *(arm for arm in ordered if base_of(arm) == arm), *map(base_of, ordered)])
    groups: list[list[str]] = []
    left = dict.fromkeys(arm for arm in ordered if arm in shown)
    for base in bases:
        for group in ([arm for arm in left if arm == base], [arm for arm in left if arm != base and base_of(arm) == base]):
            groups += [group] * bool(group)
            left = {arm: None for arm in left if arm not in group}
    return groups, len(ordered) - len(shown)


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


def renamed(table: TableSettings) -> Callable[[str], str]:
    """Returns the function from an arm to what a table calls it."""
    names = table.arms if isinstance(table.arms, dict) else {}
    return lambda arm: names.get(arm, arm)


def shown_name(table: TableSettings, arm: str) -> str:
    """Returns what an arm is called in a table, as LaTeX."""
    return latex(renamed(table)(arm))


def row(cells: Iterable[str]) -> str:
    r"""Returns a row; behind `\\` and a rule, LaTeX would take a first cell that begins with [ or * for their argument."""
    words = " & ".join(cells)
    return ("{}" if words.lstrip().startswith(("[", "*")) else "") + words + r" \\"


def ruled(groups: Iterable[Sequence[str]]) -> list[str]:
    """Returns the rows of groups with a rule between every two groups."""
    lines: list[str] = []
    for rows in groups:
        lines += [*([r"\midrule"] if lines else []), *rows]
    return lines


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
