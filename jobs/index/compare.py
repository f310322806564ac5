"""Compares indexes with the corpus of the config, by the notes that their builds left.

A note says which files an index was built from: while they are the same, nobody reads them to compare their rows. It counts for
the content that it names alone, so that one which a kill left of another index means nothing.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from cluster.errors import ClusterError, ConfigError, RetrieverError
from cluster.plugins import own_errors
from cluster.storage import files_at, is_hidden, open_storage, remote
from cluster.storage.copies import work_folder
from cluster.storage.s3 import S3Storage
from jobs.config.config import Config
from jobs.index.sources import corpus_file, passages
from jobs.job.retrievers import retriever_identity, stored_index
from jobs.log.sets import irds
from jobs.log.sets.names import set_name
from jobs.terminal.formats import and_more
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.logs import event
from retrievers.corpora.builds import CorpusNote, builder_of, index_builds
from retrievers.corpora.corpus import content_of
from retrievers.corpora.files import Progress, is_corpus_file
from retrievers.kinds import RetrieverSettings
from retrievers.local.index import SOURCE_NOTE, index_path, read_index
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
        return and_more(self.paths, _NAMED)

    @property
    def shown(self) -> str:
        return f"{self.shown_paths} ({self.key})"


def named_corpus(config: Config, paths: Sequence[str]) -> NamedCorpus:
    """Returns the corpus that the command line names, with the columns of the config's; raises ConfigError for a union."""
    corpora = own_corpora(config)
    if any(corpus.member for corpus in corpora):
        keys = " and ".join(corpus.key for corpus in corpora)
        raise ConfigError("argument", f"--corpus: each index of a union has its own corpus; name them in {keys} of the config")
    return corpora[0]._replace(paths=list(paths), key="--corpus")


def configured_corpora(configs: Sequence[Config]) -> list[NamedCorpus]:
    """Returns the corpora that configs name, of a job's arms each once, with what is built of them for any of the configs."""
    corpora: dict[str, NamedCorpus] = {}
    for config in configs:
        for corpus in (own for own in own_corpora(config) if own.paths and own.retrievers):
            known = json.dumps([corpus.member, corpus.columns.model_dump()], sort_keys=True)
            whole = corpora.setdefault(known, corpus._replace(retrievers={}))
            for key, settings in corpus.retrievers.items():
                if settings not in whole.retrievers.values():
                    numbers = (f"{key} ({number})" for number in count(2))  # of arms that have it otherwise
                    name = key if key not in whole.retrievers else next(n for n in numbers if n not in whole.retrievers)
                    whole.retrievers[name] = settings
    return list(corpora.values())


def check_indexes(corpora: Sequence[NamedCorpus]) -> None:
    """Raises RetrieverError if an index is of two corpora, or if its retrievers want it differently."""
    owners: dict[str, NamedCorpus] = {}
    for corpus in corpora:
        for name in {built.location for built in index_builds(corpus.retrievers).builds}:
            if (other := owners.setdefault(name, corpus)) is not corpus:
                problem = f"is of two corpora, {other.shown} and {corpus.shown}, and is built of one"
                raise RetrieverError("index-other", f"index {name}: {problem}; give each an index of its own")


def own_corpora(config: Config) -> list[NamedCorpus]:
    """Returns the corpora of a config, also those that it names no paths of."""
    corpora = []
    for member, columns in config.corpora.items():
        built = {key: index for name, block in config.retrieve.retrievers.items() for key, index in block.indexed(name).items()
                 if block.member(key) == member}  # fmt: skip
        key = f"corpus.{member}.path" if member else "corpus.path"
        corpora.append(NamedCorpus(member, columns.paths, columns, built, key))
    return corpora


_KEPT, _REMEDY = "exists already, nothing to do", "name another index, or replace it: dmqr index CONFIG --replace"


def index_entry(folder: str) -> dict[str, Any] | None:
    """Returns the index.json of a folder, here or on S3; None: there is no index. Raises for a damaged one."""
    try:
        return stored_index(S3Storage(folder))[0] if remote(folder) else read_index(index_path(folder))
    except RetrieverError as error:
        if error.code != "index-missing":
            raise
        return None


