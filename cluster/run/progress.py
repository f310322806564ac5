"""Tracks the shards in flight: the gate that admits them, and the progress of each through the stages.

Committed shards are removed here, so memory does not grow with the run. Workers wait for the reply to `block_started` and
`block_finished`, so those arrive in order; a `heartbeat` may arrive late, and its attempt number shows it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from cluster.costs import Totals, add_totals, added
from cluster.isolation import Isolation, Isolations
from cluster.metrics.exporter import Exporter
from cluster.outages import Outage, merged
from cluster.run.snapshot import BlockTotals, ShardState, Snapshot, StageProgress

TASKS = 2  # concurrent tasks of the stages before the first pool: the next shard's, and one that waits for admission
_KEPT_COMMITS = 1000  # committed shards that are remembered, for attempts that end after the commit


class ProgressTracker:
    """Admits shards up to a limit and tracks those in flight (admitted, not committed). Thread-safe.

    The state is not stored: after a restart of its process it exceeds the limit for a moment and shows less progress.
    """

    def __init__(
        self,
        stages: Mapping[str, int],
        limit: int,
        budget_usd: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        metrics: Exporter | None = None,
        node_alive: Callable[[str], bool] = lambda _node: True,
    ) -> None:
        """Starts with no shard in flight, of at most `limit`; `stages` has name -> workers (0: no pool), in their order.

        A worker that ended with its node, which is not `node_alive` then, has not died of its blocks.
        """
        self._stages, self._limit, self._clock = dict(stages), limit, clock
        self._index = {name: index for index, name in enumerate(stages)}
        self._condition = threading.Condition()  # guards everything below
        self._closed = False
        self._admitted: set[int] = set()
        self._shards: dict[int, ShardState] = {}
        self._committed: dict[int, None] = {}  # the last _KEPT_COMMITS, oldest first
        self._attempts: dict[tuple[int, int], int] = {}  # (stage, shard) -> attempts
        self._isolations, self._node_alive = Isolations(), node_alive
        self._ready: dict[str, set[str]] = {name: set() for name in stages}
        self._shrunk: set[str] = set()  # stages whose pool has stopped workers: Ray Data does so when no block is left for them
        self._calls: Counter[tuple[int, str]] = Counter()  # (stage, worker) -> blocks in flight
        self._busy_since: dict[tuple[int, str], float] = {}
        self._busy_seconds = [0.0] * len(self._stages)
        self._queued_seconds = [0.0] * len(self._stages)
        self._last_heartbeat, self._budget = clock(), budget_usd
        self._spent_elsewhere = 0.0  # USD
        self._granted: dict[str, float] = {}  # worker -> USD
        self._halted: dict[int, Totals] = {}  # shard -> what it has cost
        self._outages: dict[str, list[Outage]] = {}  # worker -> what it waits for
        self._retries: list[tuple[str, int, int]] = []
        self._metrics = metrics
        if metrics is not None:
            metrics.follow(self.progress, self.seconds_since_heartbeat)

    def admit(self, shard: int, seconds: float) -> bool | None:
        """Admits a shard once fewer than `limit` are in flight. False: the gate is closed; None: timeout, call again."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or len(self._admitted - {shard}) < self._limit, seconds)
            if self._closed:
                return False
            if len(self._admitted - {shard}) >= self._limit:
                return None
            self._admitted.add(shard)
            return True

    def close(self) -> None:
        """Closes the gate: admits no more shards; those in flight go on."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def closed(self) -> bool:
        """Returns True if the gate is closed: the run stops."""
        with self._condition:
            return self._closed

    def mark_committed(self, shard: int) -> None:
        """Removes a committed shard, so that another can be admitted."""
        with self._condition:
            self._last_heartbeat = self._clock()
            for index in range(len(self._stages)):
                self._attempts.pop((index, shard), None)
                self._isolations.forget((index, shard))
            self._committed[shard] = None
            if len(self._committed) > _KEPT_COMMITS:
                del self._committed[next(iter(self._committed))]
            self._remove(shard)
            self._condition.notify_all()

    def halt(self, shard: int) -> None:
        """Gives up a shard in flight, since the budget is spent, and closes the gate; what the shard has cost stays counted."""
        with self._condition:
            if (state := self._shards.get(shard)) is not None:
                self._halted[shard] = added((state.spent, *(one.spent for one in state.totals.values())))
            self._remove(shard)
            self.close()

    def reserve(self, worker: str, spent: float, wanted: float) -> float:
        """Returns the total USD that a worker may spend from now on; less than requested where less is left.

        Workers ask before they spend, so that all together stay within the budget. What a dead worker was granted stays
        granted: nobody knows how much of it was spent.
        """
        with self._condition:
            if self._budget is None:
                return float("inf")
            granted = max(self._granted.get(worker, 0.0), spent)
            self._granted[worker] = granted
            left = self._budget - self._spent_elsewhere - sum(self._granted.values())
            self._granted[worker] += max(0.0, min(wanted, left))
            return self._granted[worker]

    def spent_elsewhere(self, usd: float) -> None:
        """Records what the run has cost apart from reserved money: earlier starts, other stages."""
        with self._condition:
            self._spent_elsewhere = usd

    def report_outages(self, worker: str, outages: list[Outage]) -> None:
        """Replaces the outages that a worker waits out."""
        with self._condition:
            self._outages.pop(worker, None)
            if outages:
                self._outages[worker] = outages

    def in_flight(self) -> int:
        with self._condition:
            return len(self._admitted)

    def worker_started(self, stage: str, worker: str) -> None:
        """Records that a worker is ready; after a restart, the blocks that it had in flight wait again."""
        with self._condition:
            self._last_heartbeat = self._clock()
            self._ready[stage].add(worker)
            self._outages.pop(worker, None)
            self._end_attempts(worker)

    def worker_stopped(self, stage: str, worker: str) -> None:
        """Records that the pool has stopped a worker."""
        with self._condition:
            self._ready[stage].discard(worker)
            self._shrunk.add(stage)

    def block_started(self, stage: str, shard: int, rows: int, worker: str, node: str = "") -> int:
        """Records that a worker has started a block; a shard that was in a later stage goes back to this one (a retry).

        Returns the number of this attempt at the block in this stage, from 1; 0: call again, a block is to run alone.
        """
        with self._condition:
            index = self._index[stage]
            before = self._shards.get(shard)
            if before is not None and before.worker and (before.stage == index or before.worker in self._ready[stage]):
                self._end_attempts(before.worker)  # of a task, or of an actor that Ray has given up
            in_flight = [(state.stage, one) for one, state in self._shards.items() if state.worker == worker]
            if not self._isolations.may_start((index, shard), worker, in_flight, self._clock()):
                return 0
            self._last_heartbeat = self._clock()
            if self._stages[stage]:
                self._ready[stage].add(worker)
            if shard in self._committed:
                return 1
            attempt = self._attempts[index, shard] = self._attempts.get((index, shard), 0) + 1
            if attempt > 1:
                self._retries.append((stage, shard, attempt))
                if self._metrics is not None:
                    self._metrics.record("dmqr_retries", 1, stage=stage)
            state = self._shards.setdefault(shard, ShardState())
            self._queued_seconds[index] += state.queued(index, self._clock())
            self._end_attempt(state)
            state.stage, state.worker, state.attempt, state.began = index, worker, attempt, self._clock()
            state.rows, state.block_rows, state.node = max(state.rows, rows), rows, node
            state.totals = {earlier: one for earlier, one in state.totals.items() if earlier < index}
            self._calls[index, worker] += 1
            self._busy_since.setdefault((index, worker), self._clock())
            return attempt

    def isolation(self, stage: str, shard: int) -> Isolation | None:
        """Returns the state of a block with which workers have died; None: none has."""
        with self._condition:
            return self._isolations.suspected.get((self._index[stage], shard))

    def part_started(self, stage: str, shard: int, first: int, end: int) -> None:
        """Records the rows that the worker of an isolated block is processing: `first` up to, not including, `end`."""
        with self._condition:
            self._last_heartbeat = self._clock()
            self._isolations.parts[self._index[stage], shard] = first, end
            if (state := self._shards.get(shard)) is not None:
                state.share = first / max(1, state.block_rows)

    def heartbeat(self, stage: str, shard: int | None, attempt: int, share: float | None, spent: Totals | None = None) -> None:
        """Records a worker's heartbeat: the finished share of its block, 0 to 1, and its costs so far; None: unknown.

        The shard is None while the worker is built; `attempt` is the number that `block_started` returned.
        """
        with self._condition:
            self._last_heartbeat = self._clock()
            state = self._shards.get(shard) if shard is not None else None
            current = None if state is None or state.worker is None else (state.stage, state.attempt)
            if state is None or current != (self._index[stage], attempt):
                return
            if share is not None and (state.stage, shard) not in self._isolations.parts:  # else it is of the part
                state.share = min(1.0, max(state.share, share))
            if spent is not None:
                state.spent = spent

    def block_finished(self, stage: str, shard: int, rows: int, attempt: int, totals: BlockTotals) -> None:
        """Records a stage's output block; a shard's rows are the most that any stage had (the first is given one row)."""
        with self._condition:
            self._last_heartbeat = self._clock()
            index = self._index[stage]
            if shard in self._committed:
                return
            state = self._shards.setdefault(shard, ShardState(began=self._clock()))
            if state.stage > index or (state.stage == index and state.worker is not None and state.attempt != attempt):
                return  # in a later stage, or another attempt is in flight
            self._end_attempt(state)
            self._isolations.forget((index, shard))
            state.stage, state.rows = index + 1, max(state.rows, rows)
            state.totals[index] = totals
            if self._metrics is not None:
                self._metrics.finished(stage, shard, state.rows, self._clock() - state.began, totals)

    def progress(self) -> Snapshot:
        with self._condition:
            stages = {name: self._progress_of(index, name, n) for index, (name, n) in enumerate(self._stages.items())}
            waiting = merged([outage for found in self._outages.values() for outage in found])
            rows = sum(state.rows for state in self._shards.values())
            return Snapshot(stages, rows, len(self._halted), waiting, [*self._retries])

    def seconds_since_heartbeat(self) -> float:
        """Returns the seconds since the last report of any worker, or the last commit."""
        with self._condition:
            return self._clock() - self._last_heartbeat

    def _progress_of(self, index: int, name: str, workers: int) -> StageProgress:
        done, in_flight, waiting, queued, now = 0, 0, 0, self._queued_seconds[index], self._clock()
        spent, counts = Totals(), Counter[str]()
        for state in self._shards.values():
            if state.stage > index:
                done += state.rows
            elif state.stage == index and state.worker is not None:
                part = int(state.rows * state.share)
                done, in_flight = done + part, in_flight + state.rows - part
            elif state.stage == index:
                waiting, queued = waiting + state.rows, queued + state.queued(index, now)
            if index in state.totals:
                add_totals(spent, state.totals[index].spent)
                counts.update(state.totals[index].counts)
            elif state.stage == index:
                add_totals(spent, state.spent)
        if not index:  # the tracker does not know which stages a halted shard has passed; sums over the stages are right
            for halted in self._halted.values():
                add_totals(spent, halted)
        busy = self._busy_seconds[index] + sum(now - at for (stage, _), at in self._busy_since.items() if stage == index)
        ready = (len(self._ready[name]) or workers * (name in self._shrunk)) if workers else TASKS
        workers = max(workers, ready)
        return StageProgress(done, in_flight, waiting, busy, workers, ready, spent, dict(counts), queued)

    def _remove(self, shard: int) -> None:
        if (state := self._shards.pop(shard, None)) is not None:
            self._end_attempt(state)
        self._admitted.discard(shard)
        if self._metrics is not None:
            self._metrics.ended(shard)

    def _end_attempts(self, worker: str) -> None:
        """Takes its blocks from a worker that has ended, in all of its stages; one of them may have killed it."""
        lost = {shard: state for shard, state in self._shards.items() if state.worker == worker}
        if lost and self._node_alive(next(iter(lost.values())).node):
            blocks = [(state.stage, shard) for shard, state in lost.items()]
            self._isolations.died(blocks, {n: state.block_rows for n, state in lost.items()})
        for state in lost.values():
            self._end_attempt(state)

    def _end_attempt(self, state: ShardState) -> None:
        """Takes the shard from its worker, and adds the worker's busy time if it has no other block."""
        state.left = self._clock()
        if state.worker is None:
            return
        call = state.stage, state.worker
        state.worker, state.share, state.spent = None, 0.0, {}
        self._calls[call] -= 1
        if not self._calls[call]:
            del self._calls[call]
            self._busy_seconds[call[0]] += self._clock() - self._busy_since.pop(call)
