"""Which corpus goes into which indexes: one into all, of a union one into each.

It is named on the command line, or by the config, in which an arm may name another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from cluster.errors import ConfigError, RetrieverError
from jobs.chain.arms.arms import arms_of
from jobs.config.config import Config
from jobs.config.settings import AblateSettings
from jobs.terminal.formats import and_more
from retrievers.corpora.builds import index_builds
from retrievers.kinds import RetrieverSettings
from retrievers.settings import CorpusSettings

_NAMED = 3  # paths


class NamedCorpus(NamedTuple):
    """A corpus and what is built of it."""

    member: str  # the name of its index in unions; "" of other indexes
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
        return f"{self.shown_paths} ({self.key})"


def named_corpus(config: Config, paths: Sequence[str]) -> NamedCorpus:
    """Returns the corpus that the command line names, with the columns of the config's.

    Raises:
        ConfigError: The config has a union, each of whose indexes has a corpus of its own.
    """
    corpora = own_corpora(config)
    if any(corpus.member for corpus in corpora):
        keys = " and ".join(corpus.key for corpus in corpora)
        raise ConfigError("argument", f"--corpus: each index of a union has its own corpus; name them in {keys} of the config")
    return corpora[0]._replace(paths=list(paths), key="--corpus")


def configured_corpora(configs: Sequence[Config]) -> list[NamedCorpus]:
    """Returns the corpora that configs name, of a job's arms each once, with what is built of them for any of the configs."""
    found: dict[str, NamedCorpus] = {}
    for config in configs:
        for one in (own for own in own_corpora(config) if own.paths and own.retrievers):
            known = json.dumps([one.member, one.columns.model_dump()], sort_keys=True)
            whole = found.setdefault(known, one._replace(retrievers={}))
            for key, settings in one.retrievers.items():
                if settings not in whole.retrievers.values():
                    numbers = (f"{key} ({number})" for number in count(2))  # of arms that have it otherwise
                    name = key if key not in whole.retrievers else next(n for n in numbers if n not in whole.retrievers)
                    whole.retrievers[name] = settings
    return list(found.values())


def check_indexes(corpora: Sequence[NamedCorpus]) -> None:
    """Raises RetrieverError if an index is of two corpora, or if its retrievers want it differently."""
    owners: dict[str, NamedCorpus] = {}
    for corpus in corpora:
        for place in {built.place for built in index_builds(corpus.retrievers).builds}:
            if (other := owners.setdefault(place, corpus)) is not corpus:
                words = f"is of two corpora, {other.shown} and {corpus.shown}, and is built of one"
                raise RetrieverError("index-other", f"index {place}: {words}; give each an index of its own")


def job_configs(config: Config) -> list[Config]:
    """Returns a config, and those of its arms where it is one of an ablation; raises ConfigError for an invalid arm."""
    return [config] if config.ablate == AblateSettings() else [config, *(arm.config for arm in arms_of(config))]


def own_corpora(config: Config) -> list[NamedCorpus]:
    """Returns the corpora of a config, also those that it names no paths of."""
    found = []
    for member, columns in config.corpora.items():
        built = {key: index for name, one in config.retrieve.retrievers.items() for key, index in one.indexed(name).items()
                 if one.member(key) == member}  # fmt: skip
        key = f"corpus.{member}.path" if member else "corpus.path"
        found.append(NamedCorpus(member, columns.paths, columns, built, key))
    return found
