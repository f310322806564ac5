"""The indexes of configs that name their corpora: a local one that is missing is built, one of another corpus is refused.

An index that is there is never replaced: that is `dmqr index`'s alone. Where several jobs want the same index, one builds it
and the others wait. One that is not in a folder, as in Elasticsearch, is compared by the note that its build has left in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from cluster.errors import RetrieverError
from cluster.run.lease import holder
from cluster.storage import remote
from cluster.storage.s3 import S3Storage
from jobs.config.config import Config
from jobs.index.compare import (
    ComparedCorpus,
    NamedCorpus,
    check_indexes,
    configured_corpora,
    index_entry,
    keeps_note,
    known_index,
)
from jobs.index.index import built_of
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.logs import event
from retrievers.corpora.builds import index_builds
from retrievers.kinds import RetrieverSettings
from retrievers.local.build import is_being_built, local_indexes
from retrievers.local.index import index_path

WAIT_SECONDS = 1.0  # between two looks at whether another process has built an index


def ready_indexes(configs: Sequence[Config], progress: LiveDisplay) -> None:
    """Builds the local indexes that are missing, of the corpora that configs of a job name, and checks the others.

    Raises:
        RetrieverError: An index is of another corpus than the config names, or cannot be built; one that is not local is not
            there, or its server is away.
    """
    found = known_corpora(configs)
    check_indexes(found)
    corpora = [_IndexedCorpus(one, progress) for one in found]
    for corpus in corpora:  # refuse before anything is built
        corpus.missing()
    for corpus in corpora:
        corpus.build(configs[0])


def known_corpora(configs: Sequence[Config]) -> list[NamedCorpus]:
    """Returns the corpora of local indexes, and of those that keep notes, with the retrievers of these alone."""
    corpora = []
    for corpus in configured_corpora(configs):
        retrievers = {name: retriever for name, retriever in corpus.retrievers.items() if keeps_note(retriever)}
        corpora += [corpus._replace(retrievers=retrievers)] if retrievers else []
    return corpora


class _IndexedCorpus:
    """A corpus, whose rows are read once, and the indexes that are to be of it."""

    def __init__(self, corpus: NamedCorpus, progress: LiveDisplay) -> None:
        self._corpus, self._progress = corpus, progress
        self._compared = ComparedCorpus(corpus, progress)
        self._checked: set[str] = set()  # places of indexes

    def build(self, config: Config) -> None:
        """Builds what is missing, and checks what is there, also what others have built meanwhile."""
        while missing := self.missing():
            folders = local_indexes(missing)
            for folder in folders:
                words = f"index {folder}: there is none yet; it is built from {self._corpus.shown}"
                event("index", words, index=folder, corpus=self._corpus.paths)
            try:
                built = built_of(config, self._corpus._replace(retrievers=missing), self._progress, replace=False)
            except RetrieverError as error:
                if error.code != "run-held":
                    raise
                self._wait(folders)
                continue
            for row in built:
                event("index", f"index {row['index']}: {row['documents']:,} documents, {row['done']}", **row)
            self._checked |= folders.keys()

    def missing(self) -> dict[str, RetrieverSettings]:
        """Returns the retrievers of indexes that are not there; checks the other indexes."""
        missing = {}
        for name, settings in self._corpus.retrievers.items():
            (build,) = index_builds({name: settings}).builds
            if build.place in self._checked:
                continue
            if (known := known_index(name, settings)) is None:
                missing[name] = settings
                continue
            self._checked.add(build.place)
            if known.note is None:
                words = f"was not built by dmqr index, so whether it is of {self._corpus.shown} is not known"
                event("warning", f"{known.shown}: {words}", logging.WARNING)
            elif (source := self._compared.check(known.shown, known.note)) is not None:
                known.put_source(source)
        return missing

    def _wait(self, folders: Iterable[str]) -> None:
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
