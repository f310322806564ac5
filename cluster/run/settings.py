"""Settings of the cluster: frozen models of the config's `cluster`. No field is part of a run's fingerprint."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from cluster.errors import ConfigError
from cluster.kuberay.settings import KubernetesSettings
from cluster.run.pools import NodeGroup, PoolRequest

FROZEN = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)
FORM = "@"  # prefix of the tags of a union's members, which are no part of a config key


class WorkerRange(BaseModel):
    """A pool that grows under load."""

    model_config = FROZEN

    min: Annotated[int, Field(gt=0)] = 1
    """Workers at least."""
    max: Annotated[int, Field(gt=0)]
    """Workers at most."""

    @model_validator(mode="after")
    def _in_order(self) -> WorkerRange:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}; lower min, or raise max")
        return self


# With a discriminator pydantic reports the errors of one form only, not of every form that the value does not have.
Workers = Annotated[
    Annotated[int, Field(gt=0), Tag(f"{FORM}number")] | Annotated[WorkerRange, Tag(f"{FORM}range")],
    Discriminator(lambda value: f"{FORM}range" if isinstance(value, dict | WorkerRange) else f"{FORM}number"),
]


class PoolSettings(BaseModel):
    """The worker pool of a stage; null: sized to the cluster."""

    model_config = FROZEN

    workers: Workers | None = None
    """A number, or {min, max}: the pool grows while all its workers are busy and the cluster has room, or can scale."""
    cpus: Annotated[float, Field(gt=0)] | None = None
    """Of each worker."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """Of each worker."""

    def pool_request(self, *, can_use_gpu: bool = False) -> PoolRequest:
        """Returns the request for the session.

        Args:
            can_use_gpu: Whether a worker can use a GPU.
        """
        workers = (self.workers.min, self.workers.max) if isinstance(self.workers, WorkerRange) else self.workers
        return PoolRequest(workers, self.cpus, self.gpus, can_use_gpu)


class ScalesTo(BaseModel):
    """Nodes that the cluster's autoscaler may add."""

    model_config = FROZEN

    nodes: Annotated[int, Field(gt=0)]
    """At most."""
    cpus: Annotated[float, Field(gt=0)]
    """Of each node."""
    gpus: Annotated[float, Field(ge=0)] = 0
    """Of each node."""


class TraceSettings(BaseModel):
    """Where OpenTelemetry spans are sent, by OTLP over HTTP; the variables OTEL_* of the driver's environment hold, too."""

    model_config = FROZEN

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/@\s]+(/[^@\s]*)?$")] | None = None
    """Address of the collector, like http://collector:4318; null: as OTEL_EXPORTER_OTLP_ENDPOINT says."""

    def check(self) -> None:
        """Raises ConfigError where a package is missing."""
        try:
            import opentelemetry.exporter.otlp.proto.http.trace_exporter
            import opentelemetry.sdk.trace  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "package-missing", f"cluster.traces: package {error.name!r} is missing; pip install 'dmqr[traces]'"
            ) from error


class ClusterSettings(BaseModel):
    """Where the job runs."""

    model_config = FROZEN

    address: str = "local"
    """local: starts Ray here; auto: RAY_ADDRESS or a running Ray; none: all stages in this process; else an address."""
    shard_size: Annotated[int, Field(gt=0, le=5000)] = 1000
    """Queries that are processed and committed together."""
    scales_to: ScalesTo | None = None
    """Nodes that the autoscaler may add, so that pools which need them are accepted; null: as the autoscaler reports."""
    rewrite: PoolSettings = PoolSettings()
    """The worker pool of rewriting."""
    retrieve: PoolSettings = PoolSettings()
    """The worker pool of retrieval."""
    rerank: PoolSettings = PoolSettings()
    """The worker pool of scoring."""
    kubernetes: KubernetesSettings = KubernetesSettings()
    """What `submit --render` writes into manifests for Kubernetes."""
    traces: TraceSettings | None = None
    """Spans of the run, its shards and their stages; null: none."""

    @property
    def autoscaler_nodes(self) -> NodeGroup | None:
        """Returns `scales_to` for the session."""
        return None if self.scales_to is None else NodeGroup(self.scales_to.nodes, self.scales_to.cpus, self.scales_to.gpus)