def source_of(corpus: NamedCorpus) -> str | None:
    """Returns a hash of the names, sizes and versions of a corpus's files and of its settings; None: a path is not there."""
    files = [sorted(_versions(path)) for path in corpus.paths]
    if not all(files):
        return None
    parts = [corpus.columns.model_dump(exclude={"path"}), *files]
    return f"sha256:{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]}"


def _versions(path: str) -> Iterator[tuple[str, int, str]]:
    """Yields address, size and version of the files at a path or URL, but for hidden ones; of a data set those of documents."""
    if (name := set_name(path)) is not None and name.kind == "irds":
        yield path, 0, irds.documents_version(name.rest, "corpus.path")
        return
    for file in files_at(path if name is None else corpus_file(name)):
        if not is_hidden(file.name) or is_corpus_file(file.name) or file.path == path:  # Parquet is read in hidden folders, too
            yield os.path.abspath(file.path) if not remote(path) else file.path, file.size, str(file.changed)


def note_source(folder: str, source: str | None) -> None:
    """Notes beside an index which files it was built from; where that cannot be written, rows are compared the next time."""
    if source is not None and (entry := index_entry(folder)) is not None:
        with contextlib.suppress(OSError, ClusterError):
            _storage(folder).put(SOURCE_NOTE, json.dumps({"corpus": entry["corpus"], "source": source}).encode())


def _noted_source(folder: str, content: str) -> str | None:
    """Returns the `source_of` that an index with this content was built from; None: it is not known."""
    try:
        note = json.loads(_storage(folder).get(SOURCE_NOTE) or b"{}")
    except ValueError:
        return None
    return note.get("source") if note.get("corpus") == content else None


def _storage(folder: str) -> Any:
    return open_storage(folder if remote(folder) else str(index_path(folder)))


class OtherCorpus(RetrieverError):
    """An index is of another corpus than the one that it is to be built from."""


class KnownIndex(NamedTuple):
    """An existing index."""

    shown: str  # for messages
    note: CorpusNote | None  # None: `dmqr index` did not build it
    put_source: Callable[[str], object]  # notes its files


def shown_progress(progress: LiveDisplay, what: str) -> Progress:
    """Returns a function that shows the phase, the amount done and the total."""
    return lambda phase, done, total: progress.phase(f"{what}: {phase} {done:,}/{total:,}")


def keeps_note(settings: RetrieverSettings) -> bool:
    """Returns True if an index is in a folder, or keeps a note of its corpus elsewhere."""
    return settings.folder is not None or hasattr(builder_of(settings), "noted_corpus")


def known_index(name: str, settings: RetrieverSettings) -> KnownIndex | None:
    """Returns the index of a retriever that `keeps_note`; None: its folder has none. Raises RetrieverError elsewhere."""
    if (folder := settings.folder) is not None:
        if (entry := index_entry(folder)) is None:
            return None
        note = CorpusNote(entry["corpus"], entry["documents"], _noted_source(folder, entry["corpus"]))
        return KnownIndex(f"index {folder}", note, partial(note_source, folder))
    (build,), builder, where = index_builds({name: settings}).builds, builder_of(settings), f"retrieve.retrievers.{name}"
    with own_errors(type(settings), "noted_corpus failed", RetrieverError, where):
        noted = builder.noted_corpus(name, settings)
    return KnownIndex(f"{where}: index {build.location}", noted, partial(builder.note_source, name, settings))


