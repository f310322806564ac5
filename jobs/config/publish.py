"""The section `publish` of the config: how a finished run becomes a version that a search looks up (`export`, `promote`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.settings import Settings

Share = Annotated[float, Field(ge=0, le=1)]


class QualityBound(Settings):
    """How good the served hits must be."""

    floor: Annotated[float, Field(ge=0)] | None = None
    """Least mean of the first measure of `evaluate.measures` over the judged queries, without which it does not hold; null:
    none."""
    below_original: Annotated[float, Field(ge=0)] | None = 0.02
    """How much lower than that of the original query alone it may be; null: any."""
    below_promoted: Annotated[float, Field(ge=0)] | None = 0.02
    """How much lower than that of the promoted version it may be; without judgements this is of the mean of the best reranker
    scores; null: any."""


class PublishGates(Settings):
    """Bounds that a version is held against before it is promoted."""

    error_rate: Share | None = 0.01
    """Highest share of queries with a failure in errors/; null: any."""
    coverage: Share | None = 0.95
    """Least share of the log's traffic whose query has a row with rewrites or hits; null: any."""
    changed_first: Share | None = 0.3
    """Highest share of the traffic whose first document is another than in the promoted version; null: any."""
    quality: QualityBound = QualityBound()
    """Quality."""


class PublishSettings(Settings):
    """What of a run is exported, where to, and what must hold before it is promoted; arguments of the verbs come before it."""

    to: str | None = None
    """A local or S3 folder, or `elastic:NAME`, an alias of Elasticsearch; null: `--to` says it."""
    formats: Annotated[list[str], Field(min_length=1)] = ["rows"]
    """What is written (`--as`): docs/publishing.md."""
    strategies: list[str] | None = None
    """Whose rewrites go in; null: those of all."""
    min_added: Annotated[int, Field(ge=0)] = 0
    """A rewrite goes in if it has added so many documents to the first `hits` that no list of the original has."""
    hits: Annotated[int, Field(ge=1)] = 10
    """First results of a query that go in."""
    buckets: Annotated[int, Field(ge=1, le=32_767)] = 100
    """Number of buckets for comparing arms of live traffic."""
    salt: str = ""
    """What the bucket of a query is hashed with: another salt draws anew."""
    gates: PublishGates = PublishGates()
    """What must hold before a version is promoted."""
