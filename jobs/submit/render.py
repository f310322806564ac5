"""Manifests for Kubernetes from a config: `submit --render kuberay | kueue | cron`. Nothing is asked of Ray or Kubernetes."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import yaml

from cluster.errors import ConfigError
from cluster.kuberay.create import filled
from cluster.kuberay.manifests import LONGEST_NAME, Manifest, check_rayjob, job_policy, nightly, rayjob
from cluster.kuberay.worker_groups import explicit_pools, reach, worker_groups
from cluster.run.pool_sizes import Pool, stage_of_pool
from jobs.chain.arms.arms import arms_of
from jobs.chain.arms.pools import pools_of_arms
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.config.set_configs import sets_of
from jobs.job.pools import requested_pools
from jobs.submit.config_map import config_files
from jobs.submit.ids import Verb
from jobs.submit.reachable import addresses

Kind = Literal["kuberay", "kueue", "cron"]

DEADLINE_SECONDS = 8 * 3600  # of a job of which no estimate is known
_LEAST_DEADLINE_SECONDS = 3600
_NODES_SECONDS = 1800  # to get nodes, images and models
_MARGIN = 3  # times the estimate
_ROUND_SECONDS = 600
_KILL_SECONDS = 600  # without cluster.grace_seconds: an orderly stop commits the shards under way
_HAND_BACK_SECONDS = 5  # after the grace
_ANY_DATE = "2026-01-31"  # to check a name that has the date of a night
_NO_DATE = "0001-01-01"  # of no log: stands where a text has the date of a night
_WIDTH = 128
_MARK = 6  # hexadecimal digits of a hash in a name
# Endings of other objects' names: such a name is marked, too.
_ENDING = re.compile(rf"-({'|'.join(get_args(Verb))}|cron|config|\d{{4}}-\d\d-\d\d|[0-9a-f]{{{_MARK}}})$")


def rendered(
    config: Config,
    config_path: str,
    kind: Kind,
    *,
    verb: Verb = "run",
    settings: Sequence[str] = (),
    label: str | None = None,
    seconds: float | None = None,
) -> str:
    """Returns the manifests as YAML documents, the same for the same arguments.

    Args:
        config: the job.
        config_path: its file; that, the prices beside it and small text files that it names are put into a ConfigMap.
        kind: kuberay: one RayJob; kueue: one that Kueue admits; cron: one every night.
        verb: what the job does with it.
        settings: the `--set`s of the command, which the job in the cluster is given, too.
        label: the `--label` of the command; None: it has none.
        seconds: busy time of all workers together, for the deadline; None: it is not known.

    Raises:
        ConfigError: the operator or Kueue would refuse the manifest, the config cannot be read, or an arm cannot be.
    """
    kubernetes = config.cluster.kubernetes
    named = load_config(config_path, settings, _NO_DATE, label) if kind == "cron" else config
    run_label = named.label and named.label.replace(_NO_DATE, "{date}")  # filled in each night, as all of the RayJob is
    job = job_name(named.name.replace(_NO_DATE, "{date}"), verb, run_label)
    of_sets = [(one, arms_of(one)) for one in ablations(config)] if verb == "ablate" else []
    arms = [arm for _, own in of_sets for arm in own]
    requests = [pools_of_arms(one, own) for one, own in of_sets] or [requested_pools(config)]
    pools = _greatest([explicit_pools(one, kubernetes) for one in requests])
    groups = worker_groups(pools, kubernetes)
    date = "{date}" if kind == "cron" else config.log.date
    deadline = kubernetes.deadline_seconds or deadline_seconds(pools, seconds)
    grace = config.cluster.grace_seconds
    kill = _KILL_SECONDS if grace is None else math.ceil(grace) + _HAND_BACK_SECONDS
    files = config_files(config, config_path, any_night=kind == "cron")
    scales_to = [f"cluster.scales_to.{key}={value:g}" for key, value in reach(groups)._asdict().items()]
    overrides = [*settings, *files.settings, "cluster.address=auto", *_sizes(config, pools), *scales_to]
    entrypoint = shlex.join(
        [
            *("timeout", "--signal=TERM", f"--kill-after={max(_KILL_SECONDS, kill)}", str(deadline)),
            *("dmqr", verb, files.config),
            *(["--date", date] if date else []),
            *(["--label", run_label] if run_label else []),
            *(word for setting in overrides for word in ("--set", setting)),
        ]
    )
    config_map = f"{job}-config"
    name = f"{job}-{date}" if date else job
    volume = {"name": config_map, "items": [{"key": key, "path": path} for key, path in files.paths.items()]}
    manifest = rayjob(name, job, kubernetes, groups, entrypoint, deadline, volume, kind == "kueue", kill)
    check_rayjob(filled(manifest, _ANY_DATE))
    documents: list[Manifest] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config_map, "namespace": kubernetes.namespace},
            "data": files.data,
        },
        job_policy(job, job, kubernetes, _server_ports(config, *(arm.config for arm in arms))),
        *(nightly(f"{job}-cron", manifest, kubernetes) if kind == "cron" else [manifest]),
    ]
    head = f"# Rendered by: dmqr submit {config_path} --render {kind}{' --ablate' * (verb == 'ablate')}\n"
    return head + yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True, width=_WIDTH
    )


def ablations(config: Config) -> list[Config]:
    """Returns the ablations that a config is of: one for each of its sets, which follow each other, or itself.

    Raises:
        ConfigError: what a set says is invalid.
    """
    return list(sets_of(config).values()) or [config]


def _greatest(several: Sequence[Mapping[str, Pool]]) -> dict[str, Pool]:
    """Returns pools that are large enough for each of several jobs, one after the other."""
    found: dict[str, Pool] = {}
    for name, pool in (item for pools in several for item in pools.items()):
        other = found.get(name, pool)
        most = max(pool.max_workers, other.max_workers) if pool.most or other.most else None
        cpus, gpus = max(pool.cpus, other.cpus), max(pool.gpus, other.gpus)
        found[name] = Pool(max(pool.workers, other.workers), cpus, gpus, most)
    return found


def job_name(name: str, verb: Verb = "run", label: str | None = None) -> str:
    """Returns the name of a job in Kubernetes: short enough that a date may follow, and no other job's.

    It ends with the verb, if that is no run. A name that is changed or cut, or that has a label in it, has a hash of all of it.

    Raises:
        ConfigError: it has no letter.
    """
    end = "" if verb == "run" else f"-{verb}"
    whole = name if label is None else f"{name}-{label}"
    plain = re.sub(r"[^a-z0-9]+", "-", whole.lower()).lstrip("0123456789-").rstrip("-")
    if not re.search("[a-z]", name.lower()):
        raise ConfigError("manifest", f"name {name!r}: no object of Kubernetes can have it; use a name with a letter")
    most = LONGEST_NAME - len(f"{end}-{_ANY_DATE}")
    if plain != name or len(plain) > most or _ENDING.search(plain):
        mark = hashlib.sha256(json.dumps([name, label]).encode()).hexdigest()[:_MARK]
        plain = f"{plain[: most - _MARK - 1].rstrip('-')}-{mark}"
    return plain + end


def deadline_seconds(pools: Mapping[str, Pool], seconds: float | None) -> int:
    """Returns the longest time of an attempt in seconds: three times an upper bound of the estimate, and the time for nodes.

    The estimate is the busy time of all workers together. Stages that followed each other would take, each, its busy time
    divided by its workers; the sum is at most the whole divided by the workers of the smallest pool.
    """
    if seconds is None:
        return DEADLINE_SECONDS
    fewest = min((pool.workers for pool in pools.values()), default=1)
    whole = _NODES_SECONDS + _MARGIN * seconds / fewest
    return max(_LEAST_DEADLINE_SECONDS, math.ceil(whole / _ROUND_SECONDS) * _ROUND_SECONDS)


def _sizes(config: Config, pools: Mapping[str, Pool]) -> list[str]:
    """Returns the settings of what the config leaves open: the cluster's size is not known before its nodes are there."""
    found = []
    for name, pool in pools.items():
        if stage_of_pool(name) != name:
            continue  # sized by the key of the first one
        own = getattr(config.cluster, name)
        found += [f"cluster.{name}.workers={pool.workers}"] * (own.workers is None)
        found += [f"cluster.{name}.cpus={pool.cpus:g}"] * (own.cpus is None)
    return found


def _server_ports(config: Config, *arms: Config) -> list[int]:
    """Returns the ports of the servers of models (LLMs, encoders, the reranker), of webhooks and of the collector of traces."""
    traces = config.cluster.traces
    urls = addresses(config, *arms)
    urls += [traces.endpoint] if traces and traces.endpoint else []
    searching = [one for of in (config, *arms) for one in of.retrieve.retrievers.values()]
    searching += [of.web.search for of in (config, *arms) if of.web is not None]
    variables = {getattr(one, "url_env", None) for one in searching if one.of_the_web}
    variables |= {one.webhook_env for one in config.notify}
    urls += [value for name, value in config.cluster.kubernetes.env.items() if name in variables]
    return [address.port or (80 if address.scheme == "http" else 443) for address in map(urlsplit, urls)]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and every value where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
