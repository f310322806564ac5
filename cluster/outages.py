"""The services that this process waits for: they fail, and requests to them are retried, after pauses that grow.

Clients of a service send their requests by `retried`, or call `failed`, and `answered`; whoever shows the progress asks
`outages`. Standard library only: every package may import it, as `cluster.errors`.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

SHORTEST = 2.0  # seconds: shorter ones are ordinary retries
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0  # seconds, before random shortening


class Outage(NamedTuple):
    """A service that has not answered for a while."""

    service: str  # kind and address, e.g. `S3 at host:9000`
    reason: str  # of the latest failure
    since: float  # time of the first failure in a row, in seconds since the epoch
    patience: float  # seconds of retries before the waiting process gives up


class Transient(Exception):
    """A failure of a service (as in `Outage`), `lasted` seconds after the first; the same request may succeed."""

    lasted = 0.0

    def __init__(self, message: str, service: str) -> None:
        super().__init__(message)
        self.service = service


Value = TypeVar("Value")
_lock = threading.Lock()
_failing: dict[str, Outage] = {}  # service -> its failures since the last answer
_latest: dict[str, float] = {}  # service -> when it failed last


def pause(failures: int, longest: float | None = None, least: float = 0.25) -> float:
    """Returns the seconds to wait after `failures` in a row (from 1): exponential backoff with jitter.

    They are `longest` at most, None: `LONGEST_PAUSE`; `least` is a part of the longest after as many failures.
    """
    most = min(longest or LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 30))
    return random.uniform(least * most, most)


def retried(
    attempt: Callable[[], Value], patience: float | Callable[[Transient], float], stop: threading.Event | None = None
) -> Value:
    """Returns `attempt()`; calls it again while it is `Transient`, after pauses (`pause`) that are shown as an outage.

    Raises the last failure after the patience (seconds from the first one, or their function of a failure), or on `stop`.
    """
    failures, began = 0, 0.0
    while True:
        try:
            return attempt()
        except Transient as failure:
            failures, began = failures + 1, began or time.monotonic()
            failure.lasted = time.monotonic() - began
            limit = patience(failure) if callable(patience) else patience
            failed(failure.service, failure, limit)
            left = limit - failure.lasted
            if left <= 0:
                raise
            seconds = min(pause(failures), left)
            if stop is None:
                time.sleep(seconds)
            elif stop.wait(seconds):
                raise


def failed(service: str, reason: object, patience: float) -> None:
    """Records a failure of a service, after which the request is sent again."""
    with _lock:
        before, _latest[service] = _failing.get(service), time.time()
        since = _latest[service] if before is None else before.since
        _failing[service] = Outage(service, " ".join(str(reason).split()), since, patience)


def answered(service: str) -> None:
    """Records that a service has answered; ends its outage."""
    if service in _failing:
        with _lock:
            _failing.pop(service, None)


def outages(after: float = 0.0) -> list[Outage]:
    """Returns the services that have failed for `SHORTEST` seconds or longer without an answer, sorted by name.

    One that has not failed since `after` (seconds since the epoch) was given up by an earlier job, and is left out.
    """
    now = time.time()
    with _lock:
        under_way = [one for one in _failing.values() if now - one.since >= SHORTEST and _latest.get(one.service, 0.0) >= after]
    return sorted(under_way)


def merged(outages: list[Outage]) -> list[Outage]:
    """Returns one outage per service, of several processes that wait for it: since the first of them."""
    latest_first = sorted(outages, key=lambda outage: -outage.since)
    return sorted({outage.service: outage for outage in latest_first}.values())
