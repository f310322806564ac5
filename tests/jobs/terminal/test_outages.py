"""A server that is away is shown with its reason, since when and for how long, and told when it is back."""

from __future__ import annotations

import time

import pytest

from cluster import outages
from cluster.outages import Outage, answered, failed
from cluster.run.pulse import outages_reported
from jobs.terminal.state import OutageLog, State


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
    assert "waiting for LLM server http://host/v1, 45 s of 10 min 00 s: connection refused" in state.words(0.0)
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
