"""Manifests for Kubernetes from a config: `submit --render kuberay | kueue | cron`. Nothing is asked of Ray or Kubernetes."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from cluster.errors import ConfigError
from cluster.kuberay.create import filled
from cluster.kuberay.cron import nightly
from cluster.kuberay.network import job_policy
from cluster.kuberay.pods import CONFIG_FOLDER, Manifest
from cluster.kuberay.rayjob import rayjob
from cluster.kuberay.refused import LONGEST_NAME, check_rayjob
from cluster.kuberay.worker_groups import explicit_pools, reach, worker_groups
from cluster.run.pools import Pool
from jobs.config.config import Config
from jobs.run.pools import requested_pools
from rewriters.engines.settings import OpenaiSettings

Kind = Literal["kuberay", "kueue", "cron"]

PRICES = "prices.yaml"
DEADLINE_SECONDS = 8 * 3600  # of a job of which no estimate is known
_LEAST_DEADLINE_SECONDS = 3600
_NODES_SECONDS = 1800  # to get nodes, images and models
_MARGIN = 3  # times the estimate
_ROUND_SECONDS = 600
_KILL_SECONDS = 600  # an orderly stop commits the shards under way
_ANY_DATE = "2026-01-31"  # to check a name that has the date of a night
_WIDTH = 128


def rendered(
    config: Config,
    config_path: str,
    kind: Kind,
    *,
    settings: Sequence[str] = (),
    planned: Mapping[str, Any] | None = None,
) -> str:
    """Returns the manifests as YAML documents, the same for the same arguments.

    Args:
        config: the job.
        config_path: its file; that and the prices beside it are put into a ConfigMap.
        kind: kuberay: one RayJob; kueue: one that Kueue admits; cron: one every night.
        settings: the `--set`s of the command, which the job in the cluster is given, too.
        planned: what `plan` found, for the deadline; None: none is known.

    Raises:
        ConfigError: the operator or Kueue would refuse the manifest, or the config cannot be read.
    """
    kubernetes = config.cluster.kubernetes
    job = job_name(config.name)
    pools = explicit_pools(requested_pools(config), kubernetes)
    groups = worker_groups(pools, kubernetes)
    date = "{date}" if kind == "cron" else config.log.date
    deadline = kubernetes.deadline_seconds or deadline_seconds(pools, planned)
    file, files = _config_files(config_path)
    entrypoint = shlex.join(
        [
            *("timeout", "--signal=TERM", f"--kill-after={_KILL_SECONDS}", str(deadline)),
            *("dmqr", "run", f"{CONFIG_FOLDER}/{file}"),
            *(["--date", date] if date else []),
            *(["--label", config.label] if config.label else []),
            *_overrides([*settings, "cluster.address=auto", *_sizes(config, pools), *_reach(groups)]),
        ]
    )
    config_map = f"{job}-config"
    name = f"{job}-{date}" if date else job
    manifest = rayjob(name, job, kubernetes, groups, entrypoint, deadline, config_map, kind == "kueue")
    check_rayjob(filled(manifest, _ANY_DATE))
    documents: list[Manifest] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config_map, "namespace": kubernetes.namespace},
            "data": files,
        },
        job_policy(job, job, kubernetes, _server_ports(config)),
        *(nightly(f"{job}-cron", manifest, kubernetes) if kind == "cron" else [manifest]),
    ]
    head = f"# Rendered by: dmqr submit {config_path} --render {kind}\n"
    return head + yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True, width=_WIDTH
    )


def job_name(name: str) -> str:
    """Returns a config's name as the name of a job in Kubernetes: short enough that a date may follow.

    Raises:
        ConfigError: it has no letter.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).lstrip("0123456789-")
    plain = plain[: LONGEST_NAME - len(f"-{_ANY_DATE}")].rstrip("-")
    if not plain:
        raise ConfigError("manifest", f"name {name!r}: no object of Kubernetes can have it; use a name with a letter")
    return plain


def deadline_seconds(pools: Mapping[str, Pool], planned: Mapping[str, Any] | None) -> int:
    """Returns the longest time of an attempt in seconds: three times an upper bound of the estimate, and the time for nodes.

    `plan` knows the busy time of all workers together. Stages that followed each other would take, each, its busy time
    divided by its workers; the sum is at most the whole divided by the workers of the smallest pool.
    """
    seconds = ((planned or {}).get("expected") or {}).get("seconds")
    if seconds is None:
        return DEADLINE_SECONDS
    fewest = min((pool.workers for pool in pools.values()), default=1)
    whole = _NODES_SECONDS + _MARGIN * float(seconds) / fewest
    return max(_LEAST_DEADLINE_SECONDS, math.ceil(whole / _ROUND_SECONDS) * _ROUND_SECONDS)


def _config_files(config_path: str) -> tuple[str, dict[str, str]]:
    """Returns the config's file name, and name -> text of it and the prices."""
    path = Path(config_path)
    file = path.name if re.fullmatch(r"[-._A-Za-z0-9]+", path.name) else "config.yaml"
    try:
        files = {file: path.read_text(encoding="utf-8")}
        if (prices := path.with_name(PRICES)).exists():
            files[PRICES] = prices.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError("config-file", f"{config_path}: cannot be read: {why}; give a YAML file") from error
    return file, files


def _sizes(config: Config, pools: Mapping[str, Pool]) -> list[str]:
    """Returns the settings of what the config leaves open: the cluster's size is not known before its nodes are there."""
    found = []
    for name, pool in pools.items():
        own = getattr(config.cluster, name)
        found += [f"cluster.{name}.workers={pool.workers}"] * (own.workers is None)
        found += [f"cluster.{name}.cpus={pool.cpus:g}"] * (own.cpus is None)
    return found


def _reach(groups: Sequence[Any]) -> list[str]:
    nodes, cpus, gpus = reach(list(groups))
    return [f"cluster.scales_to.{key}={value:g}" for key, value in (("nodes", nodes), ("cpus", cpus), ("gpus", gpus))]


def _overrides(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _server_ports(config: Config) -> list[int]:
    """Returns the ports of the servers of models: the LLM's, the encoders', the reranker's."""
    engine = config.rewrite.engine
    urls = [engine.base_url] if isinstance(engine, OpenaiSettings) else []
    addresses = [urlsplit(url) for url in [*urls, *(server.base_url or "" for server in config.model_servers)]]
    return [address.port or (80 if address.scheme == "http" else 443) for address in addresses]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and every value where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
