"""The verb `run`: plan the shards once, stream what is not committed, stop in order, finish."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pyarrow as pa

from cluster import ClusterError, costs
from cluster.lease import Lease, check_free
from cluster.session import Session
from cluster.shards import (
    SUCCESS,
    Manifest,
    Plan,
    Shard,
    check_inputs,
    manifests,
    read_manifest,
    read_plan,
)
from cluster.stage import Line
from cluster.storage import Storage
from jobs.finish import announce, finish
from jobs.pipeline import code, stages, wishes
from jobs.prepare import Prepared, check_not_replaced
from jobs.progress import Progress
from jobs.record import Record
from jobs.shard import draft_queries, fix_plan
from jobs.tables import NOTES, SHARD

JUDGED_FROM = 100  # queries done before limits.error_rate can stop a run: below, a single error would


class Stopped(Exception):
    """The job ended before its end; the text says why and how to go on. Exit code 1, or 128 + the signal."""

    def __init__(self, words: str, code: int = 1) -> None:
        super().__init__(words)
        self.code = code


@dataclass
class Tally:
    """Sums over committed shards."""

    shards: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    spent: costs.Totals = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Count a shard, once."""
        if manifest.shard not in self.shards:
            self.shards.add(manifest.shard)
            self.counts.update(manifest.counts)
            costs.add(self.spent, manifest.costs)


def run(prepared: Prepared, progress: Progress) -> tuple[Plan, Tally]:
    """Bring the run to its end; what is there already is not done again. Stopped if it had to end early."""
    storage = prepared.storage
    where = storage.root
    plan = read_plan(storage)
    if plan is not None:
        check_inputs(plan, prepared.inputs, where)
    if plan is not None and storage.get(SUCCESS) is not None:
        progress.tell(f"finished already: {where}")
        announce(prepared)
        return plan, tally_of(storage)
    check_free(storage, time.time())
    if plan is None:
        check_not_replaced(prepared)
    progress.phase("starting Ray")
    session = Session(prepared.config.cluster.address, wishes(prepared.config), code())
    try:
        progress.phase("reading the log")
        draft = draft_queries(prepared) if plan is None else None
        lease = Lease.acquire(storage)  # from here on things are written
        try:
            record = Record(prepared, session, lease.number)
            plan = fix_plan(prepared, draft) if draft else plan
            assert plan is not None
            tally = tally_of(storage)
            try:
                _work(prepared, plan, session, lease, tally, progress)
                progress.phase("checking and closing")
                finish(prepared, plan, tally.counts)
                announce(prepared)
            except BaseException as error:
                record.put("stopped" if isinstance(error, Stopped) else "failed", plan, tally.counts, tally.spent)
                raise
            record.put("finished", plan, tally.counts, tally.spent)
            return plan, tally
        except ClusterError as error:  # work was begun, so it is not refused: it has failed
            raise Stopped(str(error)) from error
        finally:
            lease.release()
    finally:
        session.close()


def tally_of(storage: Storage) -> Tally:
    """The sums of what is committed."""
    tally = Tally()
    for manifest in manifests(storage):
        tally.add(manifest)
    return tally


