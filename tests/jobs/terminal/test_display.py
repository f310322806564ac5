"""Display of an operator: exact words and numbers within the terminal, and servers that are away."""

import fcntl
import io
import os
import pty
import struct
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from cluster import outages
from cluster.outages import Outage, answered, failed
from cluster.run.pulse import outages_reported
from jobs.terminal.formats import clock, duration, listed, money, percent, plain, short, shown
from jobs.terminal.live_display import LOGGED_SECONDS, LiveDisplay, display
from jobs.terminal.state import OutageLog, StageState, State
from tests.support.jobs.terminals import read_terminal

STAGES = (
    StageState("read", 15_000, busy=0.0),
    StageState("rewrite", 13_400, 1_000, 600, 38.0, 0.99, 2, 2, slowest=True),
    StageState("retrieve", 12_900, 500, 0, 44.0, 0.41),
    StageState("fuse", 12_900, busy=0.01),
    StageState("rerank", 12_000, 500, 400, 1234.5, 0.81, 2, 1),
    StageState("write", 12_000, 0, 0, 40.0, 0.02),
)

WORKING = State(
    "working", done=12_000, total=50_000, before=2_000, errors=12, usd=0.52, began=100.0, stages=STAGES,
    reasons={"truncated": 7, "not_recorded": 5},
    quantities={"requests": 13_400, "prompt_tokens": 3_100_000, "cached_tokens": 2_200_000, "completion_tokens": 410_000,
                "searches": 120_000, "pairs": 0},
)  # fmt: skip


def drawn(state: State, width: int, height: int = 24, encoding: str = "utf-8") -> list[str]:
    """The lines as the terminal gets them."""
    file = io.TextIOWrapper(io.BytesIO(), encoding, errors="replace", write_through=True)
    console = Console(file=file, width=width, height=height, soft_wrap=True, color_system=None)
    console.print(display(state, 350.0, "night-d31cfcc381ac", height, since=338.0))
    file.seek(0)
    return [line.rstrip() for line in file.read().splitlines()]


def test_eighty_columns() -> None:
    assert drawn(WORKING, 80) == [
        "12,000 of 50,000 queries committed, 26 % done  working  night-d31cfcc381ac",
        "━" * 14 + " " * 43 + "40.0/s  ETA 15 min 50 s",
        "errors    12 queries: truncated 7, not_recorded 5",
        "cost      $0.520, 13 k requests, 120 k searches",
        "tokens    3.1 M read (2.2 M cached), 410 k written",
        "             done      rate  waiting  at work  busy",
        "read       15,000                  0        0    0%",
        "rewrite    13,400    38.0/s      600    1,000   99%  slowest",
        "retrieve   12,900    44.0/s        0      500   41%",
        "fuse       12,900                  0        0    1%",
        "rerank     12,000   1,234/s      400      500   81%  1 of 2 workers",
        "write      12,000    40.0/s        0        0    2%",
    ]


@pytest.mark.parametrize("state", [WORKING, replace(WORKING, total=0), replace(WORKING, phase="stopping: " + "x" * 90)])
@pytest.mark.parametrize("width", [10, 20, 39, 40, 59, 60, 80, 120, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(width: int, state: State) -> None:
    for height in (2, 5, 9, 12, 24):
        lines = drawn(state, width, height)
        assert max(map(cell_len, lines)) <= width
        assert len(lines) <= height - 1


def test_a_terminal_without_unicode_gets_ascii() -> None:
    lines = drawn(WORKING, 80, encoding="latin-1")
    assert lines[1].startswith("-" * 14 + " ")
    assert "".join(lines).isascii()


def test_nothing_that_is_shown_can_move_the_cursor() -> None:
    evil = "x\x1b[2J\u202e\r\n\x07y"
    state = replace(WORKING, phase=evil, reasons={evil: 1})
    for text in (*drawn(state, 120), state.text(350.0)):
        assert text.isprintable()
    assert plain(evil) == "x?[2J????y"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State("reading the log"), "reading the log"),
        (
            State("working", done=1500, total=4000, before=500, errors=1, usd=0.12345, began=340.0),
            "1,500/4,000 queries, 38% of the work, 100/s, ETA 25 s; errors 1 query; cost $0.123",
        ),
        (State("working", done=4000, total=4000, errors=2, usd=1234.5, began=340.0, reasons={"echo": 3}),
         "4,000/4,000 queries; errors 2 queries: echo 3; cost $1,234.50"),
        (
            State("stopping", done=10, total=20, before=5, began=340.0),
            "stopping: 10/20 queries, 50% of the work, 0.5/s; errors none",
        ),
        (
            WORKING,
            "12,000/50,000 queries, 26% of the work, 40.0/s, ETA 15 min 50 s; errors 12 queries: truncated 7, not_recorded 5; "
            "cost $0.520, 13 k requests, 120 k searches; tokens 3.1 M read (2.2 M cached), 410 k written; "
            "rewrite 13,400 done, 1,000 at work, 600 waiting, 38.0/s, slowest; "
            "retrieve 12,900 done, 500 at work, 44.0/s; "
            "rerank 12,000 done, 500 at work, 400 waiting, 1,234/s, 1 of 2 workers",
        ),
        (
            State("starting", total=9, stages=[StageState("rewrite", 0, there=0)]),
            "starting: 0/9 queries, 0% of the work; errors none; rewrite starting",
        ),
    ],
)  # fmt: skip
def test_the_state_in_one_line(state: State, words: str) -> None:
    assert state.text(350.0) == words


