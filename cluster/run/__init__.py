"""Runs a job: session, worker pools, stages, runners, progress, lease, commits."""
