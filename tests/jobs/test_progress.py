"""What a person sees while the job works, where there is no terminal; and that nothing else is seen."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from jobs import progress
from jobs.progress import Progress, State, apart, clock


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (42.4, "42 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_clock(seconds: float, words: str) -> None:
    assert clock(seconds) == words


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State("reading the log"), "reading the log"),
        (
            State("working", done=1500, total=4000, before=500, errors=1, usd=0.12345, began=100.0),
            "1,500/4,000 queries, 100.0/s, ETA 25 s, 1 error, $0.1235",
        ),
        (State("working", done=4000, total=4000, errors=2, usd=1234.5, began=100.0),
         "4,000/4,000 queries, 400.0/s, 2 errors, $1,234.50"),
        (State("stopping", done=10, total=20, before=10, began=100.0), "stopping: 10/20 queries, 0 errors"),
    ],
)  # fmt: skip
def test_the_state_in_one_line(state: State, words: str) -> None:
    assert state.words(110.0) == words


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
