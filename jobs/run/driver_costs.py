"""The spending of a start's driver: its wall time by phase, its requests to S3, and the time of the nodes."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from cluster.costs import DRIVER, STORAGE_COMPONENT, Totals, add_totals, added
from cluster.storage.s3_client import take_traffic

COUNT_SECONDS = 10.0  # between two counts of the nodes


class DriverCosts:
    """Accounts for one start, from the driver's first step on. Thread-safe.

    The wall time of the driver is divided among phases without a gap: `start` (checks, Ray), `log` (reading, dedup), `plan`
    (lease, storing the plan), `work` (shards) and `finish`. Nodes are counted now and then; between two counts there were as
    many as their mean.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins the phase `start`; `clock` returns seconds."""
        self._clock, self._lock = clock, threading.Lock()
        self._phase, self._since = "start", clock()
        self._counted_at = self._since
        self._count: Callable[[], Mapping[str, int]] | None = None
        self._nodes: dict[str, int] = {}
        self._node_seconds: dict[str, float] = {}  # until the last count
        self._spent: Totals = {}

    def watch_nodes(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Counts nodes from now on; the present number also holds for the time before."""
        with self._lock:
            self._count, self._nodes = count, dict(count())

    def begin(self, phase: str, dedup_seconds: float = 0.0) -> None:
        """Ends the phase before, and begins another.

        `dedup_seconds` are those of work that other machines have done on the log, in the phase before.
        """
        with self._lock:
            self._end_phase()
            self._phase = phase
            if dedup_seconds:
                add_totals(self._spent, {"dedup": {"@": {"seconds": dedup_seconds}}})

    def spent(self) -> Totals:
        """Returns all until now, as stages and components."""
        with self._lock:
            self._end_phase()
            if traffic := take_traffic():
                add_totals(self._spent, {DRIVER: {STORAGE_COMPONENT: traffic}})
            return added([self._spent])

    def node_seconds(self) -> dict[str, float]:
        """Returns kind of node -> seconds x nodes, until now."""
        with self._lock:
            now = self._clock()
            if self._count is not None and now - self._counted_at >= COUNT_SECONDS:
                nodes = self._nodes
                with contextlib.suppress(Exception):  # Ray's head does not answer: the next count has it
                    nodes = dict(self._count())
                for kind in self._nodes.keys() | nodes.keys():
                    mean = (self._nodes.get(kind, 0) + nodes.get(kind, 0)) / 2
                    self._node_seconds[kind] = self._node_seconds.get(kind, 0.0) + (now - self._counted_at) * mean
                self._nodes, self._counted_at = nodes, now
            since = now - self._counted_at
            kinds = self._nodes.keys() | self._node_seconds.keys()
            return {kind: self._node_seconds.get(kind, 0.0) + since * self._nodes.get(kind, 0) for kind in sorted(kinds)}

    def _end_phase(self) -> None:
        now = self._clock()
        add_totals(self._spent, {DRIVER: {f"{self._phase}@": {"driver_seconds": now - self._since}}})
        self._since = now