class ComparedCorpus:
    """A corpus, whose rows are read once, to be compared with indexes."""

    def __init__(self, corpus: NamedCorpus, progress: LiveDisplay) -> None:
        """Reads names, sizes and versions of the corpus's files."""
        self.corpus, self.progress, self._source = corpus, progress, source_of(corpus)
        self._content: tuple[int, str] | None = None
        self.checked: set[str] = set()  # places of indexes that are there: several retrievers may search one
        self._told: set[str] = set()  # warnings

    def check(self, shown: str, note: CorpusNote) -> str | None:
        """Raises OtherCorpus if an index is of another by its note; returns `source_of` the corpus where the note's differs."""
        corpus = self.corpus
        if self._source is None:
            problem = f"{corpus.key}: {corpus.shown_paths} is missing or empty"
            if corpus.key == "--corpus":
                raise RetrieverError("corpus", f"{problem}; correct corpus.path or --corpus")
            problem += f", so {shown} cannot be compared with it"
            if problem not in self._told:
                event("warning", problem, logging.WARNING)
            self._told.add(problem)
        elif note.source != self._source:
            self._content = documents, content = self._content or self._read()
            if content != note.content:
                problem = f"was built from another corpus ({note.documents:,} documents) than {corpus.shown_paths}"
                raise OtherCorpus("index-other", f"{shown}: {problem} ({documents:,}; {corpus.key}); {_REMEDY}")
            return self._source
        return None

    def missing(self) -> dict[str, RetrieverSettings]:
        """Returns the retrievers of indexes that are not there; checks the other indexes, each once."""
        missing = {}
        for name, settings in self.corpus.retrievers.items():
            (build,) = index_builds({name: settings}).builds
            if build.location in self.checked:
                continue
            if (known := known_index(name, settings)) is None:
                missing[name] = settings
                continue
            self.checked.add(build.location)
            if known.note is None:
                problem = f"was not built by dmqr index, so whether it is of {self.corpus.shown} is not known"
                event("warning", f"{known.shown}: {problem}", logging.WARNING)
            elif (source := self.check(known.shown, known.note)) is not None:
                known.put_source(source)
        return missing

    def _read(self) -> tuple[int, str]:
        corpus = self.corpus
        show = shown_progress(self.progress, f"comparing the corpus {corpus.shown_paths} with its index")
        with work_folder() as folder:
            return content_of(passages(corpus.paths, corpus.columns, folder, show)[0], show, corpus.columns)


def planned_builds(corpus: NamedCorpus, progress: LiveDisplay, *, dry_run: bool) -> list[dict[str, Any]]:
    """Returns for each index its documents and what a build would do, as rows of `dmqr index`.

    Raises:
        OtherCorpus: An index is of another or an unknown corpus, or would lose its vectors, and this is no `dry_run`.
        RetrieverError: The corpus cannot be read, or a server is away.
    """
    compared, builds = ComparedCorpus(corpus, progress), dict[str, dict[str, Any]]()
    for name, settings in corpus.retrievers.items():
        for build in index_builds({name: settings}).builds:
            documents, state = 0, "would be built"
            try:
                if keeps_note(settings) and (known := known_index(name, settings)) is not None:
                    if known.note is None:
                        raise OtherCorpus("index-other", f"{known.shown}: was not built by dmqr index; {_REMEDY}")
                    documents = known.note.documents
                    compared.check(known.shown, known.note)
                    _check_vectors(known.shown, settings, corpus)
                    if dry_run:
                        retriever_identity(name, settings)
                    state = _KEPT
            except OtherCorpus as error:
                if not dry_run:
                    raise
                state = f"would be replaced: {error.what}"
            except RetrieverError as error:
                if error.code not in ("index-missing", "index-other"):
                    raise
                state = f"would be built: {error.what}"
            if state != _KEPT or build.name not in builds:  # retrievers that share an index
                builds[build.name] = {"index": build.name, "documents": documents, "done": state}
    return list(builds.values())


def _check_vectors(shown: str, settings: RetrieverSettings, corpus: NamedCorpus) -> None:
    """Raises OtherCorpus where a folder has vectors of its corpus, and no retriever of the config searches them."""
    sharing = [one for one in corpus.retrievers.values() if one.folder == settings.folder]
    if settings.folder is None or any(getattr(one, "encoder", None) for one in sharing):
        return
    if (entry := index_entry(settings.folder)) is not None and entry["fields"]["dense"] is not None:
        what = f"{shown}: a build would drop its vectors ({entry['encoder_name']}), as no dense retriever names it"
        raise OtherCorpus("index-other", f"{what}; give one with this index, {_REMEDY}")
