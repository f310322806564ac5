"""Metrics of a run on Ray's Prometheus endpoint."""
