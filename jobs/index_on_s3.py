"""A local index on S3: built in a folder of this machine and put there file by file, `index.json` last.

A lease keeps two builders apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cluster.copies import work_folder
from cluster.lease import HeldError, Lease
from cluster.s3 import S3Storage
from cluster.storage import PROBE, check_writable
from jobs.indexes import stored_index
from retrievers.corpus import Source
from retrievers.local import INDEX
from retrievers.local_build import Elsewhere, IndexSummary, build_local_index
from retrievers.retriever import RetrieverError

_OURS = ("data-", "lease/", INDEX, PROBE)

Show = Callable[[str, int, int], None]


def build_on_s3(url: str, sources: Sequence[str | Source], fields: dict[str, Any], show: Show) -> IndexSummary:
    """`retrievers.local_build.build_local_index` into a folder on S3.

    Raises:
        RetrieverError: as there; the folder holds something else; another process is building it.
    """
    storage = S3Storage(url)
    try:
        old = stored_index(storage)[0] if storage.stat(INDEX) is not None else None
    except RetrieverError:  # damaged: it is about to be replaced
        old = None
    if old is None and (other := next((one.key for one in storage.list() if not one.key.startswith(_OURS)), None)):
        raise RetrieverError(f"index {url}: is not empty and not an index (it has {other}); give another folder")
    check_writable(storage, f"index {url}")
    try:
        lease = Lease.acquire(storage)
    except HeldError as error:
        raise RetrieverError(f"index {url}: is being built by another process ({error})") from error
    before = [entry.key for entry in storage.list() if entry.key.startswith("data-")]
    there = None if old is None else Elsewhere(old, partial(_fetch, storage, str(old["data"])))
    try:
        with work_folder() as folder:
            work = folder / "index"
            built = _built(work, url, lambda: build_local_index(work, sources, **fields, progress=show, elsewhere=there))
            if built.built:
                # the data of the index before stays until the next build: copies of it may be under way
                kept = _put(storage, work, lease, show) | ({str(old["data"])} if old else set())
                if not lease.lost():
                    storage.delete(*(key for key in before if key.partition("/")[0] not in kept))
            return built
    finally:
        lease.release()


def _built(work: Path, url: str, build: Callable[[], IndexSummary]) -> IndexSummary:
    """What is refused of the folder here is said of the index; but for this machine's disk."""
    try:
        return build()
    except RetrieverError as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise type(error)(str(error).replace(str(work), url)) from error


def _fetch(storage: S3Storage, data: str, name: str, to: Path) -> None:
    entry = storage.stat(f"{data}/{name}")
    if entry is None:
        raise RetrieverError(f"index {storage.root}: another process has begun to build it meanwhile; wait for it")
    storage.download(entry, to)


def _put(storage: S3Storage, work: Path, lease: Lease, show: Show) -> set[str]:
    """Put the index there; returns the folders of its data."""
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.relative_to(work).parts[0].startswith("data-"))
    total = sum(path.stat().st_size for path in files)
    done = 0
    for path in files:
        show("put", done, total)
        storage.upload(path, path.relative_to(work).as_posix())
        done += path.stat().st_size
    if lease.lost():
        raise RetrieverError(f"index {storage.root}: another process has begun to build it meanwhile; wait for it")
    storage.put(INDEX, (work / INDEX).read_bytes())
    return {path.relative_to(work).parts[0] for path in files}
