"""The documents whose texts a stage reads, as its workers open them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.errors import RetrieverError
from jobs.chain.arms.corpora import Corpus
from jobs.chain.arms.shared_work import OpenedBy
from jobs.job.opening import open_documents
from retrievers.corpora.collections import all_documents
from retrievers.retriever import DocumentStore


def planned_documents(corpora: Iterable[Corpus], retrievers: Mapping[str, OpenedBy]) -> DocumentStore:
    """Returns the documents of all collections; `retrievers` are those of `SharedWork`.

    Raises:
        RetrieverError: An index is missing, or its documents were replaced since the job was planned.
    """
    return all_documents({one.collection: _opened(retrievers[one.key], one.identity) for one in corpora})


def _opened(index: OpenedBy, identity: str | None) -> DocumentStore:
    documents = open_documents(index.name, index.settings, patient=True)
    found = getattr(documents, "entry", {}).get("corpus")
    if identity is not None and found is not None and found != identity:
        raise RetrieverError(
            "index-replaced",
            f"retrieve.retrievers.{index.name}: the documents of its index were replaced since this run was planned; "
            "start a new run, or put the old index back",
        )
    return documents
