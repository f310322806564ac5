"""The display of a job at work: lines of a terminal that are renewed in place, and events of the log now and then.

And what several screens have: facts, and the text of a page.
"""

import contextlib
import io
import os
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from jobs.terminal.formats import clock, per_second, plain
from jobs.terminal.logs import event
from jobs.terminal.state import StageState, State

LOGGED_SECONDS = 10.0  # between two events of the progress


class LiveDisplay:
    """Shows a State on a terminal, and logs it now and then."""

    def __init__(self, stream: TextIO, title: str = "", renews: bool = True) -> None:
        self.state, self._stream, self._title = State(), stream, title
        self._phase_began, self._logged = time.monotonic(), ("", 0.0)
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        # rich would else bring back to the terminal what was led into a file
        self._live = Live(
            get_renderable=self._show, console=self._console, refresh_per_second=2, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self.renews = renews and stream.isatty() and not self._console.is_dumb_terminal
        if self.renews:
            self._live.start()

    def say(self, line: str) -> None:
        """Writes a line that stays; on a terminal it is broken between words."""
        if self._stream.isatty() and "\n" not in line:
            line = textwrap.fill(line, self._console.width, break_long_words=False, break_on_hyphens=False)
        self._console.print(Text(line))

    def phase(self, phase: str) -> None:
        self.state.phase, self._phase_began = phase, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Logs the progress, if the phase is new or the last time is `LOGGED_SECONDS` ago."""
        now, state = time.monotonic(), self.state
        phase, last = self._logged
        if phase == state.phase and now - last < LOGGED_SECONDS:
            return
        fields: dict[str, Any] = {"phase": state.phase}
        if state.total:
            fields |= {"committed": state.done, "total": state.total, "errors": state.errors, "usd": state.usd}
        event("progress" if phase == state.phase else "phase", state.text(now), **fields)
        self._logged = (state.phase, now)

    def close(self) -> None:
        """Restores the terminal."""
        if self._live.is_started:
            self._live.stop()

    def _show(self) -> RenderableType:
        with contextlib.suppress(OSError, io.UnsupportedOperation):  # standard input need not be this terminal
            columns, lines = os.get_terminal_size(self._stream.fileno())
            if columns and lines:
                self._console.size = ConsoleDimensions(columns, lines)
        return display(self.state, time.monotonic(), self._title, self._console.size.height, self._phase_began)


def display(state: State, now: float, title: str, height: int, since: float) -> RenderableType:
    """Returns at most `height` - 1 lines: the queries, the bar, errors and cost, then the stages.

    What does not fit is cut at the right and at the bottom, nothing wraps. `title` names the job, `since` is when the phase
    began; times are of `time.monotonic`.
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
    return [_line(f"{name:8}  {line}", styles.get(name, "")) for name, line in state.facts(time.time())]


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


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="crop")


def page_text(shown: RenderableType, width: int, stream: TextIO | None = None) -> str:
    """Returns the lines of a table or page; coloured if `stream`, where it will go, is a terminal."""
    console = Console(
        file=stream or io.StringIO(), width=width, highlight=False, markup=False, emoji=False, force_jupyter=False
    )
    with console.capture() as captured:
        console.print(shown)
    lines = captured.get().splitlines()
    return "\n".join(lines if stream is not None and stream.isatty() else [line.rstrip() for line in lines])


def facts(rows: Iterable[tuple[str, RenderableType]], title: str | None = None, least: int | None = None) -> Table:
    """Returns a line per fact, its name in bold and at least `least` wide, without a frame."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=least)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
