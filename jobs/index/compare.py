"""Compares indexes with the corpus of the config, by the notes that their builds left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from cluster.errors import RetrieverError
from cluster.plugins import own_errors
from cluster.storage.copies import work_folder
from jobs.index.corpora import NamedCorpus
from jobs.index.source_notes import index_entry, note_source, noted_source, source_of
from jobs.index.sources import passages
from jobs.job.opening import retriever_identity
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.logs import event
from retrievers.corpora.builds import CorpusNote, builder_of, index_builds
from retrievers.corpora.corpus import Content, content_of
from retrievers.corpora.files import Progress, corpus_files, corpus_schema
from retrievers.kinds import RetrieverSettings

_KEPT, _REMEDY = "exists already, nothing to do", "name another index, or replace it: dmqr index CONFIG --replace"


class OtherCorpus(RetrieverError):
    """An index is of another corpus than the one that it is to be built from."""


class KnownIndex(NamedTuple):
    """An index: its name for messages, its note (None: `dmqr index` did not build it), and a function that notes its files."""

    shown: str
    note: CorpusNote | None
    put_source: Callable[[str], object]


def shown_progress(progress: LiveDisplay, what: str) -> Progress:
    """Returns what shows the phase, the amount done and the total of what is done with something."""
    return lambda phase, done, total: progress.phase(f"{what}: {phase} {done:,}/{total:,}")


def keeps_note(settings: RetrieverSettings) -> bool:
    """Returns whether an index is in a folder, or keeps a note of its corpus elsewhere."""
    return settings.folder is not None or hasattr(builder_of(settings), "noted_corpus")


def known_index(name: str, settings: RetrieverSettings) -> KnownIndex | None:
    """Returns the index of a retriever that `keeps_note`; None: its folder has none. Raises RetrieverError elsewhere."""
    if (folder := settings.folder) is not None:
        if (entry := index_entry(folder)) is None:
            return None
        note = CorpusNote(entry["corpus"], entry["documents"], noted_source(folder, entry["corpus"]))
        return KnownIndex(f"index {folder}", note, partial(note_source, folder))
    (build,), builder = index_builds({name: settings}).builds, builder_of(settings)
    with own_errors(type(settings), "noted_corpus failed", RetrieverError, f"retrieve.retrievers.{name}"):
        noted = builder.noted_corpus(name, settings)
    shown = f"retrieve.retrievers.{name}: index {build.place}"
    return KnownIndex(shown, noted, partial(builder.note_source, name, settings))


class ComparedCorpus:
    """A corpus, whose rows are read once, to be compared with indexes."""

    def __init__(self, corpus: NamedCorpus, progress: LiveDisplay) -> None:
        """Reads names, sizes and versions of the corpus's files."""
        self._corpus, self._progress, self._source = corpus, progress, source_of(corpus)
        self._content: Content | None = None

    def check(self, shown: str, note: CorpusNote) -> str | None:
        """Checks that an index is of this corpus by its note; returns `source_of` the corpus where the note has another.

        Raises:
            OtherCorpus: It is of another one.
        """
        corpus = self._corpus
        if self._source is None:
            words = f"{corpus.key}: {corpus.shown_paths} is not here, so whether {shown} is of it is not known"
            event("warning", words, logging.WARNING)
        elif note.source != self._source:
            content = self._content = self._content or self._read()
            if content.hash != note.content:
                raise OtherCorpus(
                    "index-other",
                    f"{shown}: was built from another corpus ({note.documents:,} documents) than {corpus.shown_paths} "
                    f"({content.documents:,}; {corpus.key}); {_REMEDY}",
                )
            return self._source
        return None

    def _read(self) -> Content:
        """Returns what the rows of the corpus are, as an index would have them."""
        corpus = self._corpus
        show = shown_progress(self._progress, f"comparing the corpus {corpus.shown_paths} with its index")
        with work_folder() as folder:
            files = corpus_files(passages(corpus.paths, corpus.columns, folder, show).sources)
            return content_of(files, corpus_schema(files, corpus.columns), show, corpus.columns)


def planned_builds(corpus: NamedCorpus, progress: LiveDisplay, *, dry_run: bool) -> list[dict[str, Any]]:
    """Returns for each index the documents that are there and what a build would do, as rows of `dmqr index`.

    Raises:
        OtherCorpus: An index is of another or an unknown corpus, or would lose its vectors, and this is no `dry_run`.
        RetrieverError: The corpus cannot be read, or a server is away.
    """
    compared, found = ComparedCorpus(corpus, progress), dict[str, dict[str, Any]]()
    for name, one in corpus.retrievers.items():
        for build in index_builds({name: one}).builds:
            documents, words = 0, "would be built"
            try:
                if keeps_note(one) and (known := known_index(name, one)) is not None:
                    if known.note is None:
                        raise OtherCorpus("index-other", f"{known.shown}: was not built by dmqr index; {_REMEDY}")
                    documents = known.note.documents
                    compared.check(known.shown, known.note)
                    _check_vectors(known.shown, one, corpus)
                    if dry_run:
                        retriever_identity(name, one)
                    words = _KEPT
            except OtherCorpus as error:
                if not dry_run:
                    raise
                words = f"would be replaced: {error.what}"
            except RetrieverError as error:
                if error.code not in ("index-missing", "index-other"):
                    raise
                words = f"would be built: {error.what}"
            if words != _KEPT or build.name not in found:  # retrievers that share an index
                found[build.name] = {"index": build.name, "documents": documents, "done": words}
    return list(found.values())


def _check_vectors(shown: str, settings: RetrieverSettings, corpus: NamedCorpus) -> None:
    """Raises OtherCorpus where a folder has vectors of its corpus, and no retriever of the config searches them."""
    sharing = [one for one in corpus.retrievers.values() if one.folder == settings.folder]
    if settings.folder is None or any(getattr(one, "encoder", None) for one in sharing):
        return
    if (entry := index_entry(settings.folder)) is not None and entry["fields"]["dense"] is not None:
        what = f"{shown}: a build would drop its vectors ({entry['encoder_name']}), as no dense retriever names it"
        raise OtherCorpus("index-other", f"{what}; give one with this index, {_REMEDY}")
