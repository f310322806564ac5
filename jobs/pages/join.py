"""The tables of joined ablations for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from jobs.measure.join import Joined, JoinedArm
from jobs.measure.notes import HEADINGS
from jobs.measure.significance import ALPHA
from jobs.pages.comparison import ARM_WIDTH, WIDTH
from jobs.pages.render import Head, Interval, Marked, Table, difference, interval, plain_lines, probability
from jobs.terminal.formats import figure

MOST_SETS = 4  # columns; --json has all sets


def joined_tables(joined: Sequence[Joined]) -> RenderableType:
    """Returns a table of arms and sets for each measure, then what is lost without a strategy, and the notes."""
    parts: list[RenderableType] = []
    for one in joined:
        parts += [Text("\n" * bool(parts) + HEADINGS[one.kind], style="bold")] if len(joined) > 1 else []
        tables = [_arms(one, measure) for measure in one.measures]
        tables += [_losses(one)] if any(row.loss is not None for row in one.rows) else []
        parts += [table.terminal(WIDTH, ARM_WIDTH) for table in tables]
        notes = [f"+ better, - worse than {one.baseline} (p or q < {ALPHA}: of a set its own, of the mean that over sets)"]
        notes += [f"not all sets are shown: --json has all {len(one.sets):,}"] * (len(one.sets) > MOST_SETS)
        parts.append(Text(plain_lines("\n".join([*notes, *one.notes]))))
    return Group(*parts)


def _arms(one: Joined, measure: str) -> Table:
    """Returns the arms, best first: their means on sets and over sets, difference, interval and p."""
    by_arm: dict[str, dict[str | None, JoinedArm]] = {}
    for row in one.rows:
        if row.measure == measure:
            by_arm.setdefault(row.arm, {})[row.set] = row
    shown = [*list(one.sets)[:MOST_SETS], None]
    rows = []
    for arm, of in sorted(by_arm.items(), key=lambda item: -item[1][None].mean):
        over, base = of[None], arm == one.baseline
        means = [Marked(of[name].mean, "" if base else of[name].sign) for name in shown]
        moved = ["baseline", None] if base else [over.difference, Interval(over.low, over.high, over.difference)]
        rows.append([arm, *means, *moved, over.corrected])
    columns = [Head("arm"), *(Head(name or "mean", figure) for name in shown), Head("difference", difference)]
    return Table([*columns, Head("95 % interval", interval), Head("p or q", probability)], rows, measure)


def _losses(one: Joined) -> Table:
    """Returns what `full` loses without a strategy, the mean over sets, by measure."""
    over = {(row.arm, row.measure): row.loss for row in one.rows if row.set is None and row.loss is not None}
    rows = [[arm, *(over[arm, name] for name in one.measures)] for arm in one.arms if (arm, one.measures[0]) in over]
    return Table([Head("arm"), *(Head(name, difference) for name in one.measures)], rows, "average loss")
