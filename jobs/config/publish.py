"""The section `publish` of the config: bounds of a version that `dmqr export --promote` makes current."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.settings import Settings

Share = Annotated[float, Field(ge=0, le=1)]


class PublishSettings(Settings):
    """Bounds that a version is held against before `export --promote` makes it current."""

    error_rate: Share | None = 0.01
    """Highest share of queries with a failure in errors/; null: any."""
    coverage: Share | None = 0.95
    """Least share of the log's traffic whose query has rewrites or documents; null: any."""
    quality_loss: Annotated[float, Field(ge=0)] | None = 0.02
    """How much lower than that of the original query alone the first measure of `evaluate.measures` may be; null: any."""
