"""The indexes of configs that name their corpora: a local one that is missing is built, one of another corpus is refused.

An index that is there is never replaced: that is `dmqr index`'s alone. Where several jobs want the same index, one builds it
and the others wait. One that is not in a folder, as in Elasticsearch, is compared by the note that its build has left in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from cluster.errors import RetrieverError
from cluster.plugins import own_errors
from cluster.run.lease import holder
from cluster.storage import remote
from cluster.storage.copies import work_folder
from cluster.storage.s3 import S3Storage
from jobs.config.config import Config
from jobs.index.corpora import NamedCorpus, check_indexes, configured_corpora
from jobs.index.index import built_of, shown_progress
from jobs.index.source_notes import index_entry, note_source, noted_source, source_of
from jobs.index.sources import passages
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.logs import event
from retrievers.corpora.builds import CorpusNote, builder_of, index_builds
from retrievers.corpora.corpus import Content, content_of
from retrievers.corpora.files import corpus_files, corpus_schema
from retrievers.kinds import RetrieverSettings
from retrievers.local.build_folder import is_being_built
from retrievers.local.fields import local_indexes
from retrievers.local.index import index_path

WAIT_SECONDS = 1.0  # between two looks at whether another process has built an index


def names_corpora(configs: Sequence[Config]) -> bool:
    """Returns whether configs name corpora of indexes that they search, which can be compared with them."""
    return bool(_known_corpora(configs))


def ready_indexes(configs: Sequence[Config], progress: LiveDisplay) -> None:
    """Builds the local indexes that are missing, of the corpora that configs of a job name, and checks the others.

    Raises:
        RetrieverError: An index is of another corpus than the config names, or cannot be built; one that is not local is not
            there, or its server is away.
    """
    found = _known_corpora(configs)
    check_indexes(found)
    corpora = [_IndexedCorpus(one, progress) for one in found]
    for one in corpora:  # refuse before anything is built
        one.missing()
        one.check_noted()
    for one in corpora:
        one.ready(configs[0])


def _known_corpora(configs: Sequence[Config]) -> list[NamedCorpus]:
    """Returns the corpora of local indexes, and of those that keep notes, with the retrievers of these alone."""
    found = []
    for one in configured_corpora(configs):
        known = {
            name: retriever
            for name, retriever in one.retrievers.items()
            if _is_local(retriever) or hasattr(builder_of(retriever), "noted_corpus")
        }
        found += [one._replace(retrievers=known)] if known else []
    return found


def _is_local(settings: RetrieverSettings) -> bool:
    return settings.folder is not None


class _IndexedCorpus:
    """A corpus, whose rows are read once, and the indexes that are to be of it."""

    def __init__(self, corpus: NamedCorpus, progress: LiveDisplay) -> None:
        self._corpus, self._progress = corpus, progress
        self._shown = corpus.shown_paths
        self._local = {name: one for name, one in corpus.retrievers.items() if _is_local(one)}
        self._source = source_of(corpus)
        self._content: Content | None = None
        self._checked: set[str] = set()

    def ready(self, config: Config) -> None:
        """Builds what is missing, and checks what is there, also what others have built meanwhile."""
        while missing := self.missing():
            folders = local_indexes(missing)
            for folder in folders:
                words = f"index {folder}: there is none yet; it is built from {self._shown} ({self._corpus.key})"
                event("index", words, index=folder, corpus=self._corpus.paths)
            try:
                built = built_of(config, self._corpus._replace(retrievers=missing), self._progress, replace=False)
            except RetrieverError as error:
                if error.code != "index-busy":
                    raise
                self._wait(list(folders))
                continue
            for one in built:
                event("index", f"index {one['index']}: {one['documents']:,} documents, {one['done']}", **one)
            self._checked |= folders.keys()

    def missing(self) -> dict[str, RetrieverSettings]:
        """Returns the retrievers of indexes that are not there; checks the other indexes."""
        found = {}
        for name, one in self._local.items():
            for folder in local_indexes({name: one}):
                entry = index_entry(folder)
                if entry is None:
                    found[name] = one
                elif folder not in self._checked:
                    known = CorpusNote(entry["corpus"], entry["documents"], noted_source(folder, entry["corpus"]))
                    self._check(f"index {folder}", known, partial(note_source, folder))
                    self._checked.add(folder)
        return found

    def check_noted(self) -> None:
        """Checks the indexes that keep notes; says of one without a note that its corpus is not known."""
        for name, one in self._corpus.retrievers.items():
            if name in self._local:
                continue
            (build,) = index_builds({name: one}).builds
            if build.place in self._checked:
                continue
            self._checked.add(build.place)
            builder, where = builder_of(one), f"retrieve.retrievers.{name}: index {build.place}"
            with own_errors(type(one), "noted_corpus failed", RetrieverError, f"retrieve.retrievers.{name}"):
                known = builder.noted_corpus(name, one)
            if known is None:
                of = f"{self._shown} ({self._corpus.key})"
                words = f"{where}: was not built by dmqr index, so whether it is of {of} is not known"
                event("warning", words, logging.WARNING)
            else:
                self._check(where, known, partial(builder.note_source, name, one))

    def _check(self, index: str, known: CorpusNote, note: Callable[[str], object]) -> None:
        """Checks that an index, by what it knows of its corpus, is of this one; then notes the files there."""
        corpus = self._corpus
        if self._source is None:
            words = f"{corpus.key}: {self._shown} is not here, so whether {index} is of it is not known"
            event("warning", words, logging.WARNING)
            return
        if known.source == self._source:
            return
        content = self._content = self._content or self._read()
        if content.hash != known.content:
            raise RetrieverError(
                "index-other",
                f"{index}: was built from another corpus ({known.documents:,} documents) than {self._shown} "
                f"({content.documents:,}; {corpus.key}); build it anew with: dmqr index CONFIG, or name another index",
            )
        note(self._source)

    def _read(self) -> Content:
        """Returns what the rows of the corpus are, as an index would have them."""
        corpus = self._corpus
        show = shown_progress(self._progress, f"comparing the corpus {self._shown} with its index")
        with work_folder() as folder:
            files = corpus_files(passages(corpus.paths, corpus.columns, folder, show).sources)
            return content_of(files, corpus_schema(files, corpus.columns), show, corpus.columns)

    def _wait(self, folders: Sequence[str]) -> None:
        """Waits while another process builds one of the indexes."""
        for folder in folders:
            while index_entry(folder) is None and _is_being_built(folder):
                self._progress.phase(f"index {folder}: another process builds it; waiting")
                time.sleep(WAIT_SECONDS)


def _is_being_built(folder: str) -> bool:
    if not remote(folder):
        return is_being_built(index_path(folder))
    last = holder(S3Storage(folder), time.time())
    return last is not None and last.alive
