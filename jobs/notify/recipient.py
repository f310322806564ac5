"""One of those who are told: a thread of its own delivers to it, so that no other and no job waits for it."""

from __future__ import annotations

import logging
import queue
import threading
import time

from jobs.config.notify import NotifySettings
from jobs.notify.delivery import NotDeliveredError, deliver
from jobs.notify.message import Message
from jobs.terminal.logs import event

PAUSE_SECONDS = 1.0  # before the second try
_SLACK_SECONDS = 1.0  # a socket's timeout is of each step of a request, so that the whole may take somewhat longer


class Recipient:
    """Delivers messages in the order in which they were sent."""

    def __init__(self, settings: NotifySettings) -> None:
        """Starts no thread yet."""
        self.settings = settings
        self._waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._idle, self._given_up = threading.Event(), False
        self._lock = threading.Lock()
        self._left = 0
        self._thread: threading.Thread | None = None

    @property
    def longest(self) -> float:
        """Returns the seconds that a message takes at most, with its second try."""
        return 2 * (self.settings.timeout_seconds + _SLACK_SECONDS) + PAUSE_SECONDS

    def send(self, message: Message) -> None:
        """Hands a message to the thread."""
        with self._lock:
            self._left += 1
            self._idle.clear()
        self._waiting.put(message)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"notify {self.settings.shown}", daemon=True)
            self._thread.start()

    def finish(self, message: Message) -> None:
        """Hands the last message over; those that still wait are dropped, since it says how what they tell of went on."""
        while not self._waiting.empty():
            try:
                dropped = self._waiting.get_nowait()
            except queue.Empty:  # the thread was faster
                break
            self._say_failed(dropped, "the job has ended meanwhile")
            self._done()
        self.send(message)

    def wait(self, seconds: float) -> None:
        """Waits until all is delivered or has failed, for so many seconds at most; then it is given up, which the log says."""
        if self._thread is None or self._idle.wait(max(0.0, seconds)):
            return
        self._given_up = True  # the log may be closed when the thread comes to an end
        words = f"notify: {self.settings.shown}: may not have been told: no end within {seconds:.0f} s, and nobody waits longer"
        event("warning", words, logging.WARNING, recipient=self.settings.shown)

    def _work(self) -> None:
        while True:
            message = self._waiting.get()
            try:
                self._tell(message)
            finally:
                self._done()

    def _done(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._idle.set()

    def _tell(self, message: Message) -> None:
        for final in (False, True):
            try:
                deliver(self.settings, message.body(self.settings.format))
            except NotDeliveredError as error:
                if error.passing and not final:
                    time.sleep(PAUSE_SECONDS)
                    continue
                self._say_failed(message, str(error))
            except Exception as error:  # a mistake of ours, which fails no job either; its text may hold the address
                self._say_failed(message, type(error).__name__)
            else:
                self._say("notification", f"told {self.settings.shown}: {message.event}", logging.INFO, message)
            return

    def _say_failed(self, message: Message, why: str) -> None:
        self._say("warning", f"notify: {self.settings.shown}: was not told ({message.event}): {why}", logging.WARNING, message)

    def _say(self, name: str, words: str, level: int, message: Message) -> None:
        if not self._given_up:
            event(name, words, level, recipient=self.settings.shown, told=message.event)
