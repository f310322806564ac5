"""Which corpus goes into which indexes: one into all, or with collections one for each.

It is named on the command line (with collections `law=PATH`), or by the config, in which an arm may name another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from cluster.errors import ConfigError, RetrieverError, nearest
from jobs.chain.arms.arms import arms_of
from jobs.config.config import Config
from jobs.config.settings import AblateSettings
from jobs.terminal.formats import and_more
from retrievers.corpora.builds import index_builds
from retrievers.kinds import RetrieverSettings, all_indexed
from retrievers.settings import CorpusSettings

_NAMED = 3  # paths


class NamedCorpus(NamedTuple):
    """A corpus and what is built of it."""

    collection: str  # its name; "" without collections
    paths: list[str]  # and URLs of its files
    columns: CorpusSettings
    retrievers: dict[str, RetrieverSettings]  # with an index of their own, by key below `retrieve.retrievers`
    key: str  # of the config that names it

    @property
    def shown_paths(self) -> str:
        """Returns its paths, for messages."""
        return and_more(self.paths, _NAMED)

    @property
    def shown(self) -> str:
        """Returns what it is called among others."""
        return (self.shown_paths or "that") + (f" of collection {self.collection}" if self.collection else "")


def named_corpora(config: Config, corpus: Sequence[str]) -> list[NamedCorpus]:
    """Returns what is to be built, in the order of the config's collections, also of those that no path is for.

    Raises:
        ConfigError: A path names no collection, or one that the config lacks.
    """
    retrieve = config.retrieve
    if not retrieve.collections:
        return [one._replace(paths=list(corpus), key="--corpus") for one in _own(config)]
    paths: dict[str, list[str]] = {}
    for word in corpus:
        name, equals, path = word.partition("=")
        if not (equals and path) or name not in retrieve.collections:
            known = nearest(name, retrieve.collections) if equals else f" (known: {', '.join(retrieve.collections)})"
            first = next(iter(retrieve.collections))
            raise ConfigError(
                "argument", f"--corpus {word}: names no collection of the config; write it as {first}=PATH{known}"
            )
        paths.setdefault(name, []).append(path)
    return [one._replace(paths=paths.get(one.collection, []), key="--corpus") for one in _own(config)]


def configured_corpora(configs: Sequence[Config]) -> list[NamedCorpus]:
    """Returns the corpora that configs name, of a job's arms each once, with what is built of them for any of the configs."""
    found: dict[str, NamedCorpus] = {}
    for config in configs:
        for one in (own for own in _own(config) if own.paths and own.retrievers):
            known = json.dumps([one.collection, one.columns.model_dump()], sort_keys=True)
            whole = found.setdefault(known, one._replace(retrievers={}))
            for key, settings in one.retrievers.items():
                if settings not in whole.retrievers.values():
                    numbers = (f"{key} ({number})" for number in count(2))  # of arms that have it otherwise
                    name = key if key not in whole.retrievers else next(n for n in numbers if n not in whole.retrievers)
                    whole.retrievers[name] = settings
    return list(found.values())


def check_indexes(corpora: Sequence[NamedCorpus]) -> None:
    """Checks that each index is of one corpus, and that its retrievers want it alike.

    Raises:
        RetrieverError: It is not so.
    """
    owners: dict[str, NamedCorpus] = {}
    for corpus in corpora:
        for place in {built.place for built in index_builds(corpus.retrievers).builds}:
            if (other := owners.setdefault(place, corpus)) is not corpus:
                raise RetrieverError(
                    "index-other",
                    f"index {place}: is of two corpora, {other.shown} and {corpus.shown}, and is built of one; give each an "
                    "index of its own, or build it with a config without collections",
                )


def job_configs(config: Config) -> list[Config]:
    """Returns a config, or those of its arms, where it is one of an ablation.

    Raises:
        ConfigError: An arm is invalid.
    """
    return [config] if config.ablate == AblateSettings() else [config, *(arm.config for arm in arms_of(config))]


def _own(config: Config) -> list[NamedCorpus]:
    """Returns the corpora of a config, also those that it names no paths of."""
    retrievers = config.retrieve.retrievers
    if not config.retrieve.collections:
        return [NamedCorpus("", config.corpus.paths, config.corpus, all_indexed(retrievers), "corpus.path")]
    found = []
    for name, one in config.retrieve.collections.items():
        paths, key = one.corpus.paths if one.corpus else [], f"retrieve.collections.{name}.corpus.path"
        mine = all_indexed({retriever: retrievers[retriever] for retriever in one.retrievers})
        found.append(NamedCorpus(name, paths, one.corpus or config.corpus, mine, key))
    return found
