"""The progress of a job as a few lines of a terminal, or the part of them that fits it.

Columns, stages and lower lines are left out before anything wraps or scrolls. Words say everything; colour only repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobs.terminal.formats import clock, listed, money, per_second, plain, queries, short
from jobs.terminal.state import StageState, State

COUNTED = ("requests", "searches", "pairs")
COLUMNS = ("", "done", "rate", "at work", "waiting", "busy", "note")  # of the stages, in the order in which they stand
NEEDED = ("", "done", "note", "waiting", "rate", "at work", "busy")  # the same, the most needed first
_RULER = Console(width=1000)  # measures what fits; nothing is printed on it


def display(state: State, now: float, title: str, width: int, height: int, since: float) -> RenderableType:
    """Returns the lines for a terminal of `width` x `height`, at most `height` - 1 of them.

    Args:
        state: the progress.
        now: the time, in seconds.
        title: names the job, e.g. the run's id.
        width: columns of the terminal.
        height: lines of the terminal.
        since: when the phase began, in seconds.
    """
    waited = clock(now - since)
    if not state.total:
        return _fit(Text(f"{plain(state.phase)} ({waited})"), width)
    top: list[RenderableType] = [_head(state, title, width), _bar(state, state.pace(now) or waited, width)]
    sums = totals(state, width)
    room = max(1, height - 1)
    top = top[:room]
    room -= len(top)
    if len(sums) + len(state.stages) + 1 > room:
        sums = sums[: min(room, 2)]
    stages = _busiest(state.stages, room - len(sums) - 1)
    middle = [stage_table(stages, state.total, width)] if stages else []
    return Group(*top, *middle, *([totals_table(sums)] if sums else []))


def totals(state: State, width: int) -> list[tuple[str, str]]:
    """Returns notes, errors, cost and tokens, each with its name; what is needed most comes first."""
    some = queries(state.errors) if state.errors else "none"
    reasons = f": {listed(state.reasons, width - len(some) - 12)}" if state.reasons else ""
    parts = [money(state.usd)] if state.usd is not None else []
    parts += [f"{short(state.quantities[name])} {name}" for name in COUNTED if state.quantities.get(name)]
    while len(parts) > 1 and len(", ".join(parts)) > width - 10:
        parts.pop()
    rows = [*state.notes(time.time()), ("errors", some + reasons)]
    rows += [("cost" if state.usd is not None else "work", ", ".join(parts))] if parts else []
    rows += [("tokens", tokens)] if (tokens := state.tokens()) else []
    return rows


def totals_table(rows: Sequence[tuple[str, str]]) -> Table:
    """Returns `totals` as lines."""
    grid = _grid()
    grid.add_column(min_width=8, style="dim", no_wrap=True, overflow="crop")
    grid.add_column()  # the column that is narrowed where the terminal is; its text is cut
    for name, words in rows:
        style = "red" if name == "errors" and words != "none" else "yellow" if name in ("waiting", "stopping") else ""
        grid.add_row(name, Text(words, style, no_wrap=True, overflow="crop"))
    return grid


def stage_table(stages: Sequence[StageState], total: int, width: int) -> Table:
    """Returns a head and a line for each stage, with as many columns as `width` has room for; `total` is the largest number."""
    kept = len(NEEDED)
    while kept > 1 and _RULER.measure(_stages(stages, total, NEEDED[:kept], width)).maximum > width:
        kept -= 1
    return _stages(stages, total, NEEDED[:kept], width)


def _stages(stages: Sequence[StageState], total: int, columns: Sequence[str], width: int) -> Table:
    digits = len(f"{total:,}")
    widths = {"": 8, "done": digits, "rate": 8, "at work": min(digits, 7), "waiting": min(digits, 7), "note": 7}
    table = _grid()
    for name in (name for name in COLUMNS if name in columns):
        justify = "left" if name in ("", "note") else "right"
        table.add_column(justify=justify, no_wrap=True, overflow="crop", min_width=widths.get(name, 4))  # type: ignore[arg-type]
    heads = ["" if name == "note" else name for name in COLUMNS if name in columns]
    table.add_row(*heads, style="dim")
    for stage in stages:
        cells = {
            "": stage.name,
            "done": f"{stage.done:,}",
            "rate": "" if stage.rate is None else per_second(stage.rate),
            "at work": f"{stage.at_work:,}",
            "waiting": f"{stage.waiting:,}",
            "busy": "" if stage.busy is None else f"{stage.busy:.0%}",
            "note": stage.note if width >= 60 else stage.note.removesuffix(" workers"),
        }
        row = [cells[name] for name in COLUMNS if name in columns]
        table.add_row(*row, style="yellow" if stage.slowest else "")
    return table


def _grid() -> Table:
    """Returns a table without lines, two spaces between its columns."""
    return Table.grid(padding=(0, 2, 0, 0))


def _head(state: State, title: str, width: int) -> RenderableType:
    share = int(100 * state.work_done())
    right = f"{state.done:,} of {state.total:,} queries committed, {share} % done"
    brief = f"{state.done:,} of {state.total:,}  {share} %"
    phase = plain(state.phase)
    named = f"{plain(title)}  {phase}"
    for left, words in ((named, right), (named, brief), (phase, right), (phase, brief)):
        if len(left) + 2 + len(words) <= width:
            grid = Table.grid(expand=True)
            grid.add_column(style="bold", no_wrap=True)
            grid.add_column(justify="right", no_wrap=True)
            grid.add_row(Text(left), Text(words))
            return grid
    return _fit(Text(brief), width)


def _bar(state: State, words: str, width: int) -> RenderableType:
    words = words.rjust(24)  # the bar keeps its length while the words change theirs
    room = width - len(words) - 2
    if room < 8:
        return _fit(Text(words.strip()), width)
    grid = _grid()
    grid.add_row(ProgressBar(total=1.0, completed=state.work_done(), width=room), Text(words, no_wrap=True))
    return grid


def _busiest(stages: Sequence[StageState], room: int) -> list[StageState]:
    """Returns as many stages as there are lines for: the slowest before all, then those that have most to do."""
    chosen = sorted(stages, key=lambda stage: (not stage.slowest, -(stage.at_work + stage.waiting)))[: max(0, room)]
    return [stage for stage in stages if stage in chosen]


def _fit(text: Text, width: int) -> Text:
    """Returns the text as one line of at most `width` columns."""
    text.no_wrap = True
    text.truncate(width, overflow="crop")
    return text
