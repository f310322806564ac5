"""The verb `run`: plan the shards once, stream what is not committed, stop in order, finish."""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
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
from jobs.prepare import Prepared, check_engine, check_not_replaced
from jobs.progress import Progress
from jobs.record import Record
from jobs.retriever_opening import check_shares
from jobs.shard import Draft, draft_queries, fix_plan
from jobs.tables import NOTES, SHARD
from jobs.watch import Watch

STARTING = "starting the workers"  # until one is at work
JUDGED_FROM = 100  # queries done before limits.error_rate can stop a run: below, a single error would


class Stopped(Exception):
    """The job ended before its end; the text says why and how to go on. Exit code 1, or 128 + the signal.

    orderly: what was under way was committed first, so nothing is lost.
    """

    def __init__(self, words: str, code: int = 1, *, orderly: bool = True) -> None:
        super().__init__(words)
        self.code, self.orderly = code, orderly


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
            costs.add(self.spent, manifest.spent)


def run(prepared: Prepared, progress: Progress, again: str = "the same command") -> tuple[Plan, Tally]:
    """Bring the run to its end; what is there already is not done again. Stopped, naming the command `again`, if it had to
    end early."""
    storage, where = prepared.storage, prepared.storage.root
    plan = read_plan(storage)
    if plan is not None:
        check_inputs(plan, prepared.inputs, where)
    if plan is not None and storage.stat(SUCCESS) is not None:
        progress.tell(f"finished already: {where}")
        announce(prepared)
        return plan, tally_of(storage)
    check_free(storage, time.time())
    if plan is None:
        check_not_replaced(prepared)
    check_engine(prepared)
    progress.phase("starting Ray")
    session = Session(prepared.config.cluster.address, wishes(prepared.config), code())
    try:
        check_shares(prepared.config, session.pools)
        with _Signals(progress, again) as signals:
            progress.phase("reading the log")
            draft = draft_queries(prepared) if plan is None else None
            lease = Lease.acquire(storage)  # from here on things are written
            try:
                return _hold(prepared, plan, draft, session, lease, signals, progress, again)
            except ClusterError as error:  # work was begun, so it is not refused: it has failed
                raise Stopped(str(error), orderly=False) from error
            finally:
                lease.release()
    finally:
        session.close()


def _hold(
    prepared: Prepared,
    plan: Plan | None,
    draft: Draft | None,
    session: Session,
    lease: Lease,
    signals: _Signals,
    progress: Progress,
    again: str,
) -> tuple[Plan, Tally]:
    """The run while its lease is held: fix the plan, work, close."""
    record = Record(prepared, session, lease.number)
    plan = fix_plan(prepared, draft) if draft else plan
    assert plan is not None
    tally = tally_of(prepared.storage)
    try:
        _work(prepared, plan, session, lease, tally, signals, progress, again)
        progress.phase("checking and closing")
        finish(prepared, plan, tally.counts, partial(record.put, "finished", plan, tally.counts, tally.spent))
        announce(prepared)
    except BaseException as error:
        if not lease.lost():  # else run.json is another driver's
            orderly = isinstance(error, Stopped) and error.orderly
            with contextlib.suppress(OSError, ClusterError):  # what ended the run is what is told
                record.put("stopped" if orderly else "failed", plan, tally.counts, tally.spent)
        raise
    return plan, tally


def tally_of(storage: Storage) -> Tally:
    """The sums of what is committed."""
    tally = Tally()
    for manifest in manifests(storage):
        tally.add(manifest)
    return tally


