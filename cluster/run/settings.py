"""Settings of the cluster: frozen models of the config's `cluster`. No field is part of a run's fingerprint."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from cluster.run.pool_sizes import PoolRequest
from cluster.settings import FORM, Settings


class WorkerRange(Settings):
    """A pool that grows under load."""

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
    Discriminator(lambda value: f"{FORM}{'range' if isinstance(value, dict | WorkerRange) else 'number'}"),
]


class PoolSettings(Settings):
    """The worker pool of a stage; null: sized to the cluster."""

    workers: Workers | None = None
    """A number; or {min, max}: the pool grows while all its workers are busy and the cluster has room, or can scale."""
    cpus: Annotated[float, Field(gt=0)] | None = None
    """Of each worker."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """Of each worker: a whole number, or a part of one, which workers share."""

    @field_validator("gpus")
    @classmethod
    def _whole_or_part(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and gpus % 1:
            raise ValueError(f"Ray has no {gpus:g} GPUs for one worker; give a whole number, or less than one")
        return gpus

    def pool_request(self, *, can_use_gpu: bool = False) -> PoolRequest:
        """Returns the request for the session; `can_use_gpu`: whether a worker can use a GPU."""
        workers = (self.workers.min, self.workers.max) if isinstance(self.workers, WorkerRange) else self.workers
        return PoolRequest(workers, self.cpus, self.gpus, can_use_gpu)


class KubernetesSettings(Settings):
    """Fills the RayJob that `submit --render` prints; a run itself reads none of it."""

    image: Annotated[str, Field(min_length=1)] = "dmqr:0.1.0"
    """Image with this project, of this version."""
    gpu_image: Annotated[str, Field(min_length=1)] | None = None
    """Image of the workers that have GPUs; null: `image`."""
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "dmqr"
    """Namespace of the objects; it must exist."""
    service_account: Annotated[str, Field(min_length=1)] = "default"
    """ServiceAccount of the pods, such as one with rights on a bucket; it must exist."""
    secret: Annotated[str, Field(min_length=1)] | None = None
    """Secret whose keys are environment variables of all pods, such as ELASTICSEARCH_URL."""


class ClusterSettings(Settings):
    """Where the job runs."""

    address: str | None = None
    """null: the Ray that RAY_ADDRESS names, else this process for up to 5,000 distinct queries, else a Ray of its own. auto: a
    Ray that runs, or a refusal; local: a Ray of its own; none: all stages in this process; else an address."""
    shard_size: Annotated[int, Field(gt=0, le=5000)] = 1000
    """Queries that are processed and committed together."""
    grace_seconds: Annotated[float, Field(gt=0)] | None = 25.0
    """After SIGTERM, how long shards in flight may take to be committed; the rest is left to the next start. Less than
    SIGKILL leaves (in Kubernetes 30 by default). null: as long as they take, as after Ctrl-C."""
    gate: PoolSettings = PoolSettings()
    """The worker pool of the gate (`rewrite.gate`) and of strategies that read lists, whose workers have their retrievers."""
    rewrite: PoolSettings = PoolSettings()
    """The worker pool of rewriting."""
    retrieve: PoolSettings = PoolSettings()
    """The worker pool of retrieval."""
    rerank: PoolSettings = PoolSettings()
    """The worker pool of scoring."""
    iterate: PoolSettings = PoolSettings()
    """The worker pool of further rounds, whose workers have retrievers and rerankers, too."""
    grade: PoolSettings = PoolSettings()
    """The worker pool of grading."""
    web: PoolSettings = PoolSettings()
    """The worker pool that asks the web where graded results do not suffice."""
    answer: PoolSettings = PoolSettings()
    """The worker pool of answering."""
    judge: PoolSettings = PoolSettings()
    """The worker pool of judging."""
    metrics: bool = True
    """Shows the run's metrics on Ray's Prometheus endpoint; without Ray there is none."""
    kubernetes: KubernetesSettings = KubernetesSettings()
    """Values of the RayJob that `submit --render` prints."""

    @property
    def joined(self) -> str | None:
        """Returns the address of the running Ray that the job joins; None: it starts one, or needs none."""
        if self.address is None:
            return "auto" if os.environ.get("RAY_ADDRESS") else None
        return None if self.address in ("local", "none") else self.address
