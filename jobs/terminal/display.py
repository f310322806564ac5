"""The progress of a job as lines of a terminal; what does not fit is cut at the right and at the bottom, nothing wraps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from jobs.terminal.formats import clock, per_second, plain
from jobs.terminal.state import StageState, State


def display(state: State, now: float, title: str, height: int, since: float) -> RenderableType:
    """Returns at most `height` - 1 lines: the queries, the bar, errors and cost, then the stages.

    Args:
        state: the progress.
        now: the time, in seconds.
        title: names the job, e.g. the run's id.
        height: lines of the terminal.
        since: when the phase began, in seconds.
    """
    phase, waited = plain(state.phase), clock(now - since)
    if not state.total:
        return Group(_line(f"{phase} ({waited})"))
    share = state.work_done()
    head = f"{state.done:,} of {state.total:,} queries committed, {int(100 * share)} % done  {phase}  {plain(title)}"
    bar = Table.grid(Column(ratio=1), "", expand=True)
    bar.add_row(ProgressBar(total=1.0, completed=share), _line(f"  {state.pace(now) or waited:>24}"))
    rows: list[RenderableType] = [_line(head, "bold"), bar, *fact_lines(state), *stage_lines(state.stages, state.total)]
    return Group(*rows[: max(1, height - 1)])


def fact_lines(state: State) -> list[Text]:
    """Returns a line for each of waiting, stopping, errors, cost and tokens, as far as there are any."""
    styles = {"waiting": "yellow", "stopping": "yellow", "errors": "red" if state.errors else ""}
    return [_line(f"{name:8}  {words}", styles.get(name, "")) for name, words in state.facts(time.time())]


def stage_lines(stages: Sequence[StageState], total: int) -> list[Text]:
    """Returns a head and a line for each stage, the most needed columns first; `total` is the largest number."""
    if not stages:
        return []
    names, numbers = max(8, *(len(stage.name) for stage in stages)), max(7, len(f"{total:,}"))
    heads = f"{'done':>{numbers}}  {'rate':>8}  {'waiting':>{numbers}}  {'at work':>{numbers}}  busy"
    lines = [_line(f"{'':{names}}  {heads}", "dim")]
    for stage in stages:
        rate, busy = "" if stage.rate is None else per_second(stage.rate), "" if stage.busy is None else f"{stage.busy:.0%}"
        figures = f"{stage.done:>{numbers},}  {rate:>8}  {stage.waiting:>{numbers},}  {stage.at_work:>{numbers},}  {busy:>4}"
        lines.append(_line(f"{stage.name:{names}}  {figures}  {stage.note}", "yellow" if stage.slowest else ""))
    return lines


def _line(words: str, style: str = "") -> Text:
    return Text(words, style, no_wrap=True, overflow="crop")
