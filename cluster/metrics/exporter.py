"""Turns what the progress tracker hears of blocks into metrics, and exports them through Ray.

One process hears of every block, so nothing is lost with a worker. A block counts once, when a stage has finished it: where
a stage does it again (its worker or its node has died), only what is more than before is added. So the counters are the sums
of `costs/` and `errors/` over the shards that are committed, whichever workers are killed. Only where this process itself is
restarted, what was added before is forgotten: a block that a stage does again for a shard in flight then counts twice.
"""

import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster.costs import START_UP, TOKENS
from cluster.run.snapshot import BlockTotals, Snapshot

_METHODS = {"counter": "inc", "gauge": "set", "histogram": "observe"}  # of Ray's classes, by kind
RUN_LABELS = ("run", "run_id")  # of every metric: the config's name, and the run's folder
LOOK_SECONDS = 10.0  # between two looks at the gauges, as Ray exports; it forgets one that was not set for 20 s

Series = tuple[str, tuple[tuple[str, str], ...]]  # name and labels


class Metric(NamedTuple):
    """Description of a metric before any value; `labels` are those beside RUN_LABELS."""

    kind: str  # counter, gauge or histogram
    about: str
    labels: Sequence[str] = ()
    buckets: Sequence[float] = ()


METRICS = {
    f"dmqr_{name}": Metric(**metric)
    for name, metric in tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8")).items()
}


class Exporter:
    """The metrics of a run in a process that is connected to Ray. Ray exports them every 10 s, and when the process ends.

    Can be pickled until its first value. Those of blocks are counted by one process, under its lock.
    """

    def __init__(self, run: str, run_id: str) -> None:
        self._run_labels = dict(zip(RUN_LABELS, (run, run_id), strict=True))
        self._open: dict[str, Any] = {}
        self._counted: dict[int, dict[str, Counter[Series]]] = {}  # shard in flight -> stage -> what was added

    def record(self, name: str, value: float, **labels: str) -> None:
        """Adds a value above 0 to a counter, sets a gauge to it, or counts it in the buckets of a histogram."""
        kind, about, label_names, buckets = METRICS[name]
        if name not in self._open:
            from ray.util import metrics

            more = {"boundaries": buckets} if kind == "histogram" else {}
            metric = getattr(metrics, kind.capitalize())(name, about, tag_keys=(*label_names, *RUN_LABELS), **more)
            metric.set_default_tags(self._run_labels)
            self._open[name] = metric
        getattr(self._open[name], _METHODS[kind])(value, labels)

    def follow(self, progress: Callable[[], Snapshot], idle_seconds: Callable[[], float]) -> None:
        """Sets the gauges every `LOOK_SECONDS`, in a thread of its own, as long as the process lives."""

        def look() -> None:
            before, then = progress(), time.monotonic()
            while True:
                time.sleep(LOOK_SECONDS)
                after, now = progress(), time.monotonic()
                self.record("dmqr_seconds_since_progress", idle_seconds())
                for stage, page in after.stages.items():
                    self.record("dmqr_queries_waiting", page.waiting, stage=stage)
                    self.record("dmqr_queries_in_flight", page.in_flight, stage=stage)
                    self.record("dmqr_workers", page.ready_workers, stage=stage)
                    busy = (page.busy_seconds - before.stages[stage].busy_seconds) / (page.workers * (now - then))
                    self.record("dmqr_busy_share", min(1.0, max(0.0, busy)), stage=stage)
                before, then = after, now

        threading.Thread(target=look, name="metrics", daemon=True).start()

    def finished(self, stage: str, shard: int, rows: int, seconds: float, totals: BlockTotals) -> None:
        """Counts a finished block of a stage: its rows, seconds and totals."""
        counted = self._counted.setdefault(shard, {}).setdefault(stage, Counter())
        counts: Counter[Series] = Counter()
        _count(counts, "dmqr_queries", rows, stage=stage)
        parts = [part for components in totals.spent.values() for part in components.items()]
        for key, sums in parts:
            component, _, model = key.partition("@")
            _count(counts, "dmqr_requests", sums.get("requests", 0), component=component, model=model)
            _count(counts, "dmqr_searches", sums.get("searches", 0), component=component)
            _count(counts, "dmqr_reused", sums.get("reused", 0), component=component)
            _count(counts, "dmqr_pairs", sums.get("pairs", 0), model=model)
            for quantity in TOKENS:
                _count(counts, "dmqr_tokens", sums.get(quantity, 0), model=model, kind=quantity.removesuffix("_tokens"))
        failed_in = stage
        for key, n in totals.counts.items():  # error/<stage>/<component>/<reason>, and failed_queries
            if key.startswith("error/"):
                _, failed_in, *_, reason = key.split("/")
                _count(counts, "dmqr_errors", n, stage=failed_in, reason=reason)
        _count(counts, "dmqr_failed_queries", totals.counts.get("failed_queries", 0), stage=failed_in)
        for (name, labels), amount in (counts - counted).items():  # those that are more
            self.record(name, amount, **dict(labels))
        self._counted[shard][stage] = counted | counts  # the larger of each
        busy = [sums.get("seconds", 0.0) for component, sums in parts if not component.startswith(START_UP)]
        self.record("dmqr_block_seconds", sum(busy) if busy else seconds, stage=stage)

    def ended(self, shard: int) -> None:
        """Forgets a shard that is committed or given up."""
        self._counted.pop(shard, None)


def _count(counts: Counter[Series], name: str, amount: float, **labels: str) -> None:
    counts[name, tuple(sorted(labels.items()))] += amount  # type: ignore[assignment]
