"""The limits of a job: `limits` of the config."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.settings import Settings


class LimitSettings(Settings):
    """Limits at which the job stops (exit code 1; committed shards stay, and the run can be resumed)."""

    error_rate: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of queries with an error row, judged from 100 queries on and at the end."""
    max_cost_usd: Annotated[float, Field(ge=0)] | None = None
    """Highest cost in USD, by the prices.yaml beside the config; no request is sent that would exceed it."""
    unsaved_seconds: Annotated[float, Field(ge=1)] = 30
    """Longest time that an LLM's answer lies on the worker's machine alone."""
    stall_minutes: Annotated[float, Field(gt=0)] = 15
    """Longest time without a committed shard and without a heartbeat of a worker."""
