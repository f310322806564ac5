"""The tables of joined ablations for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.measure.join import Joined, JoinedArm
from jobs.measure.notes import HEADINGS, ends_in_words
from jobs.measure.significance import ALPHA
from jobs.pages.comparison import probability
from jobs.terminal.formats import figure, plain

MOST_SETS = 4  # columns; --json has all sets


def joined_tables(joined: Sequence[Joined]) -> RenderableType:
    """Returns a table of arms and sets for each measure, then what is lost without a strategy, and the notes."""
    parts: list[RenderableType] = []
    for one in joined:
        parts += [Text("\n" * bool(parts) + HEADINGS[one.kind], style="bold")] if len(joined) > 1 else []
        parts += [_arms(one, measure) for measure in one.measures]
        parts += [_losses(one)] if any(row.loss is not None for row in one.rows) else []
        notes = [f"+ better, - worse than {one.baseline} (p or q < {ALPHA}: of a set its own, of the mean that over sets)"]
        notes += [f"not all sets are shown: --json has all {len(one.sets):,}"] * (len(one.sets) > MOST_SETS)
        parts.append(Text("\n".join(map(plain, [*notes, *one.notes]))))
    return Group(*parts)


def _arms(one: Joined, measure: str) -> Table:
    """Returns the arms, best first: their means on sets and over sets, difference, interval and p."""
    rows: dict[str, dict[str | None, JoinedArm]] = {}
    for row in one.rows:
        if row.measure == measure:
            rows.setdefault(row.arm, {})[row.set] = row
    shown = [*list(one.sets)[:MOST_SETS], None]
    table = _table(measure, [*(name or "mean" for name in shown), "difference", "95 % interval", "p or q"])
    for arm, of in sorted(rows.items(), key=lambda item: -item[1][None].mean):
        over, base = of[None], arm == one.baseline
        table.add_row(
            Text(plain(arm)),
            *(f"{figure(of[name].mean)}{'' if base else of[name].sign:<1}" for name in shown),
            "baseline" if base else figure(over.difference, "+"),
            "-" if base or math.isnan(over.low) else ends_in_words((over.low, over.high)),
            probability(over.corrected),
        )
    return table


def _losses(one: Joined) -> Table:
    """Returns what `full` loses without a strategy, the mean over sets, by measure."""
    table = _table("average loss", one.measures)
    over = {(row.arm, row.measure): row.loss for row in one.rows if row.set is None and row.loss is not None}
    for arm in (arm for arm in one.arms if (arm, one.measures[0]) in over):
        table.add_row(Text(plain(arm)), *(figure(over[arm, measure], "+") for measure in one.measures))
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), min_width=76)
    table.add_column(title, style="bold", overflow="fold", max_width=26, ratio=1)
    for name in columns:
        table.add_column(Text(plain(name)), justify="right", no_wrap=True, overflow="ellipsis", min_width=8)
    return table
