"""A comparison over sets for the terminal, at most 100 columns wide, and as JSON-able values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.measure.compare.difference import DEVIATION
from jobs.measure.notes import ends_in_words, marked
from jobs.measure.sets.over_sets import SetsComparison
from jobs.measure.sets.pairs_over_sets import same_on_sets
from jobs.measure.significance import ALPHA
from jobs.pages.comparison import BEST, MOST_ARMS, SECOND, UNORDERED, pairs_shown
from jobs.terminal.formats import figure, known, plain

MOST_SETS = 4  # columns of the first table
MOST_COLUMNS = 6  # of the table of means, for the sets and their mean
_WIDTH, _ARM_WIDTH = 76, 26
_PLACES = {"best": BEST, "second": SECOND}


def sets_tables(found: SetsComparison) -> RenderableType:
    """Returns the arms by the first measure with their tests over sets, then the means by the others, and the notes."""
    if not found.over:
        return Text("\n".join(map(plain, found.notes)))
    shown = _shown(found)
    parts: list[RenderableType] = [_first_table(found, shown)]
    for measure in found.measures[1:]:
        parts += ["", _means_table(found, measure, shown)]
    if seeded := [arm for arm in shown if any(arm in one.frame.seeds for one in found.sets.values())]:
        parts += ["", _deviations_table(found, seeded)]
    if found.pairs:
        parts += ["", pairs_shown([one for one in found.pairs if one.measure == found.first], found.first)]
    left_out = len(found.arms) - len(shown)
    notes = [
        f"{BEST} best, {SECOND} second best; + better, - worse than {found.against} (p or q < {ALPHA}: of a set its own, of "
        "the mean that over sets), = equivalent" + f", {UNORDERED} nearer than the judge's noise" * found.noisy,
        "sets: on how many sets the mean is higher - equal - lower",
        *([f"{left_out:,} more arms are not shown: --json and the page have them"] if left_out else []),
        *found.notes,
    ]
    return Group(*parts, Text("\n" + "\n".join(map(plain, notes))))


def sets_values(found: SetsComparison) -> dict[str, Any]:
    """Returns the comparison over sets as JSON-able values; unknown ones are None."""
    arms = [
        {
            "arm": arm,
            "family": found.families[arm],
            "oracle": arm in found.oracles,
            "measures": {measure: _of_arm(found, arm, measure) for measure in (found.measures if found.over else ())},
        }
        for arm in found.arms
    ]
    values = {
        "baseline": found.baseline,
        "baselines": {arm: found.base_of(arm) for arm in found.arms},
        "same_as": same_on_sets(found.sets),
        "min_effect": found.min_effect,
        "measures": list(found.measures),
        "sets": {name: {"counted": len(one.frame.keys), "clusters": one.frame.drawn} for name, one in found.sets.items()},
        "arms": arms,
        "pairs": [asdict(one) for one in found.pairs],
        "notes": list(found.notes),
    }
    return cast(dict[str, Any], known(values))


def _of_arm(found: SetsComparison, arm: str, measure: str) -> dict[str, Any]:
    left_out = {"arm", "measure"}
    over = {key: value for key, value in asdict(found.over[arm, measure]).items() if key not in left_out}
    of_sets = {name: {key: value for key, value in asdict(one.by_arm[arm, measure]).items() if key not in left_out}
               for name, one in found.sets.items()}  # fmt: skip
    return over | {"sets": of_sets}


def _shown(found: SetsComparison) -> list[str]:
    """Returns the best arms, best first, with the baseline and `full`."""
    ranked = found.ordered()
    always = {*found.baselines, "full"} & set(ranked)
    chosen = always | set([arm for arm in ranked if arm not in always][: MOST_ARMS - len(always)])
    return [arm for arm in ranked if arm in chosen]


def sign(found: SetsComparison, arm: str, name: str | None, measure: str) -> str:
    """Returns + or - for a difference that is significant on a set, or over sets, = for an equivalent arm, else nothing.

    One within the judge's noise has `~` alone.
    """
    one = found.tested(arm, name, measure)
    if one.within_noise:
        return UNORDERED
    equivalent = "=" if one.corrected is not None and one.p_equivalent < ALPHA else ""
    return {"better": "+", "worse": "-"}.get(one.verdict or "", "") + equivalent


def _table(title: str, names: Iterable[str]) -> Table:
    """Returns a table of arms with a column for each set, and what else has a name."""
    table = Table(box=None, padding=(0, 1, 0, 0), min_width=_WIDTH)
    table.add_column(title, style="bold", overflow="fold", max_width=_ARM_WIDTH, ratio=1)
    for name in names:
        table.add_column(Text(plain(name)), justify="right", no_wrap=True, overflow="ellipsis", min_width=8)
    return table


def _columns(found: SetsComparison, measure: str, shown: list[str], most: int) -> list[tuple[str, list[str]]]:
    """Returns the title and the cells of each set, as far as there is room, and of the mean over sets."""
    columns = []
    for name in (*list(found.sets)[:most], *[None] * (len(found.sets) > 1)):
        places = found.places(name, measure)
        after = [
            marked(_PLACES.get(places.get(arm, ""), ""), found.cut(arm, name, measure)) + sign(found, arm, name, measure)
            for arm in shown
        ]
        width = max(2, *map(len, after))
        cells = [f"{figure(found.mean(arm, name, measure))}{words:<{width}}" for arm, words in zip(shown, after, strict=True)]
        columns.append((name or "mean", cells))
    return columns


def _first_table(found: SetsComparison, shown: list[str]) -> Table:
    """Returns the arms by the first measure: each set, the mean over sets, its difference, interval, p, and the sets won."""
    columns = _columns(found, found.first, shown, MOST_SETS)
    table = _table(found.first, [title for title, _ in columns])
    for title in ("difference", "95 % interval", "p", "sets"):
        table.add_column(title, justify="right", no_wrap=True)
    for place, arm in enumerate(shown):
        one, base = found.over[arm, found.first], found.is_baseline(arm)
        table.add_row(
            Text(plain(found.named(arm))),
            *(cells[place] for _, cells in columns),
            "baseline" if base else figure(one.difference, "+"),
            "-" if base or math.isnan(one.low) else ends_in_words((one.low, one.high)),
            "bound" if arm in found.oracles else "same" if arm in found.untested else _probability(one.corrected),
            "" if base else f"{one.wins}-{one.ties}-{one.losses}",
        )
    if len(found.sets) > MOST_SETS:
        table.caption = Text(f"{', '.join(list(found.sets)[MOST_SETS:])}: see --json and the page")
    return table


def _means_table(found: SetsComparison, measure: str, shown: list[str]) -> Table:
    columns = _columns(found, measure, shown, MOST_COLUMNS)
    table = _table(measure, [title for title, _ in columns])
    for place, arm in enumerate(shown):
        table.add_row(Text(plain(found.named(arm))), *(cells[place] for _, cells in columns))
    return table


def _deviations_table(found: SetsComparison, seeded: list[str]) -> Table:
    """Returns the standard deviation over seeds of some arms' means by the first measure, of as many sets as fit."""
    sets = dict(list(found.sets.items())[:MOST_COLUMNS])
    table = _table(f"{DEVIATION} of seeds, {found.first}", sets)
    for arm in seeded:
        of_sets = [one.by_arm[arm, found.first].deviation for one in sets.values()]
        table.add_row(Text(plain(found.named(arm))), *("-" if value is None else figure(value) for value in of_sets))
    return table


def _probability(p: float | None) -> str:
    return "-" if p is None else "<.0001" if p < 0.0001 else f"{p:.4f}"
