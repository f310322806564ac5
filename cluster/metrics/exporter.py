"""Exports metrics through Ray, whose agent on each node answers Prometheus."""

from __future__ import annotations

from typing import Any

from cluster.metrics.table import METRICS, RUN_LABELS


class Exporter:
    """The metrics of a run in a process that is connected to Ray. Ray exports them every 10 s, and when the process ends.

    Can be pickled until its first value.
    """

    def __init__(self, run: str, run_id: str) -> None:
        self._run_labels = dict(zip(RUN_LABELS, (run, run_id), strict=True))
        self._open: dict[str, Any] = {}

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Adds to a counter an amount above 0."""
        self._metric(name).inc(amount, labels)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Sets a gauge."""
        self._metric(name).set(value, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Counts a value in the buckets of a histogram."""
        self._metric(name).observe(value, labels)

    def _metric(self, name: str) -> Any:
        if name not in self._open:
            from ray.util import metrics

            kind, about, labels, buckets = METRICS[name]
            more = {"boundaries": list(buckets)} if kind == "histogram" else {}
            metric = getattr(metrics, kind.capitalize())(name, about, tag_keys=(*labels, *RUN_LABELS), **more)
            metric.set_default_tags(self._run_labels)
            self._open[name] = metric
        return self._open[name]
