"""A local index on S3: built in a local folder, then uploaded file by file, `index.json` last.

A lease excludes concurrent builders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cluster.errors import HeldError, RetrieverError
from cluster.run.lease import Lease
from cluster.storage import PROBE, check_writable
from cluster.storage.copies import work_folder
from cluster.storage.s3 import S3Storage
from jobs.job.opening import stored_index
from retrievers.corpora.files import COLUMNS, Source
from retrievers.local.build import Elsewhere, IndexSummary, build_local_index
from retrievers.local.fields import IndexFields
from retrievers.local.index import INDEX
from retrievers.settings import CorpusSettings

_OURS = ("data-", "lease/", INDEX, PROBE)

Show = Callable[[str, int, int], None]


def build_on_s3(
    url: str, sources: Sequence[str | Source], fields: IndexFields, show: Show, columns: CorpusSettings = COLUMNS
) -> IndexSummary:
    """Builds a local index into a folder on S3, as `retrievers.local.build.build_local_index` does into a local one.

    `show` is called with the phase, the amount done and the total.

    Raises:
        RetrieverError: as for a local index, or the folder holds other files, or another process is building the index.
    """
    storage = S3Storage(url)
    try:
        old = stored_index(storage)[0] if storage.stat(INDEX) is not None else None
    except RetrieverError:  # a damaged index is replaced
        old = None
    if old is None and (other := next((one.key for one in storage.list() if not one.key.startswith(_OURS)), None)):
        raise RetrieverError("index-place", f"index {url}: is not empty and not an index (it has {other}); give another folder")
    check_writable(storage, f"index {url}")
    try:
        lease = Lease.acquire(storage)
    except HeldError as error:
        raise RetrieverError("index-busy", f"index {url}: is being built by another process ({error})") from error
    before = [entry.key for entry in storage.list() if entry.key.startswith("data-")]
    existing = None if old is None else Elsewhere(old, partial(_fetch, storage, str(old["data"])))
    try:
        with work_folder() as folder:
            work = folder / "index"
            build = partial(build_local_index, work, sources, fields, progress=show, elsewhere=existing, columns=columns)
            built = _built(work, url, build)
            if built.built:
                # the data of the previous index stays until the next build, since it may be being copied
                kept = _put(storage, work, lease, show) | ({str(old["data"])} if old else set())
                if not lease.lost():
                    storage.delete(*(key for key in before if key.partition("/")[0] not in kept))
            return built
    finally:
        lease.release()


def _built(work: Path, url: str, build: Callable[[], IndexSummary]) -> IndexSummary:
    """Runs `build`; its errors name the index instead of the local folder, except errors of the local disk."""
    try:
        return build()
    except RetrieverError as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise type(error)(error.code, error.line.replace(str(work), url)) from error


def _busy(storage: S3Storage) -> RetrieverError:
    return RetrieverError("index-busy", f"index {storage.root}: another process has begun to build it meanwhile; wait for it")


def _fetch(storage: S3Storage, data: str, name: str, to: Path) -> None:
    entry = storage.stat(f"{data}/{name}")
    if entry is None:
        raise _busy(storage)
    storage.download(entry, to)


def _put(storage: S3Storage, work: Path, lease: Lease, show: Show) -> set[str]:
    """Uploads the index and returns the names of its data folders."""
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.relative_to(work).parts[0].startswith("data-"))
    total = sum(path.stat().st_size for path in files)
    done = 0
    for path in files:
        show("put", done, total)
        storage.upload(path, path.relative_to(work).as_posix())
        done += path.stat().st_size
    if lease.lost():
        raise _busy(storage)
    storage.put(INDEX, (work / INDEX).read_bytes())
    return {path.relative_to(work).parts[0] for path in files}
