"""The local indexes of configs that name their corpora: one that is missing is built, one of another corpus is refused.

An index that is there is never replaced: that is `dmqr index`'s alone. Where several jobs want the same index, one builds it
and the others wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.errors import RetrieverError
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
from retrievers.corpora.corpus import Content, content_of
from retrievers.corpora.files import corpus_files, corpus_schema
from retrievers.kinds import RetrieverSettings
from retrievers.local.build_folder import is_being_built
from retrievers.local.fields import local_indexes
from retrievers.local.index import index_path

WAIT_SECONDS = 1.0  # between two looks at whether another process has built an index


def names_corpora(configs: Sequence[Config]) -> bool:
    """Returns whether configs name corpora of local indexes that they search."""
    return bool(_local_corpora(configs))


def ready_indexes(configs: Sequence[Config], progress: LiveDisplay) -> None:
    """Builds the local indexes that are missing, of the corpora that configs of a job name, and checks the others.

    Raises:
        RetrieverError: An index is of another corpus than the config names, or cannot be built.
    """
    found = _local_corpora(configs)
    check_indexes(found, ())
    corpora = [_LocalCorpus(one, progress) for one in found]
    for one in corpora:  # refuse before anything is built
        one.missing()
    for one in corpora:
        one.ready(configs[0])


def _local_corpora(configs: Sequence[Config]) -> list[NamedCorpus]:
    """Returns the corpora of local indexes, with the retrievers of these alone."""
    found = []
    for one in configured_corpora(configs):
        local = {name: retriever for name, retriever in one.retrievers.items() if local_indexes({name: retriever})}
        found += [one._replace(retrievers=local)] if local else []
    return found


class _LocalCorpus:
    """A corpus, whose rows are read once, and the local indexes that are to be of it."""

    def __init__(self, corpus: NamedCorpus, progress: LiveDisplay) -> None:
        self._corpus, self._progress = corpus, progress
        self._shown = corpus.shown_paths
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
        for name, one in self._corpus.retrievers.items():
            for folder in local_indexes({name: one}):
                entry = index_entry(folder)
                if entry is None:
                    found[name] = one
                elif folder not in self._checked:
                    self._check(folder, entry)
                    self._checked.add(folder)
        return found

    def _check(self, folder: str, entry: Mapping[str, Any]) -> None:
        corpus = self._corpus
        if self._source is None:
            words = f"{corpus.key}: {self._shown} is not here, so whether index {folder} is of it is not known"
            event("warning", words, logging.WARNING)
            return
        if noted_source(folder, entry["corpus"]) == self._source:
            return
        content = self._content = self._content or self._read()
        if content.hash != entry["corpus"]:
            raise RetrieverError(
                "index-other",
                f"index {folder}: was built from another corpus ({entry['documents']:,} documents) than {self._shown} "
                f"({content.documents:,}; {corpus.key}); build it anew with: dmqr index CONFIG, or name another index",
            )
        note_source(folder, self._source)

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
