"""The documents whose texts a stage reads, as its workers open them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.errors import RetrieverError
from cluster.run.stage import heartbeat
from jobs.chain.arms.resources import OpenedBy
from jobs.job.retrievers import is_replaced, open_documents
from retrievers.retriever import DocumentStore


def texts_and_places(
    documents: Mapping[str, DocumentStore], wanted: Mapping[str, Iterable[str]], *, places: bool = True
) -> dict[str, dict[str, tuple[str, str]]]:
    """Returns doc_id -> text and place of the wanted documents, each read once, by `Answer.documents`.

    Without `places` they are "", and an index at a server is asked once less.
    """
    read = {}
    for key, doc_ids in wanted.items():
        ids = list(dict.fromkeys(doc_ids))
        store = documents[key]
        where = store.places(ids) if places else [""] * len(ids)
        read[key] = dict(zip(ids, zip(store.texts(ids, heartbeat), where, strict=True), strict=True))
    return read


def planned_documents(opened: OpenedBy) -> DocumentStore:
    """Returns the documents of a retriever.

    Raises:
        RetrieverError: An index is missing, or its documents were replaced since the job was planned.
    """
    documents = open_documents(opened.name, opened.settings, patient=True)
    if is_replaced(documents, opened.corpus):
        raise RetrieverError(
            "run-changed",
            f"retrieve.retrievers.{opened.name}: the documents of its index were replaced since this run was planned; "
            "start a new run, or restore the old index",
        )
    return documents
