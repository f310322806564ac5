"""The indexes that `dmqr index` builds: what a kind of retrievers says of them, and what a build is given.

The module of a kind (`RetrieverSettings.builder`) has `index_builds(retrievers)`, where retrievers may share an index;
or, where each has its own, `build_index(name, settings, corpus, progress)`, which suffices for a plug-in. Where
indexes keep a note of their corpus, it has `noted_corpus(name, settings)` and `note_source(name, settings, source)`, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cluster.errors import RetrieverError
from cluster.plugins import module_beside, own_errors
from retrievers.corpora.corpus import Built, read_corpus
from retrievers.corpora.files import COLUMNS, Progress, Source
from retrievers.kinds import RetrieverSettings
from retrievers.settings import CorpusSettings

if TYPE_CHECKING:
    from retrievers.elastic.bulk import BatchLoader


class BuildInputs(NamedTuple):
    """Arguments of a build."""

    sources: Sequence[str | Path | Source]  # the Parquet files of the corpus
    columns: CorpusSettings = COLUMNS
    folder: Path | None = None  # for temporary files; None: the system's
    progress: Progress = lambda phase, done, total: None
    load: BatchLoader | None = None  # loads passages with their vectors on a cluster; None: in this process
    replace: bool = True  # whether it may replace a local index; else an existing one was built by another process meanwhile
    source: str | None = None  # what tells the corpus's files from others without reading them; None: they are not all here


class CorpusNote(NamedTuple):
    """Facts about the corpus that an index was built of."""

    content: str  # the hash of all rows
    documents: int
    source: str | None  # `BuildInputs.source` of a build of these rows; None: it is not known


@dataclass(frozen=True)
class IndexBuild:
    """An index that can be built, of one retriever or several."""

    name: str  # for messages
    location: str  # what tells it from other indexes
    build: Callable[..., Built]  # of `BuildInputs`; builds the index, unless the same one is there
    encodes: bool = False  # whether passages are encoded, which workers of a cluster may do
    folder: str | None = None  # of a local index, here or on S3; `build` may be given another, and what it will replace


def _own_build(name: str, settings: RetrieverSettings, builder: Any) -> IndexBuild:
    """Returns the index of one retriever, by its module's `build_index`."""
    suffix = settings.location({})
    if suffix == settings.kind:  # no name of an index is among its settings
        own = settings.model_dump_json(exclude={"together", "score_floor"})
        suffix = sha256(own.encode()).hexdigest()[:8]

    def build(given: BuildInputs) -> Built:
        where = f"retrieve.retrievers.{name}"
        with tempfile.TemporaryDirectory(prefix="dmqr-index-", dir=given.folder) as folder:
            corpus = read_corpus(given.sources, Path(folder), given.progress, given.columns)
            with own_errors(type(settings), "build_index failed", RetrieverError, where):
                built: Any = builder.build_index(name, settings, corpus, given.progress)
            if not isinstance(built, Built):
                line = f"{builder.__file__}: build_index gives {type(built).__name__}"
                raise RetrieverError("plugin", f"{where}: {line}; return corpus.built() or corpus.there()")
            return built

    return IndexBuild(name, f"{suffix} ({settings.kind})", build)


Kind = TypeVar("Kind", bound=RetrieverSettings)
Place = TypeVar("Place", bound=Hashable)


def shared_indexes(
    retrievers: Mapping[str, RetrieverSettings],
    kind: type[Kind],
    place_of: Callable[[Kind], Place],
    differing: Callable[[Kind, Kind], str | None],
) -> dict[Place, dict[str, Kind]]:
    """Returns the retrievers of a kind that share each index, by place and key; raises RetrieverError if any two differ.

    `differing` returns a key of the settings of which two retrievers of an index want different values; None: there is none.
    """
    indexes: dict[Place, dict[str, Kind]] = {}
    for name, settings in retrievers.items():
        if isinstance(settings, kind):
            sharing = indexes.setdefault(place_of(settings), {})
            for other, its in sharing.items():
                if key := differing(its, settings):
                    problem = f"another retriever wants index {settings.location({})} otherwise: {other} and {name} share it"
                    remedy = f"give each its own index, or both the same {key}"
                    raise RetrieverError("index-other", f"retrieve.retrievers.{name}.{key}: {problem}, but not {key}; {remedy}")
            sharing[name] = settings
    return indexes


def builder_of(settings: RetrieverSettings) -> Any:
    """Returns the module that builds the indexes of a kind."""
    return module_beside(type(settings), settings.builder or settings.opener)


class IndexBuilds(NamedTuple):
    """The indexes of some retrievers."""

    builds: list[IndexBuild]
    left: dict[str, str]  # retrievers whose kind builds none -> the reason


def index_builds(retrievers: Mapping[str, RetrieverSettings]) -> IndexBuilds:
    """Returns the indexes of retrievers by key; raises RetrieverError if two want one index with different settings."""
    builds = IndexBuilds([], {})
    kinds: dict[str, tuple[Any, dict[str, RetrieverSettings]]] = {}
    for name, settings in retrievers.items():
        builder = builder_of(settings)
        kinds.setdefault(builder.__name__, (builder, {}))[1][name] = settings
    for builder, of_kind in kinds.values():
        if hasattr(builder, "index_builds"):
            name, settings = next(iter(of_kind.items()))
            with own_errors(type(settings), "index_builds failed", RetrieverError, f"retrieve.retrievers.{name}"):
                builds.builds.extend(builder.index_builds(of_kind))
        elif hasattr(builder, "build_index"):
            builds.builds.extend(_own_build(name, one, builder) for name, one in of_kind.items())
        else:
            shown = Path(str(builder.__file__)).name
            builds.left.update(dict.fromkeys(of_kind, f"{shown} has no build_index, so its index is built elsewhere"))
    return builds
