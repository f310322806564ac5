"""The metrics that a run exports, as metrics.toml describes them: `METRICS`.

Blocks are counted in `exporter.py`; `jobs/run/progress.py` sets what the driver knows.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

RUN_LABELS = ("run", "run_id")  # of every metric: the config's name, and the run's folder


class Metric(NamedTuple):
    """Description of a metric before any value; `labels` are those beside RUN_LABELS."""

    kind: str  # counter, gauge or histogram
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS = {
    f"dmqr_{name}": Metric(metric["kind"], metric["about"], tuple(metric.get("labels", ())), tuple(metric.get("buckets", ())))
    for name, metric in tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8")).items()
}
