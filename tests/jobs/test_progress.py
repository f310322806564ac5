"""What a person sees while the job works, with and without a terminal; and that nothing else is seen."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs import progress
from jobs.display import StageState
from jobs.progress import Progress, State, apart


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until the test moves it."""
    time = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: time[0])
    return time


def test_without_a_terminal_plain_lines_come_now_and_then(now: list[float]) -> None:
    stream = io.StringIO()
    display = Progress(stream)
    display.tell("run /runs/x")
    display.phase("reading the log")
    display.tick()
    display.phase("reading the log")
    now[0] += progress.PLAIN_SECONDS - 0.1
    display.tick()
    assert stream.getvalue().splitlines() == ["run /runs/x", "reading the log"]
    now[0] += 0.2
    display.tick()
    display.tick()
    display.phase("closing")
    display.close()
    assert stream.getvalue().splitlines() == ["run /runs/x", "reading the log", "reading the log", "closing"]


def test_lines_are_not_wrapped_coloured_or_read_as_markup() -> None:
    stream = io.StringIO()
    words = "output [bold]/runs/with[brackets]/" + "x" * 300
    Progress(stream).tell(words)
    assert stream.getvalue() == words + "\n"


def test_what_libraries_print_goes_to_the_log_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with apart("night") as (display, log):
        os.write(1, b"chatter on 1\n")
        os.write(2, b"chatter on 2\n")
        display.tell("for the person")
    os.write(1, b"the table\n")
    seen = capfd.readouterr()
    assert (seen.out, seen.err) == ("the table\n", "for the person\n")
    assert log.read_text() == "chatter on 1\nchatter on 2\n"
    assert log.name.startswith("night-")
    assert log.parent.stat().st_mode & 0o777 == 0o700


def test_the_streams_come_back_after_an_error(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with pytest.raises(ValueError, match="bug"), apart("night"):
        raise ValueError("bug")
    os.write(1, b"back\n")
    assert capfd.readouterr().out == "back\n"


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
        os.set_blocking(master, False)

        def written() -> str:
            parts = []
            try:
                while part := os.read(master, 65536):
                    parts.append(part)
            except BlockingIOError:
                pass
            return b"".join(parts).decode()

        return os.fdopen(slave, "w", encoding="utf-8"), written

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
    display = Progress(stream, "night-1")
    display.state = busy()
    display.tell("a line that stays")
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


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, terminal: Callable[[int, int], tuple[io.TextIOWrapper, Callable[[], str]]]
) -> None:
    stream, written = terminal(80, 24)
    monkeypatch.setenv("TERM", "dumb")
    display = Progress(stream)
    display.phase("reading the log")
    display.close()
    assert written() == "reading the log\r\n"


def test_a_stream_that_cannot_say_everything_says_what_it_can(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(io.FileIO(os.dup(2), "w"), "ascii"))
    with apart("night") as (display, _):
        display.tell("Größe \u2192 \U0001f600")
    assert capfd.readouterr().err == "Gr??e ? ?\n"
