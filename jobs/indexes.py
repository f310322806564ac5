"""The config's retrievers, wherever their indexes lie: an index on S3 is copied once to each machine that searches it.

What is checked before a run reads `index.json` and sizes only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.copies import TRIES, copied, fresh, said_of
from cluster.s3 import S3Storage
from cluster.stage import pulse
from cluster.storage import remote
from retrievers import retriever
from retrievers.local import BUILD, INDEX, damaged, identity_of, local_block, parse_index
from retrievers.retriever import DocumentStore, Retriever, RetrieverError


def open_retriever(
    name: str, settings: Mapping[str, Any], device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """`retrievers.retriever.open_retriever`, of a copy where the index lies on S3."""
    if not _on_s3(settings):
        return retriever.open_retriever(name, settings, device=device, expect_identity=expect_identity)
    here = _copied(name, settings)
    with said_of(str(settings["index"]), here, RetrieverError):
        return retriever.open_retriever(name, {**settings, "index": str(here)}, device=device, expect_identity=expect_identity)


def open_documents(name: str, settings: Mapping[str, Any], *, there_only: bool = False) -> DocumentStore:
    """`retrievers.retriever.open_documents`, of a copy where the index lies on S3.

    there_only: RetrieverError instead of a copy that would have to be made.
    """
    if not _on_s3(settings):
        return retriever.open_documents(name, settings)
    here = _copied(name, settings, there_only=there_only)
    with said_of(str(settings["index"]), here, RetrieverError):
        return retriever.open_documents(name, {**settings, "index": str(here)})


def retriever_identity(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`retrievers.retriever.retriever_identity`; of an index on S3 without a copy of it."""
    if not _on_s3(settings):
        return retriever.retriever_identity(name, settings)
    block = local_block(name, settings)
    return identity_of(name, block, stored_index(S3Storage(str(block["index"])))[0])


def stored_index(storage: S3Storage) -> tuple[dict[str, Any], bytes]:
    """What index.json on S3 says, and its bytes; every file of the index is there and whole.

    Raises:
        RetrieverError: there is no index; not readable; damaged.
    """
    wrong: str | None = None
    for _ in range(TRIES):
        data = storage.get(INDEX)
        if data is None:
            raise RetrieverError(f"index {storage.root}: there is no index; build it with: {BUILD}")
        entry = parse_index(storage.root, data)
        sizes = {one.key.partition("/")[2]: one.size for one in storage.list(str(entry["data"]))}
        wrong = damaged(entry, sizes.get)
        if wrong is None:
            return entry, data
    raise RetrieverError(f"index {storage.root}: is damaged: {wrong}; build it again: {BUILD}")


def _on_s3(settings: Mapping[str, Any]) -> bool:
    return settings.get("kind") == "local" and remote(str(settings.get("index")))


def _copied(name: str, settings: Mapping[str, Any], *, there_only: bool = False) -> Path:
    storage = S3Storage(str(local_block(name, settings)["index"]))

    def copy() -> Path | None:
        entry, data = stored_index(storage)
        version = f"{entry['data']} {hashlib.sha256(data).hexdigest()}"
        files = list(storage.list(str(entry["data"])))
        return copied(storage, files, version, {INDEX: data}, there_only=there_only, tell=pulse)

    try:
        here = fresh(copy)
    except FileNotFoundError as gone:
        raise RetrieverError(f"index {storage.root}: is replaced again and again; wait until it is built") from gone
    if here is None:
        raise RetrieverError(f"index {storage.root}: is not on this machine, so its texts are not shown; run a job here")
    return here
