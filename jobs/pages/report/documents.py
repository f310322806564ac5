"""Texts of documents, from the index of a run's first retriever."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.errors import ClusterError, RetrieverError
from jobs.job.opening import open_documents
from jobs.runs.folder import RunFolder
from retrievers.hybrid.settings import indexed_identities
from retrievers.kinds import all_indexed


def texts_of(run: RunFolder, doc_ids: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """Returns doc_id -> text, and the reason if the texts cannot be read: the index is gone or replaced."""
    if not doc_ids:
        return {}, None
    name, retriever = next(iter(all_indexed(run.config.retrieve.retrievers).items()))
    index = indexed_identities(run.record["indexes"]).get(name, {})
    try:
        documents = open_documents(name, retriever.at(index), cached_only=True)
        corpus = index.get("corpus")
        current = getattr(documents, "entry", {}).get("corpus")
        if corpus and current and corpus != current:
            return {}, f"the index of {name} ({retriever.place({})}) holds other documents now than those that were searched"
        texts = documents.texts(doc_ids)
    except (RetrieverError, ClusterError, OSError) as error:
        return {}, " ".join(str(error).split())
    return dict(zip(doc_ids, texts, strict=True)), None
