"""Names of metrics as Prometheus finds them."""

from cluster.metrics.exporter import METRICS


def exposed(name: str) -> list[str]:
    """Returns the names under which Prometheus finds a metric."""
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}[METRICS[name].kind]
    return [f"ray_{name}{suffix}" for suffix in suffixes]
