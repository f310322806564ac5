"""The means of arms over several data sets as a LaTeX table: arms as rows, sets and measures as columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from cluster.storage.whole_file import written
from jobs.config.settings import TableSettings
from jobs.measure.compare.comparison_notes import baseline_notes, named_notes, seed_notes
from jobs.measure.compare.corrections import GRID, QUESTIONS
from jobs.measure.compare.difference import PART, Difference
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
    renamed,
    row,
    ruled,
    shown_name,
    significance,
    spread,
)
from jobs.measure.export.latex_pairs import pairs_table
from jobs.measure.measured_depth import MARK
from jobs.measure.notes import judge_notes
from jobs.measure.sets.over_sets import SetsComparison

_MEAN = "Mean"


def sets_latex_table(found: SetsComparison, table: TableSettings = DEFAULT_TABLE, rows: int = MOST_ROWS) -> str:
    r"""Returns the arms by all sets and measures as a LaTeX table (booktabs): best bold, second best underlined, marks.

    Columns are grouped by set, the mean over sets last. Needs `\usepackage{booktabs}` and, for quotation marks in names,
    `\usepackage[T1]{fontenc}`.

    Args:
        found: with at least one measured set.
        table: choice of arms and measures, digits, marks, caption, label.
        rows: the most arms, where none are chosen; the caption says how many are left out.

    Raises:
        ConfigError: a chosen arm or measure does not exist.
    """
    measures = chosen_measures(table, found.measures)
    blocks, left_out = chosen_arms(table, found.ordered(), found.baseline, found.base_of, rows)
    arms = [arm for block in blocks for arm in block]
    groups: list[str | None] = [*found.sets, *([None] if len(found.sets) > 1 else [])]
    wins = table.wins and len(found.sets) > 1
    width = len(measures)
    digits = table.digits + 2 * table.percent
    places = {(name, measure): found.places(name, measure, arms, digits) for name in groups for measure in measures}
    heads = [rf"\multicolumn{{{width}}}{{c}}{{{latex(name or _MEAN)}}}" for name in groups]
    rules = [rf"\cmidrule(lr){{{2 + width * n}-{1 + width * (n + 1)}}}" for n in range(len(groups))]
    lines = [
        row(["", *heads, *[""] * wins]),
        " ".join(rules),
        row(["Arm", *[latex(measure) for _ in groups for measure in measures], *["W/T/L"] * wins]),
    ]

    def cells(arm: str) -> Iterator[str]:
        yield shown_name(table, arm) + SIGNS[PART] * (found.named(arm) != arm)
        for name, measure in product(groups, measures):
            mean = mean_words(found.mean(arm, name, measure), table)
            yield in_place(mean, places[name, measure].get(arm, "")) + _marks(found, arm, name, measure, table)
        if wins:
            one = found.over[arm, measures[0]]
            yield "--" if found.is_baseline(arm) else f"{one.wins}/{one.ties}/{one.losses}"

    lines = ruled([lines, *([row(cells(arm)) for arm in block] for block in blocks)])
    columns = "l" + "r" * (width * len(groups)) + "c" * wins
    return framed(lines, columns, _said(found, table, arms, measures, left_out), table)


def _marks(found: SetsComparison, arm: str, name: str | None, measure: str, table: TableSettings) -> str:
    """Returns the marks of a significant difference and of lists that were cut, and on a set the deviation over seeds."""
    one = found.tested(arm, name, measure)
    p = None if found.is_baseline(arm) else one.deciding
    marks = significance(one.difference, p, table) + SIGNS[MARK] * found.cut(arm, name, measure)
    return marks + spread(one.deviation if isinstance(one, Difference) else None, table)


def _said(found: SetsComparison, table: TableSettings, arms: list[str], measures: list[str], left_out: int) -> str:
    """Returns what was measured and tested, in sentences."""
    frames = [one.frame for one in found.sets.values()]
    said = [means_over(frames, joined([f"{latex(name)} ({len(one.frame.keys):,})" for name, one in found.sets.items()]))]
    if len(found.sets) > 1:
        said.append(f"{_MEAN}: over sets, each with the same weight")
    said.append("Best in bold, second best underlined")
    called = renamed(table)
    if marks := levels(table):
        tests = "on each set paired $t$-test"
        if len(found.sets) > 1:
            tests += ", over sets $t$-test of the mean with the sets as strata"
        families = {found.families[arm] for arm in arms}
        holm, rate = (f"{len(found.tested_in(*wanted))} arms" for wanted in (QUESTIONS, (GRID,)))
        if found.pairs:
            holm, rate = "over all pairs of arms", f"over all pairs with an arm of the {GRID}"
        corrections = [f"Holm's correction ({holm})"] * bool(families & set(QUESTIONS))
        corrections += [f"Benjamini-Hochberg $q$ ({rate})"] * (GRID in families)
        said.append(
            f"{marks} against {latex(called(found.against))}: {tests}, by measure; {', '.join(corrections) or 'uncorrected'}"
        )
    if table.wins and len(found.sets) > 1:
        said.append(f"W/T/L: sets on which {latex(measures[0])} is higher, equal and lower")
    said += dict.fromkeys(latex(note) for frame in frames for note in judge_notes(frame.judge))
    named = [note for one in found.sets.values() for note in named_notes(one, called)]
    seeds = [note for one in found.sets.values() for note in seed_notes(one, called)]
    said += dict.fromkeys(note_words(note) for note in (*named, *baseline_notes(found, called), *seeds))
    bounds = [shown_name(table, arm) for arm in arms if arm in found.oracles]
    said += [bounds_said(frames[0], bounds)] * bool(bounds)
    cut = any(found.cut(arm, None, measure) for arm in arms for measure in measures)
    said += [f"{SIGNS[MARK]} of lists that were cut above the depth of the measure"] * cut
    said += [f"{left_out:,} arms with lower {latex(found.first)} are left out"] * bool(left_out)
    return ". ".join(said) + "."


def sets_latex_pairs(found: SetsComparison, table: TableSettings = DEFAULT_TABLE) -> str:
    """Returns `pairs_table` of every two arms over sets; nothing where fewer than two of the chosen arms are compared.

    Raises:
        ConfigError: a chosen measure does not exist.
    """
    paired = {arm for one in found.pairs for arm in (one.arm, one.other)}
    arms = [arm for arm in found.ordered() if arm in paired]
    test = f"$t$-test of the mean over {len(found.sets)} sets with the sets as strata"
    return pairs_table(found.pairs, found.measures, arms, test, table)


def write_sets_latex(path: str, *comparisons: SetsComparison, table: TableSettings = DEFAULT_TABLE) -> None:
    """Writes `sets_latex_table` of each to a local file or an object on S3, and behind them the tables of every two arms.

    The caption and the label of `table` are those of the first; the others are told apart from it.

    Raises:
        ConfigError: a chosen arm or measure does not exist.
    """
    kinds = [next(iter(one.sets.values())).frame.kind for one in comparisons]
    own = tables_of(table, kinds, [one.measures for one in comparisons], [one.arms for one in comparisons])
    each = [(one, of) for one, of in zip(comparisons, own, strict=True) if of is not None]
    tables = [sets_latex_table(one, of) for one, of in each]
    tables += filter(None, (sets_latex_pairs(one, table_of_pairs(of)) for one, of in each if one.pairs))
    with written(path) as file:
        Path(file).write_text("\n".join(tables), encoding="utf-8")
