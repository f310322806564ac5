"""What a pod of a cluster will not find: paths of this machine, variables that no manifest sets, credentials."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from cluster.storage import remote
from jobs.config.config import Config
from jobs.job.pools import engines_of_strategies
from retrievers.elastic.settings import ElasticSettings
from retrievers.hybrid.settings import all_indexed
from retrievers.local.settings import LocalSettings
from retrievers.settings import EncoderSettings, ServerSettings
from rewriters.engines.settings import OpenaiSettings, RecordedSettings, VllmSettings
from rewriters.pool import is_path, named
from rewriters.settings import SelectAdaptive, SelectClassified

_OF_A_PATH = ("/", "./", "../", "~")


def unseen_paths(*configs: Config, sent: Collection[str] = ()) -> list[str]:
    """Returns each path of configs that is on this machine, as `key: path`: no pod sees it unless its image has it.

    Args:
        configs: Of the job; of an ablation, those of its arms.
        sent: Paths of files whose copies pods see.
    """
    paths = dict.fromkeys(one for config in configs for one in _paths(config))
    models = dict.fromkeys(one for config in configs for one in _models(config))
    found = [f"{key}: {path}" for key, path in paths if path and not remote(path) and path not in sent]
    return found + [f"{key}: {name}" for key, name in models if name and _is_folder(name)]


def unset_variables(config: Config, *arms: Config) -> list[str]:
    """Returns the environment variables that the config and its arms name and `cluster.kubernetes` does not set."""
    names: list[str | None] = []
    for one in (one for each in (config, *arms) for one in all_indexed(each.retrieve.retrievers).values()):
        if isinstance(one, ElasticSettings):
            names += [one.url_env, one.api_key_env, one.user_env, one.password_env]
    names += [server.api_key_env for server in servers(config, *arms)]
    kubernetes = config.cluster.kubernetes
    return [name for name in dict.fromkeys(names) if name and name not in {*kubernetes.env, *kubernetes.secrets}]


def doubtful(config: Config, *arms: Config) -> list[str]:
    """Returns what the config and its arms say that can hardly be meant of pods, each as `key: why; remedy`."""
    kubernetes = config.cluster.kubernetes
    found = []
    for key, image in (("image", kubernetes.image), ("gpu_image", kubernetes.gpu_image)):
        if image and "/" not in image:
            found.append(f"cluster.kubernetes.{key}: {image} names no registry: nodes ask Docker Hub; write REGISTRY/{image}")
    addresses = {server.base_url for server in servers(config, *arms)} | set(kubernetes.env.values())
    for address in sorted(one for one in addresses if one and "://" in one):
        if urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
            found.append(f"{address}: is the pod itself, not this machine; give the address of the server in the cluster")
    given = any(name.startswith("AWS_") for name in (*kubernetes.env, *kubernetes.secrets))
    if not given and any(remote(path) for one in (config, *arms) for _, path in _paths(one) if path):
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


def servers(*configs: Config) -> list[OpenaiSettings | ServerSettings]:
    """Returns the servers of models: encoders, rerankers, LLMs, also of strategies with an engine of their own.

    Strategies in files elsewhere are not read.
    """
    engines = [*(config.rewrite.engine for config in configs), *engines_of_strategies(*configs)]
    models = [server for config in configs for server in config.model_servers]
    return [*models, *(one for one in engines if isinstance(one, OpenaiSettings))]


def _paths(config: Config) -> Iterator[tuple[str, str | None]]:
    for key, paths in (("log.path", config.log.path), ("log.events", config.log.events or [])):
        for path in [paths] if isinstance(paths, str) else paths:
            yield key, path
    rewrite = config.rewrite
    if isinstance(rewrite.engine, RecordedSettings):
        yield "rewrite.engine.path", rewrite.engine.path
    for entry in rewrite.strategies:
        if is_path(source := named(entry).source):
            yield "rewrite.strategies", source
    if isinstance(rewrite.select, SelectClassified) and is_path(rewrite.select.rules):
        yield "rewrite.select.rules", rewrite.select.rules
    if isinstance(rewrite.select, SelectAdaptive):
        yield "rewrite.select.demonstrations", rewrite.select.demonstrations
    yield "rewrite.joint_prompt", rewrite.joint_prompt
    yield "rewrite.guards.overrides", rewrite.guards.overrides
    if rewrite.guards.vocabulary is not None:
        yield "rewrite.guards.vocabulary.path", rewrite.guards.vocabulary.path
    for name, one in all_indexed(config.retrieve.retrievers).items():
        if isinstance(one, LocalSettings):
            yield f"retrieve.retrievers.{name}.index", one.index
        else:
            for key in ("ca_file", "api_key_file", "password_file"):
                yield f"retrieve.retrievers.{name}.{key}", getattr(one, key)
    for server in servers(config):
        yield "api_key_file", server.api_key_file
    yield "evaluate.qrels", config.evaluate.qrels
    yield "evaluate.answers", config.evaluate.answers
    yield "output", config.output
    yield "store", config.own_store


def _models(config: Config) -> Iterator[tuple[str, str | None]]:
    engine = config.rewrite.engine
    if isinstance(engine, VllmSettings):
        yield "rewrite.engine.model", engine.model
        yield "rewrite.engine.lora", engine.lora
    if isinstance(engine, OpenaiSettings):
        yield "rewrite.engine.tokenizer", engine.tokenizer
    for name, one in all_indexed(config.retrieve.retrievers).items():
        if isinstance(one.encoder, EncoderSettings):
            yield f"retrieve.retrievers.{name}.encoder.model", one.encoder.model
    if config.rerank.kind == "cross_encoder":
        yield "rerank.model", config.rerank.model
    if isinstance(config.rerank.encoder, EncoderSettings):
        yield "rerank.encoder.model", config.rerank.encoder.model


def _is_folder(name: str) -> bool:
    """Returns whether a model's name is a folder of this machine, not one of a hub."""
    return name.startswith(_OF_A_PATH) or Path(name).is_dir()
