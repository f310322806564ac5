"""Which corpus goes into which indexes: one into all, or with collections one for each, named `law=PATH`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cluster.errors import ConfigError, RetrieverError, nearest
from jobs.config.config import Config
from retrievers.corpora.builds import index_builds
from retrievers.kinds import RetrieverSettings, all_indexed
from retrievers.settings import CorpusSettings


class NamedCorpus(NamedTuple):
    """A corpus and what is built of it.

    Attributes:
        collection: Its name; "" without collections.
        paths: Paths and URLs of its files.
        columns: What is read of them.
        retrievers: With an index of their own, by key below `retrieve.retrievers`.
    """

    collection: str
    paths: list[str]
    columns: CorpusSettings
    retrievers: dict[str, RetrieverSettings]


def named_corpora(config: Config, corpus: Sequence[str]) -> list[NamedCorpus]:
    """Returns what is to be built, in the order of the config's collections; of those without a corpus nothing.

    Raises:
        ConfigError: A path names no collection, or one that the config lacks.
        RetrieverError: An index is of several collections.
    """
    retrieve = config.retrieve
    if not retrieve.collections:
        return [NamedCorpus("", list(corpus), config.corpus, all_indexed(retrieve.retrievers))]
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
    _check_apart(config)
    return [
        NamedCorpus(
            name,
            paths[name],
            one.corpus or config.corpus,
            all_indexed({key: retrieve.retrievers[key] for key in one.retrievers}),
        )
        for name, one in retrieve.collections.items()
        if name in paths
    ]


def _check_apart(config: Config) -> None:
    """Checks that no index is of two collections: what is built of one corpus would replace what is built of the other."""
    owners: dict[str, str] = {}
    for name, one in config.retrieve.collections.items():
        of_one = all_indexed({key: config.retrieve.retrievers[key] for key in one.retrievers})
        for place in {built.place for built in index_builds(of_one, list(config.retrieve.filters)).builds}:
            if (other := owners.setdefault(place, name)) != name:
                raise RetrieverError(
                    "index-shared",
                    f"index {place}: is of the collections {other} and {name}, and is built of one corpus; give each an index "
                    "of its own, or build it with a config without collections",
                )