def _work(prepared: Prepared, plan: Plan, session: Session, lease: Lease, tally: Tally, progress: Progress) -> None:
    """Stream the shards that are not committed; keep the display, the limits and the signals in view."""
    pending = [shard for shard in plan.shards if shard.number not in tally.shards]
    state, limits = progress.state, prepared.config.limits
    state.total, state.done = plan.counts["queries"], tally.counts["queries"]
    if (stop := _limit(prepared, plan, tally)) is not None:
        raise stop
    if not pending:
        return
    if state.done:
        progress.tell(f"going on: {len(tally.shards)} of {len(plan.shards)} shards are committed")
    progress.phase("starting the workers")
    line = Line(stages(prepared, session.pools, lease.number), lease.number)
    arrived: queue.Queue[dict[str, Any] | BaseException | None] = queue.Queue()
    threading.Thread(target=_stream, args=(line, pending, arrived), name="stream", daemon=True).start()
    last = time.monotonic()
    with _Signals(line, progress) as signals:
        while True:
            try:
                row = arrived.get(timeout=0.5)
            except queue.Empty:
                row = {}
            if row is None:
                break
            if isinstance(row, BaseException):
                raise row
            if row:
                last = time.monotonic()
                tally.add(read_manifest(row["manifest"]))
                line.committed(row["shard"])
            state.done, state.errors = tally.counts["queries"], tally.counts["failed_queries"]
            if row and not state.began:
                state.phase, state.began, state.before = "working", last, state.done
            state.usd = prepared.prices.usd(tally.spent) if prepared.prices else None
            progress.tick()
            if stop is None and (stop := _limit(prepared, plan, tally)) is not None:
                line.close()
                progress.phase("stopping")
            if lease.lost():
                raise Stopped("another driver has taken this run over; this one ends")
            if time.monotonic() - last > limits.stall_minutes * 60:
                raise Stopped(
                    f"no shard was committed for {limits.stall_minutes:g} minutes (limits.stall_minutes); "
                    "what is committed stays, the same command goes on"
                )
    if signals.received is not None:
        left = len(plan.shards) - len(tally.shards)
        words = f"interrupted: {len(tally.shards)} of {len(plan.shards)} shards are committed; the same command goes on"
        if left:
            raise Stopped(words, 128 + signals.received)
    stop = stop or _limit(prepared, plan, tally)
    if stop is not None:
        raise stop
    if len(tally.shards) < len(plan.shards):
        raise Stopped(f"only {len(tally.shards)} of {len(plan.shards)} shards came to an end; run the same command again")


def _stream(line: Line, pending: list[Shard], arrived: queue.Queue[dict[str, Any] | BaseException | None]) -> None:
    def places() -> Iterator[pa.Table]:
        for shard in pending:
            yield pa.table({"shard": [shard.number], "key": [shard.key], "row_group": [shard.row_group]}, schema=SHARD)

    try:
        for row in line.run(places()):
            arrived.put(row)
        arrived.put(None)
    except BaseException as error:  # handed to the main thread, which raises it
        arrived.put(error)


def _limit(prepared: Prepared, plan: Plan, tally: Tally) -> Stopped | None:
    """The limit that is passed, if one is."""
    limits, counts = prepared.config.limits, tally.counts
    done, failed = counts["queries"], counts["failed_queries"]
    judged = done >= JUDGED_FROM or len(tally.shards) == len(plan.shards)
    if judged and done and failed / done > limits.error_rate:
        failures = {name: n for name, n in counts.items() if name.startswith("error/") and not name.endswith(NOTES)}
        reason, often = max(failures.items(), key=lambda item: item[1])
        return Stopped(
            f"{failed:,} of {done:,} queries have errors ({failed / done:.1%}, limits.error_rate is "
            f"{limits.error_rate:.1%}), most often {reason.removeprefix('error/')} ({often:,}); the texts are in "
            f"{prepared.storage.url('errors')}; what is committed stays; to accept it go on with "
            f"--set limits.error_rate={min(1, round(failed / done + 0.01, 2))}"
        )
    if limits.max_cost_usd is not None and prepared.prices is not None:
        usd = prepared.prices.usd(tally.spent)
        if usd > limits.max_cost_usd and len(tally.shards) < len(plan.shards):
            return Stopped(
                f"${usd:.2f} are spent, limits.max_cost_usd is ${limits.max_cost_usd:.2f}; "
                f"{len(tally.shards)} of {len(plan.shards)} shards are committed; raise the limit and run again to go on"
            )
    return None


class _Signals:
    """SIGINT and SIGTERM: admit no more shards, commit what is under way; a second one ends at once."""

    def __init__(self, line: Line, progress: Progress) -> None:
        self.received: int | None = None
        self._line, self._progress = line, progress
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            raise Stopped("interrupted twice: ended at once; the same command goes on", 128 + number)
        self.received = number
        self._progress.state.phase = "stopping: committing what is under way"
        self._line.close()
