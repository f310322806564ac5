"""Settings of the cluster: frozen models of the config's `cluster`. No field is part of a run's fingerprint."""

import os
from typing import Annotated, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from cluster.run.pool_sizes import PoolRequest
from cluster.settings import FORM, Settings


class WorkerRange(Settings):
    """A pool that grows under load."""

    min: Annotated[int, Field(gt=0)] = 1
    """Smallest number of workers."""
    max: Annotated[int, Field(gt=0)]
    """Largest number of workers."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}; lower min, or raise max")
        return self


# With a discriminator pydantic reports the errors of one form only, not of every form that the value does not have.
Workers = Annotated[
    Annotated[int, Field(gt=0), Tag(f"{FORM}number")] | Annotated[WorkerRange, Tag(f"{FORM}range")],
    Discriminator(lambda value: f"{FORM}{'range' if isinstance(value, dict | WorkerRange) else 'number'}"),
]


class PoolSettings(Settings):
    """Worker pool of a stage; null: sized to the machine or cluster."""

    workers: Workers | None = None
    """Number of workers, or {min, max}: the pool grows while all its workers are busy."""
    cpus: Annotated[float, Field(gt=0)] | None = None
    """CPUs of each worker."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """GPUs of each worker: a whole number, or a fraction of one GPU that workers share."""

    @field_validator("gpus")
    @classmethod
    def _whole_or_part(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and gpus % 1:
            raise ValueError(f"Ray cannot give one worker {gpus:g} GPUs; give a whole number, or less than 1")
        return gpus

    def pool_request(self, *, can_use_gpu: bool = False) -> PoolRequest:
        """Returns the request for the session; `can_use_gpu`: whether a worker can use a GPU."""
        least, most = (self.workers.min, self.workers.max) if isinstance(self.workers, WorkerRange) else (self.workers, None)
        return PoolRequest(least, self.cpus, self.gpus, can_use_gpu, most=most)


class KubernetesSettings(Settings):
    """Values of the RayJob that `submit --render` prints; a run reads none of them."""

    image: Annotated[str, Field(min_length=1)] = "dmqr:0.1.0"
    """Image with this version of dmqr."""
    gpu_image: Annotated[str, Field(min_length=1)] | None = None
    """Image of the workers with GPUs; null: `image`."""
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "dmqr"
    """Existing namespace of the objects."""
    service_account: Annotated[str, Field(min_length=1)] = "default"
    """Existing ServiceAccount of the pods, for example one with rights on a bucket."""
    secret: Annotated[str, Field(min_length=1)] | None = None
    """Secret whose keys become environment variables of all pods, such as ELASTICSEARCH_URL."""


class ClusterSettings(Settings):
    """The place where the job runs."""

    address: str | None = None
    """null: the Ray that RAY_ADDRESS names, else this process up to 5,000 distinct queries, else a Ray of its own. auto: a
    running Ray, or a refusal. local: a Ray of its own. none: this process. Or an address."""
    shard_size: Annotated[int, Field(gt=0, le=5000)] = 1000
    """Queries that are processed and committed together."""
    grace_seconds: Annotated[float, Field(gt=0)] | None = 25.0
    """Seconds after SIGTERM in which shards in flight may still be committed; keep it below the time to SIGKILL (Kubernetes:
    30). null: no limit."""
    gate: PoolSettings = PoolSettings()
    """Workers of the gate (`rewrite.gate`)."""
    rewrite: PoolSettings = PoolSettings()
    """Workers of rewriting."""
    retrieve: PoolSettings = PoolSettings()
    """Workers of retrieval."""
    rerank: PoolSettings = PoolSettings()
    """Workers of reranking."""
    iterate: PoolSettings = PoolSettings()
    """Workers of further rounds; they hold retrievers and rerankers, too."""
    grade: PoolSettings = PoolSettings()
    """Workers of grading."""
    web: PoolSettings = PoolSettings()
    """Workers that search the web after grading."""
    answer: PoolSettings = PoolSettings()
    """Workers of answering."""
    judge: PoolSettings = PoolSettings()
    """Workers of judging."""
    metrics: bool = True
    """Exports metrics on Ray's Prometheus endpoint."""
    kubernetes: KubernetesSettings = KubernetesSettings()
    """Values of the RayJob that `submit --render` prints."""

    @property
    def joined(self) -> str | None:
        """Returns the address of the running Ray that the job joins; None: it starts one, or needs none."""
        if self.address is None:
            return "auto" if os.environ.get("RAY_ADDRESS") else None
        return None if self.address in ("local", "none") else self.address
