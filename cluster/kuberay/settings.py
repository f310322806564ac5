"""Settings of the manifest for Kubernetes: the config's `cluster.kubernetes`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.settings import Settings


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
