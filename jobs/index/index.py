"""Builds the indexes of a config's retrievers in a folder, on S3 or in Elasticsearch: all of them, or what a job misses.

A local index on S3 is built in a local folder, then uploaded file by file, `index.json` last. A lease excludes concurrent
builders. Of jobs whose configs name their corpora a missing local index is built, and one of another corpus is refused: only
`dmqr index` replaces one. Where several jobs want the same index, one builds it and the others wait. An index that is not in a
folder, as in Elasticsearch, is compared by the note that its build has left in it.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, HeldError, RetrieverError
from cluster.run.lease import Lease, holder
from cluster.storage import PROBE, check_writable, remote
from cluster.storage.copies import work_folder
from cluster.storage.s3 import S3Storage
from jobs.chain.arms.arms import arms_of
from jobs.config.config import Config
from jobs.config.settings import AblateSettings
from jobs.index.actors import load_on_actors, uses_actors
from jobs.index.compare import (
    ComparedCorpus,
    NamedCorpus,
    check_indexes,
    configured_corpora,
    index_entry,
    keeps_note,
    named_corpus,
    note_source,
    planned_builds,
    shown_progress,
    source_of,
)
from jobs.index.sources import passages
from jobs.job.retrievers import stored_index
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.logs import event
from retrievers.corpora.builds import BuildInputs, IndexBuild, index_builds
from retrievers.corpora.corpus import Built
from retrievers.corpora.files import Progress
from retrievers.kinds import all_indexed
from retrievers.local.build import Elsewhere, is_being_built, local_indexes
from retrievers.local.index import INDEX, SOURCE_NOTE, index_path

WAIT_SECONDS = 1.0  # between two looks at whether another process has built an index
_OURS = ("data-", "lease/", INDEX, SOURCE_NOTE, PROBE)


def build_on_s3(index: IndexBuild, given: BuildInputs) -> Built:
    """Builds a local index into its folder on S3; refuses one with other files, or that another process builds."""
    url, show = str(index.folder), given.progress
    storage = S3Storage(url)
    old = None
    with suppress(RetrieverError):  # there is none, or a damaged one, which is replaced
        old, _ = stored_index(storage)
    if old is None and (other := next((one.key for one in storage.list() if not one.key.startswith(_OURS)), None)):
        problem = f"is not empty and not an index (it has {other}); give another folder"
        raise RetrieverError("storage-refused", f"index {url}: {problem}")
    check_writable(storage, f"index {url}")
    try:
        lease = Lease.acquire(storage)
    except HeldError as error:
        raise RetrieverError("run-held", f"index {url}: is being built by another process ({error})") from error
    before = [entry.key for entry in storage.list() if entry.key.startswith("data-")]
    existing = None if old is None else Elsewhere(old, partial(_fetch, storage, str(old["data"])))
    try:
        if not given.replace and storage.stat(INDEX) is not None:
            raise _busy(storage)
        with work_folder() as folder:
            work = folder / "index"
            try:
                built = index.build(given, work, existing)
            except RetrieverError as error:  # names the index in place of the folder, where it is none of the local disk
                if isinstance(error.__cause__, OSError):
                    raise
                raise type(error)(error.code, error.line.replace(str(work), url)) from error
            if built.built:
                # the data of the previous index stays until the next build, since it may be being copied
                kept = _put(storage, work, lease, show) | ({str(old["data"])} if old else set())
                if not lease.lost():
                    storage.delete(*(key for key in before if key.partition("/")[0] not in kept))
            return built
    finally:
        lease.release()


def _busy(storage: S3Storage) -> RetrieverError:
    return RetrieverError("run-held", f"index {storage.root}: another process has begun to build it meanwhile; wait for it")


def _fetch(storage: S3Storage, data: str, name: str, to: Path) -> None:
    entry = storage.stat(f"{data}/{name}")
    if entry is None:
        raise _busy(storage)
    storage.download(entry, to)


def _put(storage: S3Storage, work: Path, lease: Lease, show: Progress) -> set[str]:
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.relative_to(work).parts[0].startswith("data-"))
    done, total = 0, sum(path.stat().st_size for path in files)
    for path in files:
        show("put", done, total)
        storage.upload(path, path.relative_to(work).as_posix())
        done += path.stat().st_size
    if lease.lost():
        raise _busy(storage)
    storage.put(INDEX, (work / INDEX).read_bytes())
    return {path.relative_to(work).parts[0] for path in files}


def index(
    config: Config, corpus: Sequence[str], progress: LiveDisplay, *, replace: bool = False, dry_run: bool = False
) -> list[dict[str, Any]]:
    """Builds every index of the config, unless it exists with the same corpus and settings.

    `corpus` has paths and URLs as `passages` reads them; without any they are those that the config and its arms name, for the
    indexes of them all. With `replace` an index of another corpus is replaced; with `dry_run` nothing is built, and `done` says
    what would be done. A row has `index` (its place), `documents` (their number), `without_text` (those whose text is null or
    blank), `replaced` (documents of the index of another corpus in whose place it is; None: of none) and `done` (in words).

    Raises:
        RetrieverError: the corpus cannot be read, or an index cannot be built, or is of another corpus.
        ConfigError: no corpus is named, or one is for a union.
    """
    every = all_indexed(config.retrieve.retrievers)
    if not every:  # of the web alone
        return []
    index_builds(every)  # refuses contradictions before any work
    arms = [] if corpus or config.ablate == AblateSettings() else [arm.config for arm in arms_of(config)]
    corpora = [named_corpus(config, corpus)] if corpus else configured_corpora([config, *arms])
    if not corpora:
        problem = "is missing, and the config names no corpus (corpus.path); give one, or name it there"
        raise ConfigError("argument", f"--corpus: {problem}")
    check_indexes(corpora)
    if dry_run or not replace:
        planned = [row for one in corpora for row in planned_builds(one, progress, dry_run=dry_run)]
        if dry_run:
            return planned
    return [row for one in corpora for row in built_of(config, one, progress)]


def built_of(config: Config, corpus: NamedCorpus, progress: LiveDisplay, *, replace: bool = True) -> list[dict[str, Any]]:
    """Builds the indexes of one corpus, as `index` does; raises with the code `run-held` where another process builds one.

    Unless `replace`, an existing local index counts as one that is being built.
    """
    indexes, source = index_builds(corpus.retrievers), source_of(corpus)
    show = shown_progress(progress, f"corpus {corpus.member}".strip())
    with work_folder() as folder:
        sources, notes = passages(corpus.paths, corpus.columns, folder, show)
        given = BuildInputs(sources, corpus.columns, replace=replace, source=source)
        built = [_build(config, given, one, progress) for one in indexes.builds]
    for build in indexes.builds:
        if build.folder is not None:
            note_source(build.folder, source)
    nothing = {"documents": 0, "without_text": 0, "replaced": None}
    built += [{"index": name, "done": why} | nothing for name, why in indexes.left.items()]
    noted = "".join(f"; {note}" for note in notes)
    return [one | {"done": f"{one['done']}{noted}"} for one in built]


def _build(config: Config, given: BuildInputs, build: IndexBuild, progress: LiveDisplay) -> dict[str, Any]:
    load = partial(load_on_actors, config) if build.encodes and uses_actors(config) else None
    with work_folder() as work:
        given = given._replace(folder=work, progress=shown_progress(progress, build.name), load=load)
        summary = build_on_s3(build, given) if remote(build.folder or "") else build.build(given)
    shown = build.name if summary.concrete is None else f"{build.name} ({summary.concrete})"
    counts = {"documents": summary.documents, "without_text": summary.without_text, "replaced": summary.replaced}
    return {"index": shown, "done": outcome(summary)} | counts


def outcome(summary: Built) -> str:
    """Returns the outcome of a build in words, with its notes."""
    state = "built" if summary.built else "exists already, nothing to do"
    if summary.replaced is not None:
        state += f", in place of the index of another corpus ({summary.replaced:,} documents)"
    if summary.without_text:
        state += f"; {summary.without_text:,} documents have no text"
    return state + "".join(f"; {note}" for note in summary.notes)


def ready_indexes(configs: Sequence[Config], progress: LiveDisplay) -> None:
    """Builds the local indexes that are missing, of the corpora that configs of a job name, and checks the others.

    Raises:
        RetrieverError: An index is of another corpus than the config names, or cannot be built; one that is not local is not
            there, or its server is away.
    """
    named = known_corpora(configs)
    check_indexes(named)
    corpora = [ComparedCorpus(corpus, progress) for corpus in named]
    for corpus in corpora:  # refuse before anything is built
        corpus.missing()
    for corpus in corpora:
        _build_missing(configs[0], corpus)


def known_corpora(configs: Sequence[Config]) -> list[NamedCorpus]:
    """Returns the corpora of local indexes, and of those that keep notes, with the retrievers of these alone."""
    corpora = []
    for corpus in configured_corpora(configs):
        retrievers = {name: retriever for name, retriever in corpus.retrievers.items() if keeps_note(retriever)}
        corpora += [corpus._replace(retrievers=retrievers)] if retrievers else []
    return corpora


def _build_missing(config: Config, compared: ComparedCorpus) -> None:
    """Builds the indexes of a corpus that are missing, and checks those that are there, also what others build meanwhile."""
    corpus = compared.corpus
    while missing := compared.missing():
        folders = local_indexes(missing)
        for folder in folders:
            message = f"index {folder}: there is none yet; it is built from {corpus.shown}"
            event("index", message, index=folder, corpus=corpus.paths)
        try:
            built = built_of(config, corpus._replace(retrievers=missing), compared.progress, replace=False)
        except RetrieverError as error:
            if error.code != "run-held":
                raise
            for folder in folders:
                while index_entry(folder) is None and _is_being_built(folder):
                    compared.progress.phase(f"index {folder}: another process builds it; waiting")
                    time.sleep(WAIT_SECONDS)
            continue
        for row in built:
            event("index", f"index {row['index']}: {row['documents']:,} documents, {row['done']}", **row)
        compared.checked |= folders.keys()


def _is_being_built(folder: str) -> bool:
    if not remote(folder):
        return is_being_built(index_path(folder))
    last = holder(S3Storage(folder), time.time())
    return last is not None and last.alive
