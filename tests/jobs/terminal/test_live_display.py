"""What a person sees while a job works, and the progress that is logged."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Callable, Iterator

import pytest

from jobs.terminal.live_display import LOGGED_SECONDS, LiveDisplay
from jobs.terminal.state import StageState, State
from tests.support.jobs.terminals import read_terminal


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until the test moves it."""
    time = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: time[0])
    return time


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Event and message of every line that was logged."""
    return [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]


def test_the_progress_is_logged_now_and_then(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dmqr")
    stream = io.StringIO()
    display = LiveDisplay(stream)
    display.phase("reading the log")
    display.tick()
    display.phase("reading the log")
    now[0] += LOGGED_SECONDS - 0.1
    display.tick()
    assert said(caplog) == [("phase", "reading the log")]
    now[0] += 0.2
    display.state.total, display.state.done = 20, 5
    display.tick()
    display.tick()
    display.phase("closing")
    display.close()
    assert said(caplog)[1:] == [
        ("progress", "reading the log: 5/20 queries, 25% of the work; errors none"),
        ("phase", "closing: 5/20 queries, 25% of the work; errors none"),
    ]  # fmt: skip
    assert (caplog.records[1].fields["committed"], caplog.records[1].fields["total"]) == (5, 20)  # type: ignore[attr-defined]
    assert stream.getvalue() == ""


def test_lines_are_not_wrapped_coloured_or_read_as_markup() -> None:
    stream = io.StringIO()
    words = "output [bold]/runs/with[brackets]/" + "x" * 300
    LiveDisplay(stream).say(words)
    assert stream.getvalue() == words + "\n"


# ---------------------------------------------------------------- a terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], tuple[io.TextIOWrapper, Callable[[], str]]]]:
    """Opens a terminal of columns x lines: a stream on it, and what was written to it since it was asked last."""
    monkeypatch.setenv("TERM", "xterm")
    opened: list[int] = []

    def start(columns: int, lines: int) -> tuple[io.TextIOWrapper, Callable[[], str]]:
        master, slave = pty.openpty()
        opened.append(master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        return os.fdopen(slave, "w", encoding="utf-8"), lambda: read_terminal(master, slave)

    yield start
    for master in opened:
        os.close(master)


def busy() -> State:
    stages = [StageState(name, 1000, 10, 10, 3.0, 0.5) for name in ("read", "rewrite", "retrieve", "fuse", "rerank", "write")]
    return State("working", 1000, 5000, errors=3, usd=1.5, began=1.0, stages=stages, reasons={"echo": 3})


@pytest.mark.parametrize("lines", [3, 7, 24])
def test_the_display_is_renewed_in_place_and_leaves_nothing(
    lines: int, terminal: Callable[[int, int], tuple[io.TextIOWrapper, Callable[[], str]]]
) -> None:
    stream, written = terminal(72, lines)
    display = LiveDisplay(stream, "night-1")
    display.state = busy()
    display.say("a line that stays")
    display._live.refresh()
    written()
    for _ in range(3):
        display._live.refresh()
        once = written()
        height = once.count("\n") + 1
        assert height == min(lines - 1, 11)
        assert once.count("\x1b[1A") == height - 1  # up to where it began: nothing scrolls
    assert "1,000 of 5,000 queries committed" in once
    display.close()
    last = written()
    assert "a line that stays" not in last
    assert last.count("\x1b[2K") >= height  # every line is erased
    assert "\x1b[?25h" in last  # and the cursor is back


def test_a_terminal_that_cannot_move_its_cursor_is_not_renewed(
    monkeypatch: pytest.MonkeyPatch, terminal: Callable[[int, int], tuple[io.TextIOWrapper, Callable[[], str]]]
) -> None:
    stream, written = terminal(80, 24)
    monkeypatch.setenv("TERM", "dumb")
    display = LiveDisplay(stream)
    display.say("reading the log")
    display.close()
    assert (display.terminal, display.renews) == (True, False)
    assert written() == "reading the log\r\n"
