"""Submitting a job to a cluster."""