def _work(
    prepared: Prepared,
    plan: Plan,
    session: Session,
    lease: Lease,
    tally: Tally,
    signals: _Signals,
    progress: Progress,
    again: str,
) -> None:
    """Stream the shards that are not committed; keep the display, the limits and the signals in view."""
    pending = [shard for shard in plan.shards if shard.number not in tally.shards]
    state, limits = progress.state, prepared.config.limits
    state.total, state.done = plan.counts["queries"], tally.counts["queries"]
    watch = Watch(prepared.prices, state)
    watch.still(tally.counts, tally.spent)
    if (stop := _limit(prepared, plan, tally, again)) is not None:
        raise stop
    if not pending:
        return
    if state.done:
        progress.tell(f"going on: {len(tally.shards)} of {len(plan.shards)} shards are committed")
    progress.phase(STARTING)
    line = Line(stages(prepared, session.pools, lease.number), lease.number)
    arrived: queue.Queue[dict[str, Any] | BaseException | None] = queue.Queue()
    threading.Thread(target=_stream, args=(line, pending, arrived), name="stream", daemon=True).start()
    signals.line = line
    stall = _Stall(line, limits.stall_minutes, again)
    while (row := _next(arrived)) is not None:
        if row:
            stall.restart()
            tally.add(read_manifest(row["manifest"]))
            line.committed(row["shard"])
        state.done = tally.counts["queries"]
        if row and not state.began:
            state.began, state.before = time.monotonic(), state.done
        watch.look(line, tally.counts, tally.spent)
        if state.phase == STARTING and (row or any(stage.at_work for stage in state.stages)):
            state.phase = "working"
        progress.tick()
        if stop is None and (stop := _limit(prepared, plan, tally, again)) is not None:
            progress.phase("stopping")
        if stop is not None or signals.received is not None:
            line.close()
        if lease.lost():
            words = (
                "another driver has taken this run over; leave it to that one"
                if lease.taken()
                else f"another driver may have taken this run over, as nothing was stored for a minute; go on with: {again}"
            )
            raise Stopped(f"{prepared.storage.root}: {words}", orderly=False)
        stall.check()
    watch.still(tally.counts, tally.spent)
    line.dismiss()
    left = len(plan.shards) - len(tally.shards)
    if signals.received is not None and left:
        raise Stopped(
            f"interrupted: {len(tally.shards)} of {len(plan.shards)} shards are committed; go on with: {again}",
            128 + signals.received,
        )
    if (stop := stop or _limit(prepared, plan, tally, again)) is not None:
        raise stop
    if left:
        raise Stopped(f"{left} of {len(plan.shards)} shards came to no end; go on with: {again}", orderly=False)


def _next(arrived: queue.Queue[dict[str, Any] | BaseException | None]) -> dict[str, Any] | None:
    """What came: a row; nothing for now ({}); the end (None). What the stream raised is raised here."""
    try:
        row = arrived.get(timeout=0.5)
    except queue.Empty:
        return {}
    if isinstance(row, BaseException):
        raise row
    return row


class _Stall:
    """Ends a run in which no shard is committed and no worker is heard of for too long: hung pools give no error."""

    def __init__(self, line: Line, minutes: float, again: str) -> None:
        self._line, self._minutes, self._again = line, minutes, again
        self.restart()

    def restart(self) -> None:
        """Something was committed."""
        self._since = self._asked = time.monotonic()

    def check(self) -> None:
        """Stopped, if it is too long ago; workers are asked now and then only."""
        now = time.monotonic()
        patience = self._minutes * 60
        if now - self._since <= patience or now - self._asked <= min(30.0, patience):
            return
        self._asked = now
        if self._line.quiet() > patience:
            raise Stopped(
                f"no shard was committed and no worker was heard of for {self._minutes:g} minutes (limits.stall_minutes); "
                f"what is committed stays; go on with: {self._again}",
                orderly=False,
            )


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


def _limit(prepared: Prepared, plan: Plan, tally: Tally, again: str) -> Stopped | None:
    """The limit that is passed, if one is, with the command that goes on all the same."""
    limits, counts = prepared.config.limits, tally.counts
    done, failed = counts["queries"], counts["failed_queries"]
    judged = done >= JUDGED_FROM or len(tally.shards) == len(plan.shards)
    if judged and done and failed / done > limits.error_rate:
        failures = {name: n for name, n in counts.items() if name.startswith("error/") and not name.endswith(NOTES)}
        reason, often = max(failures.items(), key=lambda item: item[1])
        return Stopped(
            f"{failed:,} of {done:,} queries have errors ({failed / done:.1%}, limits.error_rate is "
            f"{limits.error_rate:.1%}), most often {reason.removeprefix('error/')} ({often:,}); the texts are in "
            f"{prepared.storage.url('errors')}; what is committed stays; to accept it go on with: "
            f"{again} --set limits.error_rate={min(1, round(failed / done + 0.01, 2))}"
        )
    if limits.max_cost_usd is not None and prepared.prices is not None:
        usd = prepared.prices.usd(tally.spent)
        if usd > limits.max_cost_usd and len(tally.shards) < len(plan.shards):
            whole = math.ceil(110 * usd * len(plan.shards) / max(1, len(tally.shards))) / 100  # with a tenth more
            return Stopped(
                f"${usd:.2f} are spent, limits.max_cost_usd is ${limits.max_cost_usd:.2f}; "
                f"{len(tally.shards)} of {len(plan.shards)} shards are committed; to pay for all go on with: "
                f"{again} --set limits.max_cost_usd={whole:.2f}"
            )
    return None


class _Signals:
    """SIGINT and SIGTERM: admit no more shards, commit what is under way; before and after the work, or the second time,
    end at once."""

    def __init__(self, progress: Progress, again: str) -> None:
        self._again = again
        self.received: int | None = None
        self.line: Line | None = None
        self._progress = progress
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.line is None or self.received is not None:
            raise Stopped(f"interrupted; what is committed stays; go on with: {self._again}", 128 + number, orderly=False)
        self.received = number
        self._progress.state.phase = "stopping: committing what is under way"
