"""Who is told what and when: outages by each recipient's own minutes, one end, what waits behind a slow delivery."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import outages
from cluster.errors import Stopped
from cluster.outages import Outage, answered, failed
from cluster.run.outage_reports import OutageReports
from jobs.config.notify import EVENTS, NotifySettings
from jobs.notify import notifications, recipient
from jobs.notify.delivery import NotDeliveredError
from jobs.notify.message import Message
from jobs.notify.notifications import Notifications
from jobs.terminal.state import State

Sent = list[tuple[str, Message]]
NOTHING: Any = SimpleNamespace(leading=None, usd=None)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Variable and message of all that is delivered."""
    monkeypatch.setattr(outages, "_failing", {})
    monkeypatch.setattr(outages, "SHORTEST", 0.0)
    monkeypatch.setattr("cluster.run.outage_reports.SECONDS", 0.01)
    monkeypatch.setattr(notifications, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(recipient, "PAUSE_SECONDS", 0.01)
    found: Sent = []
    body = Message.body

    def kept(self: Message, form: Any) -> bytes:
        found.append((threading.current_thread().name.removeprefix("notify "), self))
        return body(self, form)

    monkeypatch.setattr(Message, "body", kept)
    monkeypatch.setattr(recipient, "deliver", lambda *_: None)
    return found


def until(so: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not so():
        assert time.monotonic() < end
        time.sleep(0.005)


def told(sent: Sent, who: str) -> list[tuple[str, str]]:
    return [(one.event, one.outage.service if one.outage else "") for name, one in sent if name == who]


def test_each_is_told_of_an_outage_after_its_own_minutes_and_once(sent: Sent) -> None:
    soon, late, never = (NotifySettings(webhook_env=name, outage_minutes=n) for name, n in (("A", 1), ("B", 5), ("C", 600)))
    without = NotifySettings(webhook_env="D", outage_minutes=1, events=["end"])
    jobs = Notifications([soon, late, never, without], "run", "n")
    state, now = State("working", total=9, done=3), time.time()
    with jobs.watching(state):
        jobs.about("n-1", "/runs/n-1", new=True)
        failed("S3", "away", 120)
        outages._failing["S3"] = Outage("S3", "away", now - 120, 120)  # it began two minutes ago
        state.outages = [Outage("LLM", "busy", now - 400, 600), Outage("S3", "later", now - 10, 120)]
        until(lambda: len(sent) == 3)
        time.sleep(0.1)
        assert sorted(told(sent, "A")) == [("outage", "LLM"), ("outage", "S3")]
        assert told(sent, "B") == [("outage", "LLM")]
        answered("S3")
        state.outages = [Outage("LLM", "busy", now - 400, 600)]
        until(lambda: len(sent) == 4)
        assert told(sent, "A")[-1] == ("recovery", "S3")
        state.outages = []
        until(lambda: len(sent) == 6)
    jobs.ended(NOTHING)
    assert [told(sent, who) for who in ("B", "C", "D")] == [
        [("outage", "LLM"), ("recovery", "LLM"), ("end", "")], [("end", "")], [("end", "")]
    ]  # fmt: skip
    _, first = sent[0]
    assert (first.run_id, first.figures.done, first.figures.of, first.exit_code) == ("n-1", 3, 9, None)


def test_an_outage_of_an_earlier_job_of_the_process_is_not_told_until_it_fails_again(sent: Sent) -> None:
    """As in a notebook: the job before has given the server up, and this one may not need it."""
    failed("LLM at host", "away", 120)
    outages._failing["LLM at host"] = outages._failing["LLM at host"]._replace(since=time.time() - 600)
    jobs, state = Notifications([NotifySettings(webhook_env="A", outage_minutes=1)], "run", "n"), State("working")
    reported: list[list[Outage]] = []
    with OutageReports(reported.append), jobs.watching(state):
        time.sleep(0.1)
        assert (sent, reported) == ([], [])
        failed("LLM at host", "away", 120)
        until(lambda: sent and reported)
    assert told(sent, "A") == [("outage", "LLM at host")]
    assert [one.service for one in reported[0]] == ["LLM at host"]


def test_one_end_is_told(sent: Sent) -> None:
    jobs = Notifications([NotifySettings(webhook_env="A")], "run", "n")
    jobs.about("n-1", "/runs/n-1", new=True)
    jobs.failed(Stopped("stopped-cost", "it is dear; pay"))
    jobs.failed(KeyboardInterrupt())
    jobs.ended(NOTHING)
    assert [one.event for _, one in sent] == ["limit"]


@pytest.mark.parametrize("seed", range(8))
def test_drawn_ends_reach_those_who_asked(sent: Sent, seed: int) -> None:
    drawn = random.Random(seed)
    wanted = {name: drawn.sample(EVENTS, drawn.randint(1, len(EVENTS))) for name in "ABCD"}
    ends: dict[str, BaseException | None] = {
        "end": None, "failure": ValueError("x"), "limit": Stopped("stopped-stall", "still; go on"),
        "interruption": Stopped("interrupted", "interrupted; go on", 143),
    }  # fmt: skip
    event = drawn.choice(list(ends))
    jobs = Notifications([NotifySettings(webhook_env=name, events=events) for name, events in wanted.items()], "run", "n")
    states = [State(done=drawn.randint(0, 9), total=9, usd=drawn.choice([None, 0.5])) for _ in range(drawn.randint(1, 3))]
    for state in states:
        with jobs.watching(state):
            jobs.about("n-1", "/runs/n-1", new=True)
    error = ends[event]
    if error is None:
        jobs.ended(NOTHING)
    else:
        jobs.failed(error)
    assert sorted(name for name, _ in sent) == [name for name, events in wanted.items() if event in events]
    for _, message in sent:
        assert message.event == event
        assert message.figures.done == sum(state.done for state in states)
        assert (message.figures.usd or 0) == sum(state.usd or 0 for state in states)


def test_what_waits_behind_a_slow_delivery_is_dropped_for_the_end(
    sent: Sent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dmqr")
    free = threading.Event()
    monkeypatch.setattr(recipient, "deliver", lambda *_: free.wait(20))
    jobs = Notifications([NotifySettings(webhook_env="A", outage_minutes=0.001)], "run", "n")
    state = State("working", total=9)
    with jobs.watching(state):
        jobs.about("n-1", "/runs/n-1", new=True)
        now = time.time()
        state.outages = [Outage(name, "away", now - 60, 600) for name in ("one", "two", "three")]
        until(lambda: sent)
        state.outages = []
        time.sleep(0.2)
        threading.Timer(0.2, free.set).start()
        jobs.ended(NOTHING)
    assert told(sent, "A") == [("outage", "one"), ("end", "")]
    said = [record.getMessage() for record in caplog.records]
    assert said.count("notify: A: was not told (outage): the job has ended meanwhile") == 2
    assert said[-1] == "told A: end"


def test_a_second_try_and_no_third(sent: Sent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    tries = []

    def deliver(settings: NotifySettings, _: bytes) -> None:
        tries.append(settings.webhook_env)
        if settings.webhook_env == "C":
            raise RuntimeError("https://hooks.example/s3cr3t")  # a mistake of ours
        raise NotDeliveredError("HTTP 500", passing=settings.webhook_env == "A")

    monkeypatch.setattr(recipient, "deliver", deliver)
    jobs = Notifications([NotifySettings(webhook_env=name) for name in "ABC"], "run", "n")
    jobs.failed(ValueError("x"))
    assert sorted(tries) == ["A", "A", "B", "C"]
    assert "s3cr3t" not in caplog.text
    assert "notify: C: was not told (failure): RuntimeError" in caplog.text


def test_without_recipients_nothing_is_done() -> None:
    jobs, before = Notifications(), threading.active_count()
    with jobs.watching(State()):
        assert threading.active_count() == before
    jobs.ended(NOTHING)
    jobs.failed(ValueError("x"))
    assert not jobs


def test_what_cannot_be_told_fails_no_job(sent: Sent, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        usd = None

        @property
        def leading(self) -> None:
            raise KeyError("R@10")

    jobs = Notifications([NotifySettings(webhook_env="A")], "run", "n")
    jobs.about("n-1", "/runs/n-1", new=True)
    jobs.ended(Broken())
    assert "notify: nobody was told (end): KeyError" in caplog.text
    assert sent == []
    Notifications().ended(Broken())  # nobody asks for it
