"""The progress of a job, and the outages that it waits out: for the display, the log, `progress.json` and the run's record."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster.outages import Outage, merged
from jobs.terminal.formats import clock, listed, money, per_second, plain, queries, short
from jobs.terminal.logs import event

ETA_SECONDS = 10.0  # of work after the first commit before an ETA is shown
COUNTED = ("requests", "searches", "pairs")  # of the quantities, before tokens
STOPPING = "stopping"  # phases that begin with it have no ETA


@dataclass(frozen=True)
class StageState:
    """One stage; rows are queries. A query that is past the stage before counts in one of `done`, `at_work`, `waiting`."""

    name: str
    done: int  # of all starts of the run
    at_work: int = 0
    waiting: int = 0  # out of the stage before
    rate: float | None = None  # per second over the last minutes; None: not known, or nothing to do
    busy: float | None = None  # share of its workers' time, 0 to 1
    workers: int = 1
    there: int = 1  # workers that have started
    slowest: bool = False

    @property
    def note(self) -> str:
        """Says that the stage is the slowest, or that workers have not started yet; empty otherwise."""
        if self.slowest:
            return "slowest"
        if self.there >= self.workers:
            return ""
        return f"{self.there} of {self.workers} workers" if self.there else "starting"

    def text(self) -> str:
        counted = {"done": self.done, "at work": self.at_work, "waiting": self.waiting}
        parts = [f"{n:,} {words}" for words, n in counted.items() if n]
        parts += [per_second(self.rate)] if self.rate is not None else []
        parts += [self.note] if self.note else []
        return f"{self.name} {', '.join(parts)}"


@dataclass
class State:
    """The progress of a job. Times are those of `time.monotonic`, in seconds."""

    phase: str = "starting"
    done: int = 0  # queries that are committed
    total: int = 0
    before: int = 0  # of `done`, when `began` was set: the rate leaves them out
    errors: int = 0  # queries
    usd: float | None = None
    began: float = 0.0  # when the first shard of this start was committed: the rate leaves out the start-up
    stages: Sequence[StageState] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)  # of the errors, most often first
    quantities: Mapping[str, float] = field(default_factory=dict)  # requests, tokens, searches, pairs
    shards: int = 0  # committed
    planned: int = 0  # shards
    traffic: float | None = None  # the share of it whose queries are committed; None: not known
    outages: Sequence[Outage] = ()  # services that the run waits for
    given_up: set[tuple[str, float]] = field(default_factory=set)  # service and begin of outages that the work did not outlast
    marked: float = 0.0  # when `marks` were taken, after the first commit of this start
    marks: Mapping[str, int] = field(default_factory=dict)  # stage -> its `done` then
    worker_seconds: float = 0.0  # of this start: workers with a shard in flight
    busy: Mapping[str, float] = field(default_factory=dict)  # the same by stage, as `costs.stage` has it
    queued: Mapping[str, float] = field(default_factory=dict)  # seconds in which shards waited for a worker, by stage likewise
    stopping: str = ""  # what is still done, once no more shards are admitted

    def work_done(self) -> float:
        """Returns the part of the work that is done, 0 to 1: queries that are past a stage, of all queries in all stages."""
        if not self.total:
            return 0.0
        done = sum(stage.done for stage in self.stages) / len(self.stages) if self.stages else self.done
        return min(1.0, max(done, self.done) / self.total)

    def facts(self, wall: float) -> list[tuple[str, str]]:
        """Returns the facts that a person should know at once, each with its name: outages, errors, cost and tokens."""
        rows = [
            ("waiting", f"for {wait.service}, {clock(wall - wait.since)} of {clock(wait.patience)}: {plain(wait.reason)}")
            for wait in self.outages
        ]
        rows += [("stopping", self.stopping)] if self.stopping else []
        reasons = f": {listed(self.reasons)}" if self.reasons else ""
        rows.append(("errors", f"{queries(self.errors)}{reasons}" if self.errors else f"none{reasons}"))
        parts = [money(self.usd)] if self.usd is not None else []
        parts += [f"{short(self.quantities[name])} {name}" for name in COUNTED if self.quantities.get(name)]
        rows += [("cost" if self.usd is not None else "work", ", ".join(parts))] if parts else []
        prompt, cached, written = (self.quantities.get(f"{kind}_tokens", 0) for kind in ("prompt", "cached", "completion"))
        known = f" ({short(cached)} cached)" if cached else ""
        return rows + ([("tokens", f"{short(prompt)} read{known}, {short(written)} written")] if prompt or written else [])

    def rate(self, now: float) -> float:
        """Returns queries per second since the first commit of this start; 0 until there is a second one."""
        return (self.done - self.before) / max(1e-9, now - self.began) if self.began else 0.0

    def eta(self, now: float) -> float | None:
        """Returns the seconds to the end; None where they are not known, the run stops before, or it waits for a service.

        By what the busiest stage has done since the first commit: shards differ in size, and stages that wait for others have
        rates of their own. Without its figures by commits.
        """
        if not self.done or self.done >= self.total or self.outages or self.phase.startswith(STOPPING):
            return None
        known = [stage for stage in self.stages if stage.name in self.marks and stage.busy and stage.done < self.total]
        if not self.marks:
            rate, done = self.rate(now), self.done
        elif not known or now - self.marked < ETA_SECONDS:
            return None
        else:
            busiest = max(known, key=lambda stage: stage.busy or 0.0)
            rate, done = (busiest.done - self.marks[busiest.name]) / (now - self.marked), busiest.done
        return (self.total - done) / rate if rate > 0 else None

    def pace(self, now: float) -> str:
        """Returns rate and ETA in words, as far as they are known; empty once all queries are committed."""
        rate, eta = self.rate(now), self.eta(now)
        if self.done >= self.total:  # nothing is left, so the rate would only sink
            return ""
        parts = [per_second(rate)] if rate else []
        left = "waiting" if self.outages else None if eta is None else clock(eta)
        return "  ".join(parts if left is None else [*parts, f"ETA {left}"])

    def text(self, now: float) -> str:
        if not self.total:
            return plain(self.phase)
        share = self.work_done()
        done = f"{self.done:,}/{self.total:,} queries" + (f", {share:.0%} of the work" if share < 1 else "")
        pace = "".join(f", {part}" for part in self.pace(now).split("  ") if part)
        phase = f"{plain(self.phase)}: " if self.phase != "working" else ""
        stages = [stage.text() for stage in self.stages if stage.at_work or stage.waiting or stage.note]
        return "; ".join([phase + done + pace, *(f"{name} {words}" for name, words in self.facts(time.time())), *stages])

    def values(self, now: float) -> dict[str, Any]:
        """Returns the progress as JSON-able values, for another process."""
        eta = self.eta(now)
        return {
            "phase": self.phase,
            "shards": {"committed": self.shards, "planned": self.planned},
            "queries": {
                "committed": self.done,
                "total": self.total,
                "per_second": round(self.rate(now), 3),
                "eta_seconds": None if eta is None else round(eta),
            },
            "traffic_covered": None if self.traffic is None else round(self.traffic, 6),
            "work_done": round(self.work_done(), 4),
            "stages": [asdict(stage) for stage in self.stages],
            "outages": [outage._asdict() for outage in self.outages],
            "worker_seconds": self.worker_seconds,
            "errors": {"queries": self.errors, "reasons": dict(self.reasons)},
            "usd": self.usd,
            "quantities": dict(self.quantities),
        }


class OutageLog:
    """The outages of a run for which its workers or its driver wait. Threads may share it."""

    def __init__(self, state: State) -> None:
        """Knows of none. Changes `state.outages` and `state.given_up`."""
        self._state, self._lock = state, threading.Lock()
        self._by_source: dict[str, list[Outage]] = {}
        self._open: dict[str, dict[str, Any]] = {}  # service -> its entry in `past`
        self.past: list[dict[str, Any]] = []
        """All outages so far, as JSON-able values: service, reason, began (seconds since the epoch), seconds."""

    def update(self, source: str, outages: list[Outage]) -> None:
        """Replaces the outages that `source` knows of ("driver" or "workers")."""
        with self._lock:
            self._by_source[source] = outages
            known = [outage for found in self._by_source.values() for outage in found]
            now = merged([outage for outage in known if (outage.service, outage.since) not in self._state.given_up])
            self._state.outages = now
            current = {outage.service: outage for outage in now}
            for service, outage in current.items():
                if service not in self._open:
                    entry: dict[str, Any] = {"service": service, "reason": outage.reason, "began": outage.since, "seconds": 0.0}
                    self.past.append(entry)
                    self._open[service] = entry
                    message = f"waiting for {service}: {outage.reason}; gives up after {clock(outage.patience)}"
                    event(
                        "outage", message, logging.WARNING,
                        service=service, reason=outage.reason, since=outage.since, patience_seconds=outage.patience,
                    )  # fmt: skip
                self._open[service]["seconds"] = round(time.time() - outage.since, 1)
            for service in self._open.keys() - current.keys():
                entry = self._open.pop(service)
                seconds = entry["seconds"] = round(time.time() - entry["began"], 1)
                message = f"{service} answers again, after {clock(seconds)}"
                event("recovery", message, service=service, since=entry["began"], seconds=seconds)

    def end(self) -> None:
        """Ends open outages without a recovery, since nobody waits any more."""
        with self._lock:
            self._state.given_up |= {(entry["service"], entry["began"]) for entry in self._open.values()}
            self._open.clear()
            self._state.outages = []
