"""Texts of documents, from the index of a run's first retriever; of collections from the index of the first of each."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.errors import ClusterError, RetrieverError
from jobs.job.indexes import text_indexes
from jobs.job.opening import open_documents
from jobs.runs.folder import RunFolder
from retrievers.corpora.collections import all_documents
from retrievers.hybrid.settings import indexed_identities
from retrievers.retriever import DocumentStore


def texts_of(run: RunFolder, doc_ids: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """Returns doc_id -> text, and the reason if the texts cannot be read: the index is gone or replaced."""
    if not doc_ids:
        return {}, None
    stores: dict[str, DocumentStore] = {}
    try:
        for collection, (name, retriever) in text_indexes(run.config).items():
            index = indexed_identities(run.record["indexes"]).get(name, {})
            documents = stores[collection] = open_documents(name, retriever.at(index), cached_only=True)
            corpus, current = index.get("corpus"), getattr(documents, "entry", {}).get("corpus")
            if corpus and current and corpus != current:
                where = f"the index of {name} ({retriever.place({})})"
                return {}, f"{where} holds other documents now than those that were searched"
        texts = all_documents(stores).texts(doc_ids)
    except (RetrieverError, ClusterError, OSError) as error:
        return {}, " ".join(str(error).split())
    return dict(zip(doc_ids, texts, strict=True)), None
