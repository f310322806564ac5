"""What a pod of a cluster will not find: paths of this machine, variables that no manifest sets, credentials."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from cluster.plugins.references import named_file
from cluster.settings import Names
from cluster.storage import remote
from jobs.config.config import Config
from jobs.job.pools import engines_of_strategies
from jobs.log.judgements import local_qrels
from jobs.log.sets.names import set_name
from rewriters.pool import named

_OF_A_PATH = ("/", "./", "../", "~")
# Variables by which boto3 finds credentials; of a pair of keys the one that it looks for first.
_CREDENTIALS = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_DEFAULT_PROFILE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    }
)


def unseen_paths(*configs: Config, sent: Collection[str] = ()) -> list[str]:
    """Returns each path of configs that is on this machine, as `key: path`: no pod sees it unless its image has it.

    Args:
        configs: Of the job; of an ablation, those of its arms.
        sent: Paths of files whose copies pods see.
    """
    found: dict[str, bool] = {}  # whether it is of a model
    for key, what, name in _named(*configs):
        if what in (Names.FILE, Names.TEXT, Names.KEY):
            found |= {f"{key}: {name}": False} if not _is_seen(name, what, sent) else {}
        elif what is Names.CODE:
            found |= {f"{key}: {name}": False} if named_file(name) is not None and name not in sent else {}
        elif what is Names.MODEL and (name.startswith(_OF_A_PATH) or Path(name).is_dir()):  # not a name of a hub
            found[f"{key}: {name}"] = True
    return sorted(found, key=found.__getitem__)


def _is_seen(name: str, what: Names, sent: Collection[str]) -> bool:
    """Returns whether pods see a file, or the files of a data set."""
    of = set_name(name)
    if of is not None and of.kind == "irds":  # it is looked up where the driver runs
        return True
    path = (what is Names.TEXT and local_qrels(name)) or (name if of is None else of.rest)
    return remote(path) or path in sent


def unset_variables(*configs: Config) -> list[str]:
    """Returns the environment variables that a config and its arms name and its `cluster.kubernetes` does not set."""
    kubernetes = configs[0].cluster.kubernetes
    names = dict.fromkeys(name for _, what, name in _named(*configs) if what is Names.VARIABLE)
    return [name for name in names if name not in {*kubernetes.env, *kubernetes.secrets}]


def addresses(*configs: Config) -> list[str]:
    """Returns the addresses of the servers of models: encoders, rerankers, LLMs, also of strategies' own engines.

    Strategies in files elsewhere are not read.
    """
    return [name for _, what, name in _named(*configs) if what is Names.ADDRESS]


def doubtful(config: Config, *arms: Config) -> list[str]:
    """Returns what the config and its arms say that can hardly be meant of pods, each as `key: why; remedy`."""
    kubernetes = config.cluster.kubernetes
    found = []
    for key, image in (("image", kubernetes.image), ("gpu_image", kubernetes.gpu_image)):
        if image and "/" not in image:
            found.append(f"cluster.kubernetes.{key}: {image} names no registry: nodes ask Docker Hub; write REGISTRY/{image}")
    for address in sorted(one for one in {*addresses(config, *arms), *kubernetes.env.values()} if "://" in one):
        if urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
            found.append(f"{address}: is the pod itself, not this machine; give the address of the server in the cluster")
    entries = dict.fromkeys(named(entry).source for one in (config, *arms) for entry in one.rewrite.strategies)
    for source in entries:
        if remote(source):
            found.append(
                f"rewrite.strategies: {source}: is not read here; if it has an engine, give the GPUs of a worker in "
                "cluster.rewrite.gpus, and the port of a server in cluster.kubernetes.egress_ports"
            )
    given = not _CREDENTIALS.isdisjoint((*kubernetes.env, *kubernetes.secrets))
    if not given and any(remote(name) for _, _, name in _named(config, *arms)):
        if kubernetes.service_account is None:
            found.append(
                "s3://: nothing gives the pods credentials; name AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in "
                "cluster.kubernetes.secrets, or a service_account with rights"
            )
        elif not kubernetes.egress_addresses:
            found.append(
                "cluster.kubernetes.service_account: the NetworkPolicy keeps pods from servers of credentials on their nodes; "
                "add 169.254.170.23:80 to cluster.kubernetes.egress_addresses for EKS Pod Identity (IRSA needs none)"
            )
    return found


def _named(*configs: Config) -> Iterator[tuple[str, Names, str]]:
    """Yields key, what it names, and the name, of all that configs name."""
    for settings in configs:
        yield from settings.named()
    for engine in engines_of_strategies(*configs):
        yield from engine.named("rewrite.strategies.engine")
