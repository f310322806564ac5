"""Validation of manifests: KubeRay's kinds against the schemas of its own CRDs, others against those that kubernetes-validate
carries. Nothing may lie outside of a schema: a cluster drops what it does not know without a word."""

import functools
import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

_CRDS = {"RayJob": "rayjobs.v1.json", "RayCluster": "rayclusters.v1.json"}


def check(manifest: dict[str, Any]) -> None:
    """Validates a manifest; skips the test where it needs a CRD's schema that is not there."""
    if manifest["kind"] in _CRDS:
        assert manifest["apiVersion"] == "ray.io/v1"
        _validator(_CRDS[manifest["kind"]]).validate(manifest)
        check({"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]})  # CRDs leave it open
        for template in _templates(manifest["spec"]):
            check({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "of-ray"}, "template": template})
    else:
        _of_kubernetes(manifest["kind"].lower(), manifest["apiVersion"]).validate(manifest)


def strict(schema: Any) -> Any:
    """A CRD's schema that refuses unknown fields where the CRD does not say that it keeps them."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: strict(one) for name, one in value.items()} if key == "properties" else strict(value)
        for key, value in schema.items()
    }
    if schema.get("x-kubernetes-int-or-string") is True:
        found.pop("type", None)
        found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if isinstance(schema.get("properties"), dict) and not open_ended and "additionalProperties" not in schema:
        found["additionalProperties"] = False
    return found


@functools.cache
def _of_kubernetes(kind: str, api_version: str) -> jsonschema.Draft202012Validator:
    """The validator of a kind: the package's own reads 2 MB of definitions for each manifest."""
    group = re.sub(r"^([^./]*)(?:[.][^/]*)?/", r"\1-", api_version)  # rbac.authorization.k8s.io/v1: rbac-v1
    schema = _contents(f"{kind}-{group}")
    definitions: Registry[Any] = Resource.from_contents(_contents("_definitions")) @ Registry()
    return jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(schema) @ definitions)


@functools.cache
def _contents(name: str) -> Any:
    from kubernetes_validate import latest_version
    from kubernetes_validate.utils import schema_contents

    version = latest_version()
    return schema_contents(f"kubernetes-json-schema/v{version}-local-strict/{name}.json", version)


@functools.cache
def _validator(file: str) -> jsonschema.Draft202012Validator:
    if "DMQR_SHARED" not in os.environ:
        pytest.skip("DMQR_SHARED is not set: the schemas of KubeRay's CRDs lie there")
    schema = json.loads(Path(os.environ["DMQR_SHARED"], "kubernetes", file).read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(strict(schema))


def _templates(spec: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = spec.get("rayClusterSpec", {})
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]] if cluster else []
    return [group["template"] for group in groups] + [spec[key] for key in ("submitterPodTemplate",) if key in spec]
