"""Opening of retrievers whose indexes are local or on S3; an index on S3 is copied once to each machine that searches it.

Checks before a run read only `index.json` and file sizes.
"""

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
from retrievers.kinds import RetrieverSettings
from retrievers.local.index import INDEX, MISSING, find_damage, index_identity, parse_index
from retrievers.local.settings import LocalSettings
from retrievers.retriever import BUILD, DocumentStore, Retriever


def open_retriever(
    name: str, settings: RetrieverSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """Opens a retriever like `retrievers.retriever.open_retriever`, with a local copy of an index on S3."""
    with ExitStack() as names:
        copied_here = settings.with_indexed(name, lambda _, one: _with_copy(one, names))
        return retriever.open_retriever(name, copied_here, device=device, expect_identity=expect_identity)


def open_documents(
    name: str, settings: RetrieverSettings, *, cached_only: bool = False, patient: bool = False
) -> DocumentStore:
    """Opens the documents of an index like `retrievers.retriever.open_documents`, with a local copy of an index on S3.

    With `cached_only` an index on S3 that has no local copy yet raises RetrieverError; with `patient` an unavailable server is
    waited for, as a worker does.
    """
    read: set[str] = set()  # of a hybrid the documents of the first index alone

    def with_copy(key: str, settings_of: RetrieverSettings) -> RetrieverSettings:
        if (member := settings.member(key)) in read:
            return settings_of
        read.add(member)
        return _with_copy(settings_of, names, cached_only=cached_only)

    with ExitStack() as names:
        return retriever.open_documents(name, settings.with_indexed(name, with_copy), patient=patient)


def is_replaced(documents: DocumentStore, corpus: Any) -> bool:
    """Returns True if documents are others than those of a corpus, by its identity; False where that is not known."""
    current = getattr(documents, "entry", {}).get("corpus")
    if isinstance(current, dict) and isinstance(corpus, dict):
        pairs = [(current.get(name), known) for name, known in corpus.items()]
    else:
        pairs = [(current, corpus)]
    return any(now and known and now != known for now, known in pairs)


def retriever_identity(name: str, settings: RetrieverSettings) -> dict[str, Any]:
    """Returns `retrievers.retriever.retriever_identity` of a retriever of one index, which is not copied if it is on S3."""
    if _on_s3(settings):
        return index_identity(name, settings, stored_index(S3Storage(settings.index))[0])
    return retriever.retriever_identity(name, settings)


def retriever_facts(name: str, settings: RetrieverSettings, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `retrievers.retriever.retriever_facts` of a retriever of one index, which is not copied if it is on S3."""
    if _on_s3(settings):
        return {"documents": stored_index(S3Storage(settings.index))[0]["documents"]}
    return retriever.retriever_facts(name, settings, identity)


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


def _with_copy(settings: RetrieverSettings, names: ExitStack, *, cached_only: bool = False) -> RetrieverSettings:
    """Returns the settings with a local copy of an index on S3; until `names` are closed errors name its URL."""
    if not _on_s3(settings):
        return settings
    storage = S3Storage(settings.index)

    def copy() -> Path | None:
        entry, data = stored_index(storage)
        version = f"{entry['data']} {hashlib.sha256(data).hexdigest()}"
        files = list(storage.list(str(entry["data"])))
        return copied(storage, files, version, {INDEX: data}, there_only=cached_only, on_progress=heartbeat)

    try:
        folder = retry_if_replaced(copy)
    except FileNotFoundError as gone:
        raise RetrieverError("run-held", f"index {storage.root}: keeps being replaced; wait for the end of its build") from gone
    if folder is None:
        raise RetrieverError(
            "index-missing", f"index {storage.root}: is not on this machine, so its texts are not shown; run a job here"
        )
    names.enter_context(naming(settings.index, folder))
    return settings.model_copy(update={"index": str(folder)})
