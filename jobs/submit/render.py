"""Renders a job for Kubernetes: a ConfigMap with the config, and a RayJob of `cluster/kuberay/rayjob.yaml`."""

import base64
import hashlib
import importlib.metadata
import json
import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

import cluster.kuberay
from cluster.errors import ConfigError
from cluster.kuberay.worker_groups import fixed_pools, worker_groups
from cluster.run.pool_sizes import stage_of_pool
from jobs.chain.arms.arms import arms_of, configs_of
from jobs.config.config import Config
from jobs.job.pools import requested_pools
from jobs.submit.ids import DRIVER_LOG, Verb
from jobs.submit.sent_config import MOST_BYTES, sent_config

FOLDER = "/etc/dmqr"  # the volume of the ConfigMap
_TEMPLATE = Path(cluster.kuberay.__path__[0], "rayjob.yaml")
_WORKER_GROUP = "      - groupName:"
_MOST_BYTES = MOST_BYTES - 20_000  # of the ConfigMap's data; its names take some
_LONGEST_NAME = 47  # of a RayJob; the names of its cluster and services are longer
_KILL_SECONDS = 600  # without cluster.grace_seconds
_HAND_BACK_SECONDS = 5  # after the grace
_MARK = 6  # hexadecimal digits of a hash in a name


def rendered(config: Config, config_path: str, verb: Verb = "run") -> str:
    """Returns the manifests as YAML documents, the same for the same arguments.

    Args:
        config: The job.
        config_path: Its file, for the name and the prices beside it.
        verb: What the job does with the config.
    """
    kubernetes = config.cluster.kubernetes
    pools = fixed_pools(requested_pools(*(configs_of(arms_of(config)) if verb == "ablate" else [config])))
    sent = sent_config(config, FOLDER)
    config_file = f"{FOLDER}/{Path(config_path).name}"
    sections = {
        name: {"workers": pool.workers, "cpus": pool.cpus}
        | getattr(config.cluster, name).model_dump(mode="json", exclude_none=True)
        for name, pool in pools.items()
        if stage_of_pool(name) == name  # others are sized by the key of the first one
    }
    values = sent.values | {"cluster": sent.values["cluster"] | sections}
    files = {config_file: yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode()}
    if (prices := Path(config_path).with_name("prices.yaml")).exists():
        files[f"{FOLDER}/prices.yaml"] = prices.read_bytes()
    files |= {at: file.read_bytes() for at, file in sent.files.items()}
    name = job_name(*filter(None, (config.name, config.label, "" if verb == "run" else verb, config.log.date)))
    grace = config.cluster.grace_seconds
    config_map, items = _config_map(name, kubernetes.namespace, files)
    common = {
        "name": name,
        "namespace": kubernetes.namespace,
        "image": json.dumps(kubernetes.image),
        "service_account": json.dumps(kubernetes.service_account),
        "secrets": json.dumps([{"secretRef": {"name": kubernetes.secret}}] if kubernetes.secret else []),
        "files": json.dumps(items),
        "entrypoint": json.dumps(shlex.join(["dmqr", verb, config_file, *DRIVER_LOG])),
        "ray_version": importlib.metadata.version("ray"),
        "grace_seconds": str(_KILL_SECONDS if grace is None else math.ceil(grace) + _HAND_BACK_SECONDS),
    }
    head, mark, group = _TEMPLATE.read_text(encoding="utf-8").partition(_WORKER_GROUP)
    job = Template(head).substitute(common)
    for workers in worker_groups(pools):
        quantities = {"cpu": str(workers.cpus), "memory": f"{workers.memory_gib}Gi"} | (
            {"nvidia.com/gpu": str(workers.gpus)} if workers.gpus else {}
        )
        own = {
            "group": workers.name,
            "pods": str(workers.pods),
            "worker_image": json.dumps((workers.gpus and kubernetes.gpu_image) or kubernetes.image),
            "quantities": json.dumps(quantities),
            "shared_memory": f"{workers.memory_gib // 2}Gi",
        }
        job += Template(mark + group).substitute(common | own)
    return f"{yaml.dump(config_map, Dumper=_Dumper, sort_keys=False, allow_unicode=True)}---\n{job}"


def job_name(*parts: str) -> str:
    """Returns the name of a RayJob; one that is changed or cut ends with a hash of the parts, so that no other job has it."""
    whole = "-".join(parts)
    plain = re.sub(r"[^a-z0-9]+", "-", whole.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"job-{plain}"
    if plain != whole or len(parts) > 2 or len(plain) > _LONGEST_NAME:
        mark = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_MARK]
        plain = f"{plain[: _LONGEST_NAME - _MARK - 1].rstrip('-')}-{mark}"
    return plain


def _config_map(name: str, namespace: str, files: Mapping[str, bytes]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Returns the ConfigMap of files by their paths, and where its volume puts each."""
    size = sum(map(len, files.values()))
    if size > _MOST_BYTES:
        raise ConfigError(
            "config-file",
            f"--render: the config and the text files that it names have {size:,} bytes, a ConfigMap takes {_MOST_BYTES:,}; "
            "put the larger files on S3",
        )
    data: dict[str, dict[str, str]] = {"data": {}, "binaryData": {}}
    items = []
    for number, (path, content) in enumerate(files.items()):
        key = f"file-{number}"
        try:
            data["data"][key] = content.decode()
        except UnicodeDecodeError:
            data["binaryData"][key] = base64.b64encode(content).decode()
        items.append({"key": key, "path": path.removeprefix(f"{FOLDER}/")})
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata} | data, items


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
