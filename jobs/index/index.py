"""The verb `index`: builds the indexes of the config's retrievers in a folder, on S3 or in Elasticsearch.

A local index on S3 is built in a local folder, then uploaded file by file, `index.json` last. A lease excludes concurrent
builders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, HeldError, RetrieverError
from cluster.run.lease import Lease
from cluster.storage import PROBE, check_writable, remote
from cluster.storage.copies import work_folder
from cluster.storage.s3 import S3Storage
from jobs.config.config import Config
from jobs.index.actors import load_on_actors, uses_actors
from jobs.index.compare import (
    NamedCorpus,
    check_indexes,
    configured_corpora,
    job_configs,
    named_corpus,
    note_source,
    planned_builds,
    shown_progress,
    source_of,
)
from jobs.index.sources import passages
from jobs.job.opening import stored_index
from jobs.terminal.live_display import LiveDisplay
from retrievers.corpora.builds import BuildInputs, Built, IndexBuild, index_builds
from retrievers.corpora.files import Progress
from retrievers.kinds import all_indexed
from retrievers.local.build import Elsewhere, FolderBuild
from retrievers.local.index import INDEX, SOURCE_NOTE

_OURS = ("data-", "lease/", INDEX, SOURCE_NOTE, PROBE)


def build_on_s3(index: FolderBuild, given: BuildInputs) -> Built:
    """Builds a local index into its folder on S3; refuses one with other files, or that another process builds."""
    url, show = index.folder, given.progress
    storage = S3Storage(url)
    try:
        old = stored_index(storage)[0] if storage.stat(INDEX) is not None else None
    except RetrieverError:  # a damaged index is replaced
        old = None
    if old is None and (other := next((one.key for one in storage.list() if not one.key.startswith(_OURS)), None)):
        words = f"is not empty and not an index (it has {other}); give another folder"
        raise RetrieverError("storage-refused", f"index {url}: {words}")
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
            built = _built(work, url, partial(index.build_in, work, given, existing))
            if built.built:
                # the data of the previous index stays until the next build, since it may be being copied
                kept = _put(storage, work, lease, show) | ({str(old["data"])} if old else set())
                if not lease.lost():
                    storage.delete(*(key for key in before if key.partition("/")[0] not in kept))
            return built
    finally:
        lease.release()


def _built(work: Path, url: str, build: Callable[[], Built]) -> Built:
    """Runs `build`; its errors name the index instead of the local folder, except errors of the local disk."""
    try:
        return build()
    except RetrieverError as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise type(error)(error.code, error.line.replace(str(work), url)) from error


def _busy(storage: S3Storage) -> RetrieverError:
    return RetrieverError("run-held", f"index {storage.root}: another process has begun to build it meanwhile; wait for it")


def _fetch(storage: S3Storage, data: str, name: str, to: Path) -> None:
    entry = storage.stat(f"{data}/{name}")
    if entry is None:
        raise _busy(storage)
    storage.download(entry, to)


def _put(storage: S3Storage, work: Path, lease: Lease, show: Progress) -> set[str]:
    """Uploads the index and returns the names of its data folders."""
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
    corpora = [named_corpus(config, corpus)] if corpus else configured_corpora(job_configs(config))
    if not corpora:
        words = "is missing, and the config names no corpus (corpus.path); give one, or name it there"
        raise ConfigError("argument", f"--corpus: {words}")
    check_indexes(corpora)
    if dry_run or not replace:
        planned = [row for one in corpora for row in planned_builds(one, progress, dry_run=dry_run)]
        if dry_run:
            return planned
    return [row for one in corpora for row in built_of(config, one, progress)]


def built_of(config: Config, corpus: NamedCorpus, progress: LiveDisplay, *, replace: bool = True) -> list[dict[str, Any]]:
    """Builds the indexes of one corpus, as `index` does; raises with the code `run-held` where another process builds one.

    Unless `replace`, a local one that is there is as one under way.
    """
    indexes, source = index_builds(corpus.retrievers), source_of(corpus)
    with work_folder() as folder:
        prepared = passages(corpus.paths, corpus.columns, folder, shown_progress(progress, f"corpus {corpus.member}".strip()))
        show = shown_progress(progress, "index")
        given = BuildInputs(prepared.sources, corpus.columns, folder, show, replace=replace, source=source)
        built = [_build(config, given, one, progress) for one in indexes.builds]
    for one in indexes.builds:
        if isinstance(one, FolderBuild):
            note_source(one.folder, source)
    nothing = {"documents": 0, "without_text": 0, "replaced": None}
    built += [{"index": name, "done": why} | nothing for name, why in indexes.left.items()]
    notes = "".join(f"; {note}" for note in prepared.notes)
    return [one | {"done": f"{one['done']}{notes}"} for one in built]


def _build(config: Config, given: BuildInputs, one: IndexBuild, progress: LiveDisplay) -> dict[str, Any]:
    """Builds an index from Parquet files."""
    load = partial(load_on_actors, config) if one.encodes and uses_actors(config) else None
    with work_folder() as work:
        given = given._replace(folder=work, progress=shown_progress(progress, one.name), load=load)
        in_bucket = one if isinstance(one, FolderBuild) and remote(one.folder) else None
        summary = one.build(given) if in_bucket is None else build_on_s3(in_bucket, given)
    shown = one.name if summary.concrete is None else f"{one.name} ({summary.concrete})"
    return {"index": shown, "documents": summary.documents} | _done(summary)


def _done(summary: Built) -> dict[str, Any]:
    words = "built" if summary.built else "exists already, nothing to do"
    if summary.replaced is not None:
        words += f", in place of the index of another corpus ({summary.replaced:,} documents)"
    if summary.without_text:
        words += f"; {summary.without_text:,} documents have no text"
    words += "".join(f"; {note}" for note in summary.notes)
    return {"done": words, "without_text": summary.without_text, "replaced": summary.replaced}
