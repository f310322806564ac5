"""Submits a job to a cluster: what is sent, under which id, and what becomes of it."""
