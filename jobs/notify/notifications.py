"""What becomes of a job is told to whom its config names: outages while they last, and how each start ends, once."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, Protocol

from cluster.outages import Outage, merged, outages
from jobs.config.notify import NotifySettings
from jobs.notify.message import Away, JobFigures, Leading, Message, ending, outage_line, recovery_line
from jobs.notify.recipient import Recipient
from jobs.terminal.logs import event
from jobs.terminal.state import State

LOOK_SECONDS = 1.0  # between two looks at the outages
INTERRUPTED_SECONDS = 3.0  # that an interrupted job waits for: SIGKILL comes soon


class Closed(Protocol):
    """A job that has come to its end, as far as it is told of."""

    @property
    def leading(self) -> Leading | None:
        """Returns its first measure; None if nothing was measured."""

    @property
    def usd(self) -> float | None:
        """Returns what it has cost, in USD; None: as far as its progress knows it."""


class Notifications:
    """Tells what becomes of one job; without recipients it does nothing."""

    def __init__(self, settings: Sequence[NotifySettings] = (), verb: str = "", name: str = "") -> None:
        """Tells nothing yet."""
        self._verb, self._name = verb, name
        self._recipients = [Recipient(one) for one in settings]
        self._states: list[State] = []
        self._run: tuple[str | None, str | None] = None, None
        self._new = self._told = False

    def __bool__(self) -> bool:
        """Returns whether anybody is told."""
        return bool(self._recipients)

    def about(self, run_id: str, folder: str, *, new: bool) -> None:
        """Says which run it is of.

        `new`: it was not finished before, so that its end is news.
        """
        if not self:
            return
        self._run = run_id, folder
        self._new |= new

    @contextmanager
    def watching(self, state: State) -> Iterator[None]:
        """Tells of outages while the body works, whose progress `state` has."""
        if not self:
            yield
            return
        self._states.append(state)
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(state, ended, time.time()), name="notify outages", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(LOOK_SECONDS)

    def ended(self, found: Closed) -> None:
        """Tells that the job is finished, and waits until that is delivered, or has failed; raises nothing."""
        if not self or not self._new or self._told:
            return
        with _harmless("end"):
            figures, usd, measure = self._figures(), found.usd, found.leading
            figures = figures if usd is None else figures._replace(usd=usd)
            values = None if measure is None else measure.values()
            self._finish(self._message("end", "finished", exit_code=0, figures=figures, measure=values))

    def failed(self, error: BaseException) -> None:
        """Tells how an error ends the job, unless its end was told before; raises nothing."""
        found = ending(error)
        if not self or found is None or self._told:
            return
        with _harmless(found.event):
            known = {"exit_code": found.exit_code, "code": found.code, "figures": self._figures()}
            self._finish(self._message(found.event, found.line, **known))

    def _finish(self, message: Message) -> None:
        self._told = True
        told = [one for one in self._recipients if message.event in one.settings.events]
        for one in told:
            one.finish(message)
        begun = time.monotonic()
        for one in self._recipients:
            longest = min(one.longest, INTERRUPTED_SECONDS) if message.event == "interruption" else one.longest
            one.wait(begun + longest - time.monotonic())

    def _message(self, what: str, line: str, **more: object) -> Message:
        run_id, folder = self._run
        values = {"run_id": run_id, "folder": folder, "time": time.time()} | more
        return Message(what, self._verb, self._name, line, **values)  # type: ignore[arg-type]

    def _figures(self) -> JobFigures:
        """Returns how far the job is."""
        states = self._states
        priced = [one.usd for one in states if one.usd is not None]
        done, of = sum(one.done for one in states), sum(one.total for one in states)
        traffic = states[0].traffic if len(states) == 1 else None
        return JobFigures(done, of or None, traffic, sum(priced) if priced else None)

    def _watch(self, state: State, ended: threading.Event, begun: float) -> None:
        told: dict[tuple[int, str], Outage] = {}  # recipient and service -> the outage
        while not ended.wait(LOOK_SECONDS):
            now = time.time()
            found = {one.service: one for one in merged([*state.outages, *outages(begun)])}
            for number, recipient in enumerate(self._recipients):
                if "outage" not in recipient.settings.events:
                    continue
                for service, outage in found.items():
                    if (number, service) not in told and now - outage.since >= recipient.settings.outage_minutes * 60:
                        told[number, service] = outage
                        away = Away(service, outage.since, now - outage.since, outage.patience)
                        recipient.send(self._of_outage("outage", outage_line(away), away))
                for of, service in [key for key in told if key[0] == number and key[1] not in found]:
                    outage = told.pop((of, service))
                    if service in state.unanswered:
                        continue
                    away = Away(service, outage.since, now - outage.since, outage.patience)
                    recipient.send(self._of_outage("recovery", recovery_line(away), away))

    def _of_outage(self, what: str, line: str, away: Away) -> Message:
        return self._message(what, line, outage=away, figures=self._figures())


@contextmanager
def _harmless(event_name: str) -> Iterator[None]:
    """Warns of a mistake of ours in the body, which fails no job."""
    try:
        yield
    except Exception as error:
        words = f"notify: nobody was told ({event_name}): {type(error).__name__}; report it with its trace"
        event("warning", words, logging.WARNING, error=error)


@contextmanager
def sigterm_told() -> Iterator[None]:
    """Has SIGTERM end the body by an exception, as Ctrl-C does, where it would kill the process without a word.

    It is the one that Ray raises, which is no `Exception`: nobody takes it for a failure of what was under way.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:  # Ray may have put one of its own there
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
