"""Which files a local index was built from, noted beside it: while they are the same, nobody reads them to compare their rows.

A note counts for the content that it names alone, so that one which a kill left of another index means nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

from cluster.errors import ClusterError, RetrieverError
from cluster.storage import files_at, is_hidden, open_storage, remote
from cluster.storage.s3 import S3Storage
from jobs.index.corpora import NamedCorpus
from jobs.index.sources import corpus_file
from jobs.job.opening import stored_index
from jobs.log.sets import irds
from jobs.log.sets.names import set_name
from retrievers.corpora.files import is_corpus_file
from retrievers.local.index import INDEX, SOURCE_NOTE, index_path, read_index


def index_entry(folder: str) -> dict[str, Any] | None:
    """Returns the content of a local index's index.json, of a folder here or on S3; None: there is no index.

    Raises:
        RetrieverError: It is damaged, or of another format.
    """
    if remote(folder):
        storage = S3Storage(folder)
        return stored_index(storage)[0] if storage.stat(INDEX) is not None else None
    try:
        return read_index(index_path(folder))
    except RetrieverError as error:
        if error.code != "index-missing":
            raise
        return None


def source_of(corpus: NamedCorpus) -> str | None:
    """Returns a hash of the names, sizes and versions of a corpus's files and of its settings; None: a path is not there."""
    columns = corpus.columns.model_dump(exclude={"path"})
    found: list[Any] = [columns]
    for path in corpus.paths:
        files = sorted(_versions(path))
        if not files:
            return None
        found.append(files)
    return f"sha256:{hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32]}"


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
    entry = index_entry(folder)
    if entry is None or source is None:
        return
    with contextlib.suppress(OSError, ClusterError):
        _storage(folder).put(SOURCE_NOTE, json.dumps({"corpus": entry["corpus"], "source": source}).encode())


def noted_source(folder: str, content: str) -> str | None:
    """Returns the `source_of` that an index with this content was built from; None: it is not known."""
    try:
        note = json.loads(_storage(folder).get(SOURCE_NOTE) or b"{}")
    except ValueError:
        return None
    return note.get("source") if note.get("corpus") == content else None


def _storage(folder: str) -> Any:
    return open_storage(folder if remote(folder) else str(index_path(folder)))
