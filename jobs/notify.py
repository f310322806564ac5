"""Notifications of a job by apprise: its end, and outages. A service that fails or hangs delays no job."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from cluster.errors import CODES, ConfigError, DmqrError
from cluster.outages import Outage, merged, outages
from jobs.config.settings import NotifySettings
from jobs.terminal.formats import clock, money, percent
from jobs.terminal.logs import event
from jobs.terminal.state import State

LOOK_SECONDS = 1.0  # between two looks at the outages
OUTAGE_SECONDS = 60.0  # S3 is waited for 2 minutes in all
END_SECONDS, INTERRUPTED_SECONDS = 10.0, 3.0  # apprise gives up after 4 s without a byte; SIGKILL follows SIGTERM soon
EVENTS = {"interrupted": "interruption", "stopped-errors": "limit", "stopped-cost": "limit", "stopped-stall": "limit"}
"""Code -> event. Lines of these codes hold no text of a query."""
TITLES = {
    "end": ("finished", "success"),
    "failure": ("failed", "failure"),
    "limit": ("stopped by a limit", "warning"),
    "interruption": ("interrupted", "warning"),
    "outage": ("waits for a server", "warning"),
    "recovery": ("continues", "info"),
}
"""Event -> title, apprise's type."""


def check_notify(settings: NotifySettings | None) -> list[Any]:
    """Returns an `apprise.Apprise` for each URL.

    Raises:
        ConfigError: apprise or the variable is missing, or a URL is invalid; URLs hold secrets and are not repeated.
    """
    if settings is None:
        return []
    try:
        from apprise import Apprise
    except ModuleNotFoundError:
        raise ConfigError("package-missing", 'notify: apprise is not installed; run: pip install "dmqr[notify]"') from None
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its lines may hold URLs
    services = [Apprise.instantiate(url) for url in os.environ.get(settings.urls_env, "").split()]
    if not services or None in services:
        why = f"has an invalid URL (number {services.index(None) + 1})" if services else "is not set or empty"
        line = f"notify.urls_env: the environment variable {settings.urls_env} {why}; set it to URLs of apprise"
        raise ConfigError("server-access", line)
    return [Apprise(service) for service in services]


class Notifications:
    """Sends what becomes of one job, in threads."""

    def __init__(self, settings: NotifySettings | None = None, verb: str = "", name: str = "") -> None:
        self.settings, self._services = settings, check_notify(settings)
        self._verb, self._name, self._folder, self._state = verb, name, "", State()
        self._threads: list[threading.Thread] = []
        self._closed = self._given_up = False

    @contextmanager
    def telling(self) -> Iterator[Self]:
        """Sends an error that ends the body, by the meaning of its code where its line may hold a query."""
        try:
            yield self
        except BaseException as error:
            code = error.code if isinstance(error, DmqrError) else "stopped-failure"
            code = code if isinstance(error, Exception) else "interrupted"  # Ctrl-C, SIGTERM
            line = str(error) if isinstance(error, DmqrError) and code in EVENTS else " ".join(CODES[code])
            if code != "run-held":  # that driver sends the end
                self._close(EVENTS.get(code, "failure"), f"{line} [{code}]")
            raise

    @contextmanager
    def watching(self, state: State, run_id: str, folder: str) -> Iterator[None]:
        """Sends outages while the body works, and the error that ends it."""
        self._state, self._name, self._folder = state, run_id, folder
        ended = threading.Event()
        if self.settings is not None:
            threading.Thread(target=self._watch, args=(ended,), name="notify outages", daemon=True).start()
        try:
            with self.telling():
                yield
        finally:
            ended.set()

    def finished(self, leading: str, usd: float | None) -> None:
        """Sends that the job is finished, with its first measure and cost."""
        self._state.usd = self._state.usd if usd is None else usd
        self._close("end", leading)

    def _close(self, what: str, line: str) -> None:
        if self._closed:
            return
        self._send(what, line)
        self._closed = True
        seconds = INTERRUPTED_SECONDS if what == "interruption" else END_SECONDS
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                event("warning", f"notify: {thread.name}: no answer within {seconds:g} s", logging.WARNING)
        self._given_up = True  # the log is closed when late threads end

    def _send(self, what: str, line: str) -> None:
        chosen_as = "outage" if what == "recovery" else what
        if self.settings is None or self._closed or chosen_as not in self.settings.events:
            return
        state, title = self._state, f"dmqr {self._verb} {self._name}: {TITLES[what][0]}"
        figures = [f"{state.done:,} of {state.total:,} queries"] if state.total else []
        figures += [] if state.traffic is None else [f"{percent(state.traffic)} of the traffic"]
        figures += [] if state.usd is None else [money(state.usd)]
        body = "\n".join(part for part in (line, ", ".join(figures), self._folder) if part)
        for number, service in enumerate(self._services, start=1):
            name = f"service {number} of {self.settings.urls_env} ({service[0].service_name}), {what}"
            self._threads.append(
                threading.Thread(target=self._deliver, args=(service, title, body, what), name=name, daemon=True)
            )
            self._threads[-1].start()

    def _watch(self, ended: threading.Event) -> None:
        begun, sent = time.time(), dict[str, Outage]()
        while not ended.wait(LOOK_SECONDS):
            now = {outage.service: outage for outage in merged([*self._state.outages, *outages(begun)])}
            for service, outage in now.items():
                seconds = time.time() - outage.since
                if service not in sent and seconds >= OUTAGE_SECONDS:
                    sent[service] = outage
                    patience = clock(outage.patience)
                    self._send("outage", f"{service} has not answered for {clock(seconds)}; the job gives up after {patience}")
            for service in sent.keys() - now.keys():
                since = sent.pop(service).since
                if (service, since) not in self._state.given_up:
                    self._send("recovery", f"{service} answers again, after {clock(time.time() - since)}")

    def _deliver(self, service: Any, title: str, body: str, what: str) -> None:
        try:
            delivered = bool(service.notify(body, title, TITLES[what][1], body_format="text"))
        except Exception:  # its text may hold the URL
            delivered = False
        if not delivered and not self._given_up:
            name = threading.current_thread().name
            event("warning", f"notify: {name}: not delivered; test the URL with: apprise -vv -b test URL", logging.WARNING)
