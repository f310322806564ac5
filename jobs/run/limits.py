"""Reasons to stop a run early: limits, a stall, signals."""

import math
import signal
import time
from types import FrameType
from typing import Any, Literal, Self

from cluster.errors import Stopped
from cluster.host_program import is_embedded
from cluster.run.progress import ProgressTracker
from cluster.run.shards import Plan
from jobs.counts import ERRORS, FAILED_BY_OUTAGES
from jobs.job.prepare import Prepared
from jobs.run.watch import Watch
from jobs.runs.tally import Tally, covered_words
from jobs.tables import NOTES
from jobs.terminal.formats import money
from jobs.terminal.live_display import LiveDisplay

FEWEST_FAILED = 10  # queries with errors that limits.error_rate stops a run by: those of a small log are seldom a sign


def outcome(error: BaseException) -> Literal["stopped", "interrupted", "failed"]:
    """Returns the status of a run that ended with this error."""
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, Stopped) and error.code == "interrupted"):
        return "interrupted"
    return "stopped" if isinstance(error, Stopped) and error.graceful else "failed"


def limit(prepared: Prepared, plan: Plan, tally: Tally, watch: Watch, paid: float, resume_command: str) -> Stopped | None:
    """Returns the exceeded limit, with the command that resumes in spite of it; None if no limit is exceeded.

    `paid` is the part of the run that is paid for, 0 to 1.
    """
    limits, counts, usd = prepared.config.limits, watch.counts, watch.state.usd
    done, failed = watch.judged, counts["failed_queries"]
    at_end = done >= plan.counts["queries"]
    raised = resume_command + (" with limits__" if resume_command == "the same call" else " --set limits.")
    if too_many(failed, done, limits.error_rate, whole=at_end):
        failures = [(parts, n) for parts, n in ERRORS.of(counts) if parts[-1] not in NOTES]
        most, often = max(failures, key=lambda item: item[1])
        away = counts[FAILED_BY_OUTAGES]
        alone = not too_many(failed - away, done, limits.error_rate, whole=at_end)
        again = f"{away:,} of them failed because a server did not answer; retry them with: {resume_command}; " if alone else ""
        return Stopped(
            "stopped-errors",
            f"{failed:,} of {done:,} queries have errors ({failed / done:.1%}, limits.error_rate is "
            f"{limits.error_rate:.1%}), most often {'/'.join(most)} ({often:,}); "
            f"the texts are in {prepared.storage.url('errors')}; committed shards are kept; {again}to accept them, resume "
            f"with: {raised}error_rate={min(1, round(failed / done + 0.01, 2))}",
            complete=len(tally.shards) == len(plan.shards),
        )
    if limits.max_cost_usd is not None and usd is not None:
        halted = watch.snapshot.halted > 0  # requests were not sent, since the rest of the budget does not pay for them
        if (halted or usd > limits.max_cost_usd) and len(tally.shards) < len(plan.shards):
            whole = math.ceil(110 * usd / max(paid, 1e-6)) / 100  # with a tenth more
            short = halted and usd <= limits.max_cost_usd
            left = " and does not pay for another request" if short else ""
            return Stopped(
                "stopped-cost",
                f"{money(usd)} are spent, limits.max_cost_usd is {money(limits.max_cost_usd)}{left}; "
                f"{len(tally.shards)} of {len(plan.shards)} shards are committed{covered_words(plan, tally.counts)}; "
                f"to pay for all shards, resume with: {raised}max_cost_usd={whole:.2f}",
            )
    return None


def too_many(failed: int, queries: int, rate: float, *, whole: bool) -> bool:
    """Returns True if failed queries exceed limits.error_rate; fewer than ten do so at the end alone, if they are half of all.

    A rate of 0 allows none.
    """
    enough = failed >= FEWEST_FAILED or not rate or (whole and 2 * failed >= queries)
    return enough and failed > rate * queries


class Stall:
    """Stops a run without commits and without worker activity for too long: hung pools raise no error."""

    def __init__(self, tracker: ProgressTracker, minutes: float, resume_command: str) -> None:
        self._tracker, self._minutes, self._resume_command = tracker, minutes, resume_command
        self.restart()

    def restart(self) -> None:
        self._since = self._checked = time.monotonic()

    def check(self) -> None:
        """Raises Stopped after too long a time without progress; workers are polled at most every 30 seconds."""
        now = time.monotonic()
        patience = self._minutes * 60
        if now - self._since <= patience or now - self._checked <= min(30.0, patience):
            return
        self._checked = now
        if self._tracker.seconds_since_heartbeat() > patience:
            raise Stopped(
                "stopped-stall",
                f"no shard was committed and no worker reported for {self._minutes:g} minutes (limits.stall_minutes); "
                f"committed shards are kept; resume with: {self._resume_command}",
                graceful=False,
            )


class Signals:
    """Handles SIGINT and SIGTERM while the `with` block runs.

    The first signal while shards are in flight (`working`) is kept in `received`: the run admits no more shards and commits
    those in flight, after SIGTERM for the grace that is left until SIGKILL. Before and after, and from the second signal on,
    Stopped is raised at once. In somebody else's program signals are left to that: there Ctrl-C is a KeyboardInterrupt.
    """

    def __init__(self, progress: LiveDisplay, resume_command: str, grace_seconds: float | None = None) -> None:
        self._resume_command, self._grace_seconds = resume_command, grace_seconds
        self.received: int | None = None
        self._received_at = 0.0
        self.working = False
        self._progress = progress
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in () if is_embedded() else (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check_grace(self, in_flight: str) -> None:
        """Raises Stopped once the grace has ended: the next start goes on at once, as the lease is handed back."""
        grace = self._grace_seconds
        if self.received != signal.SIGTERM or grace is None or time.monotonic() - self._received_at <= grace:
            return
        raise Stopped(
            "interrupted",
            f"interrupted: after {grace:g} s (cluster.grace_seconds) {in_flight} left to the next start; committed shards "
            f"are kept; resume with: {self._resume_command}",
            128 + self.received,
            graceful=False,
        )

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if not self.working or self.received is not None:
            raise Stopped(
                "interrupted",
                f"interrupted; committed shards are kept; resume with: {self._resume_command}",
                128 + number,
                graceful=False,
            )
        self.received, self._received_at = number, time.monotonic()
        self._progress.state.phase = "stopping"
