"""The documents whose texts a stage reads, as its workers open them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.errors import RetrieverError
from cluster.run.stage import heartbeat
from jobs.chain.arms.corpora import Corpus
from jobs.chain.arms.opened import OpenedBy
from jobs.chain.arms.shared_work import SharedWork
from jobs.job.opening import open_documents
from retrievers.corpora.collections import all_documents
from retrievers.retriever import DocumentStore

Corpora = tuple[Corpus, ...]
"""Where the documents of an arm are: `Answer.documents`."""


def documents_of(work: SharedWork, answers: Iterable[int]) -> dict[Corpora, DocumentStore]:
    """Returns the documents of answers, which are named by their index; raises as `planned_documents`."""
    read = dict.fromkeys(work.answers[number].documents for number in answers)
    return {corpora: planned_documents(corpora, work.retrievers) for corpora in read}


def texts_and_places(
    documents: Mapping[Corpora, DocumentStore], wanted: Mapping[Corpora, Iterable[str]]
) -> dict[Corpora, dict[str, tuple[str, str]]]:
    """Returns doc_id -> text and place of the wanted documents, each read once, by where they are."""
    found = {}
    for corpora, doc_ids in wanted.items():
        ids = list(dict.fromkeys(doc_ids))
        store = documents[corpora]
        found[corpora] = dict(zip(ids, zip(store.texts(ids, heartbeat), store.places(ids), strict=True), strict=True))
    return found


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
            "run-changed",
            f"retrieve.retrievers.{index.name}: the documents of its index were replaced since this run was planned; "
            "start a new run, or put the old index back",
        )
    return documents
