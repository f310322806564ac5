"""Opening of retrievers whose indexes are local or on S3; an index on S3 is copied once to each machine that searches it.

Checks before a run read only `index.json` and file sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeGuard

from cluster.errors import RetrieverError
from cluster.run.stage import heartbeat
from cluster.storage import remote
from cluster.storage.copies import TRIES, copied, naming, retry_if_replaced
from cluster.storage.s3 import S3Storage
from retrievers import retriever
from retrievers.hybrid.settings import indexed_identities
from retrievers.kinds import RetrieverSettings
from retrievers.local.index import BUILD, INDEX, MISSING, find_damage, index_facts, index_identity, parse_index
from retrievers.local.settings import LocalSettings
from retrievers.retriever import DocumentStore, Retriever
from retrievers.union.documents import all_documents


def open_retriever(
    name: str, settings: RetrieverSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """Opens a retriever like `retrievers.retriever.open_retriever`, with a local copy of an index on S3."""
    with ExitStack() as names:

        def with_copy(_: str, one: RetrieverSettings) -> RetrieverSettings:
            if not _on_s3(one):
                return one
            folder = _local_copy(one.index)
            names.enter_context(naming(one.index, folder))
            return one.model_copy(update={"index": str(folder)})

        copied_here = settings.with_indexed(name, with_copy)
        return retriever.open_retriever(name, copied_here, device=device, expect_identity=expect_identity)


def open_documents(
    name: str, settings: RetrieverSettings, *, cached_only: bool = False, patient: bool = False
) -> DocumentStore:
    """Opens the documents of an index like `retrievers.retriever.open_documents`, with a local copy of an index on S3.

    With `cached_only` an index on S3 that has no local copy yet raises RetrieverError; with `patient` an unavailable server is
    waited for, as a worker does.
    """
    stores: dict[str, DocumentStore] = {}
    for key, index in (settings.indexed(name) or {name: settings}).items():
        if (member := settings.member(key)) in stores:
            continue
        if _on_s3(index):
            folder = _local_copy(index.index, cached_only=cached_only)
            with naming(index.index, folder):
                stores[member] = retriever.open_documents(key, index.model_copy(update={"index": str(folder)}))
        else:
            stores[member] = retriever.open_documents(key, index, patient=patient)
    return all_documents(stores)


def is_replaced(documents: DocumentStore, corpus: Any) -> bool:
    """Returns whether documents are others than those of a corpus, by its identity; False where that is not known."""
    current = getattr(documents, "entry", {}).get("corpus")
    if isinstance(current, dict) and isinstance(corpus, dict):
        pairs = [(current.get(name), known) for name, known in corpus.items()]
    else:
        pairs = [(current, corpus)]
    return any(now and known and now != known for now, known in pairs)


def retriever_identity(name: str, settings: RetrieverSettings) -> dict[str, Any]:
    """Returns `retrievers.retriever.retriever_identity`, of an index on S3 without copying it."""
    if not settings.indexed(name):
        return retriever.retriever_identity(name, settings)
    found = {
        key: index_identity(key, one, stored_index(S3Storage(one.index))[0])
        if _on_s3(one)
        else retriever.retriever_identity(key, one)
        for key, one in settings.indexed(name).items()
    }
    return settings.identity_of(name, found)


def retriever_facts(name: str, settings: RetrieverSettings, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `retrievers.retriever.retriever_facts`, of an index on S3 without copying it."""
    identities = indexed_identities({name: identity})
    found = {
        key: index_facts(stored_index(S3Storage(one.index))[0])
        if _on_s3(one)
        else retriever.retriever_facts(key, one, identities[key])
        for key, one in settings.indexed(name).items()
    }
    return settings.facts_of(name, identities, found)


def stored_index(storage: S3Storage) -> tuple[dict[str, Any], bytes]:
    """Returns the values of an index.json on S3 and its bytes, after checking that no file is missing or cut.

    Raises:
        RetrieverError: there is no index, or it is damaged.
    """
    wrong: str | None = None
    for _ in range(TRIES):
        data = storage.get(INDEX)
        if data is None:
            raise RetrieverError("index-missing", f"index {storage.root}: there is no index; {MISSING}")
        entry = parse_index(storage.root, data)
        sizes = {one.key.partition("/")[2]: one.size for one in storage.list(str(entry["data"]))}
        wrong = find_damage(entry, sizes.get)
        if wrong is None:
            return entry, data
    raise RetrieverError("index-other", f"index {storage.root}: is damaged: {wrong}; build it again: {BUILD}")


def _on_s3(settings: RetrieverSettings) -> TypeGuard[LocalSettings]:
    return settings.folder is not None and remote(settings.folder)


def _local_copy(index: str, *, cached_only: bool = False) -> Path:
    storage = S3Storage(index)

    def copy() -> Path | None:
        entry, data = stored_index(storage)
        version = f"{entry['data']} {hashlib.sha256(data).hexdigest()}"
        files = list(storage.list(str(entry["data"])))
        return copied(storage, files, version, {INDEX: data}, there_only=cached_only, on_progress=heartbeat)

    try:
        folder = retry_if_replaced(copy)
    except FileNotFoundError as gone:
        raise RetrieverError("run-held", f"index {storage.root}: is replaced again and again; wait until it is built") from gone
    if folder is None:
        raise RetrieverError(
            "index-missing", f"index {storage.root}: is not on this machine, so its texts are not shown; run a job here"
        )
    return folder
