"""What a pod of a cluster will not find: paths of this machine, variables that no manifest sets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from cluster.errors import RewriterError
from cluster.storage import remote
from jobs.config.config import Config
from retrievers.elastic.settings import ElasticSettings
from retrievers.local.settings import LocalSettings
from retrievers.settings import EncoderSettings
from rewriters.engines.settings import OpenaiSettings, RecordedSettings, VllmSettings
from rewriters.pool import is_path, load, named
from rewriters.settings import SelectAdaptive, SelectClassified

_OF_A_PATH = ("/", "./", "../", "~")


def unseen_paths(config: Config, sent: Collection[str] = ()) -> list[str]:
    """Returns each path of the config that is on this machine, as `key: path`: no pod sees it unless its image has it.

    Args:
        config: Of the job.
        sent: Paths of files whose copies pods see.
    """
    found = [f"{key}: {path}" for key, path in _paths(config) if path and not remote(path) and path not in sent]
    return found + [f"{key}: {name}" for key, name in _models(config) if name and _is_folder(name)]


def unset_variables(config: Config) -> list[str]:
    """Returns the environment variables that the config names and `cluster.kubernetes` does not set."""
    names: list[str | None] = []
    for one in config.retrieve.retrievers.values():
        if isinstance(one, ElasticSettings):
            names += [one.url_env, one.api_key_env, one.user_env, one.password_env]
    names += [server.api_key_env for server in config.model_servers]
    names += [server.api_key_env for server in llm_servers(config)]
    kubernetes = config.cluster.kubernetes
    return [name for name in dict.fromkeys(names) if name and name not in {*kubernetes.env, *kubernetes.secrets}]


def llm_servers(config: Config) -> list[OpenaiSettings]:
    """Returns the servers of `rewrite.engine` and of strategies with an engine of their own; files elsewhere are not read."""
    found = [config.rewrite.engine]
    for entry in config.rewrite.strategies:
        with suppress(RewriterError):
            found.append(load(entry, context=True).engine)
    return [one for one in found if isinstance(one, OpenaiSettings)]


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
    for name, one in config.retrieve.retrievers.items():
        if isinstance(one, LocalSettings):
            yield f"retrieve.retrievers.{name}.index", one.index
        else:
            yield f"retrieve.retrievers.{name}.ca_file", one.ca_file
    yield "evaluate.qrels", config.evaluate.qrels
    yield "evaluate.answers", config.evaluate.answers
    yield "output", config.output


def _models(config: Config) -> Iterator[tuple[str, str | None]]:
    engine = config.rewrite.engine
    if isinstance(engine, VllmSettings):
        yield "rewrite.engine.model", engine.model
        yield "rewrite.engine.lora", engine.lora
    if isinstance(engine, OpenaiSettings):
        yield "rewrite.engine.tokenizer", engine.tokenizer
    for name, one in config.retrieve.retrievers.items():
        if isinstance(one.encoder, EncoderSettings):
            yield f"retrieve.retrievers.{name}.encoder.model", one.encoder.model
    if config.rerank.kind == "cross_encoder":
        yield "rerank.model", config.rerank.model
    if isinstance(config.rerank.encoder, EncoderSettings):
        yield "rerank.encoder.model", config.rerank.encoder.model


def _is_folder(name: str) -> bool:
    """Returns whether a model's name is a folder of this machine, not one of a hub."""
    return name.startswith(_OF_A_PATH) or Path(name).is_dir()