def test_the_eta_goes_by_the_busiest_stage_whatever_the_sizes_of_shards() -> None:
    """The first shard has one query, the others 1,000; eight are rewritten at a time, 10 queries a second in all."""
    state, marks = State("working", total=20_001), {"read": 8_001, "rewrite": 1, "retrieve": 1}
    assert replace(state, stages=[StageState("read", 8_001, rate=900.0, busy=0.1)]).eta(10.0) is None  # nothing is committed
    for second in range(15, 2_000, 7):
        rewritten, block = 1 + 10 * second, 800 * 10  # eight shards end at about the same time
        passed = 1 + rewritten // block * block
        stages = [
            StageState("read", min(20_001, passed + 8_000), busy=0.0),
            StageState("rewrite", rewritten, 8_000, 0, 10.0, 1.0),
            StageState("retrieve", passed, 0, 0, 0.4, 0.3),
        ]
        now = replace(state, done=passed, before=1, began=100.0, stages=stages, marks=marks, marked=100.0)
        assert now.eta(100.0 + second) == pytest.approx((20_001 - rewritten) / 10, rel=0.01)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (clock, {0: "0 s", 42.4: "42 s", 59.6: "1 min 00 s", 200: "3 min 20 s", 3599.7: "1 h 00 min", 7500: "2 h 05 min"}),
        (duration, {0.01: "< 0.1 s", 3.21: "3.2 s", 42.4: "42 s", 200: "3 min 20 s"}),
        (short, {0: "0", 9_999: "9,999", 10_000: "10 k", 999_499: "999 k", 999_500: "1.0 M", 12_345_678: "12.3 M"}),
        (money, {0: "$0.00", 0.00056: "$0.000560", 0.0123: "$0.0123", 1: "$1.00", 12.345: "$12.35", 1234.5: "$1,234.50"}),
        (percent, {0.0171: "1.7 %", 0.0001: "< 0.1 %", 0: "0.0 %"}),
    ],
)
def test_numbers(words: Callable[[float], str], values: dict[float, str]) -> None:
    assert {value: words(value) for value in values} == values


def test_texts() -> None:
    assert listed({"a": 12_000, "bb": 2, "c": 1}, 16) == "a 12,000, 2 more"
    assert listed({"a": 12_000, "bb": 2, "c": 1}) == "a 12,000, bb 2, c 1"
    texts = {
        "a\x00b\x1bc\x7f": "a[U+0000]b[U+001B]c[U+007F]", "\u202eabc\u2069": "[U+202E]abc[U+2069]",
        "line\nline\ttab": "line\nline\ttab", "\ud800": "\\ud800", "שלום עולם": "שלום עולם", "x" * 2001: "x" * 2000 + "…",
    }  # fmt: skip
    assert {text: shown(text) for text in texts} == texts


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
    assert not display.renews
    assert written() == "reading the log\r\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No outage is left of other tests, and none is too short."""
    monkeypatch.setattr(outages, "_failing", {})
    monkeypatch.setattr(outages, "SHORTEST", 0.0)
    monkeypatch.setattr("cluster.run.pulse.OUTAGE_SECONDS", 0.01)


def test_an_outage_lasts_from_the_first_failure_to_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    failed("S3 at host", "503 SlowDown", 120)
    now[0] = 110.0
    failed("S3 at host", "no answer\nfrom host", 120)
    assert outages.outages() == [Outage("S3 at host", "no answer from host", 100.0, 120)]
    answered("another")
    answered("S3 at host")
    assert outages.outages() == []


def test_a_failure_that_passes_at_once_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "SHORTEST", 60.0)
    failed("S3 at host", "503 SlowDown", 120)
    assert outages.outages() == []


def test_a_process_reports_changes_alone_and_at_its_end_what_has_not_answered() -> None:
    told: list[list[str]] = []
    with outages_reported(lambda found: told.append([one.service for one in found])):
        failed("S3", "away", 120)
        while not told:
            time.sleep(0.01)
        time.sleep(0.1)
        assert told == [["S3"]]
    time.sleep(0.1)
    assert told == [["S3"]]  # it was given up
    with outages_reported(lambda found: told.append([one.service for one in found])):
        failed("S3", "away", 120)
        while len(told) < 2:
            time.sleep(0.01)
        answered("S3")
    while len(told) < 3:
        time.sleep(0.01)
    assert told == [["S3"], ["S3"], []]


def test_a_service_that_never_answered_has_no_recovery(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dmqr")
    state = State("working", total=10)
    log, away = OutageLog(state), Outage("LLM server", "HTTP 500", time.time() - 90, 600.0)
    log.update("workers", [away])
    log.end()
    log.update("driver", [away])  # the process still knows of it
    assert [record.event for record in caplog.records] == ["outage"]  # type: ignore[attr-defined]
    assert (state.outages, [service for service, _ in state.given_up], log.past[0]["service"]) == (
        [],
        ["LLM server"],
        "LLM server",
    )


def test_an_outage_is_shown_logged_and_kept(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dmqr")
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    state = State("working", total=10)
    log = OutageLog(state)
    away = Outage("LLM server http://host/v1", "connection refused", 955.0, 600.0)
    log.update("workers", [away])
    log.update("driver", [])
    assert state.facts(1000.0)[:-1] == [("waiting", "for LLM server http://host/v1, 45 s of 10 min 00 s: connection refused")]
    assert "waiting for LLM server http://host/v1, 45 s of 10 min 00 s: connection refused" in state.text(0.0)
    now[0] = 1015.0
    log.update("workers", [])
    assert state.facts(1015.0) == [("errors", "none")]
    assert [(record.event, record.getMessage()) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("outage", "waiting for LLM server http://host/v1: connection refused; gives up after 10 min 00 s"),
        ("recovery", "LLM server http://host/v1 answers again, after 1 min 00 s"),
    ]
    assert log.past == [
        {"service": "LLM server http://host/v1", "reason": "connection refused", "began": 955.0, "seconds": 60.0}
    ]
