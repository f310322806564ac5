"""The documents whose texts a stage reads, as its workers open them."""

from collections.abc import Iterable, Mapping

from cluster.errors import RetrieverError
from cluster.run.stage import heartbeat
from jobs.chain.arms.resources import OpenedBy
from jobs.chain.stages.candidates import Candidates, page_text
from jobs.job.corpora import corpus_of
from jobs.job.retrievers import is_replaced, open_documents
from retrievers.retriever import DocumentStore


def document_texts(
    block: Candidates, documents: Mapping[str, DocumentStore], wanted: Mapping[str, Iterable[int]], *, places: bool = True
) -> dict[str, dict[int, tuple[str, str]]]:
    """Returns text and place of the wanted documents of a block, each read once, by `Answer.documents` and their indexes.

    A page of the web has its own text, and its address as its place. Without `places` those of other documents are "", and an
    index at a server is asked once less.
    """
    read, doc_ids = {}, block.doc_ids.to_pylist()
    for key, indexes in wanted.items():
        pages = {at: block.pages[page] for at in indexes if (page := block.document_page[at]) >= 0}
        indexed = {at: doc_ids[at] for at in indexes if at not in pages}
        ids, store = list(dict.fromkeys(indexed.values())), documents[key]
        where = store.places(ids) if places else [""] * len(ids)
        known = dict(zip(ids, zip(store.texts(ids, heartbeat), where, strict=True), strict=True))
        read[key] = {at: known[doc_id] for at, doc_id in indexed.items()}
        read[key] |= {at: (page_text(hit), hit.url or "") for at, hit in pages.items()}
    return read


def planned_documents(opened: OpenedBy) -> DocumentStore:
    """Returns the documents of a retriever.

    Raises:
        RetrieverError: An index is missing, or its documents were replaced since the job was planned.
    """
    documents = open_documents(opened.name, opened.settings, patient=True)
    if is_replaced(documents, corpus_of(opened.searched)):
        raise RetrieverError(
            "run-changed",
            f"retrieve.retrievers.{opened.name}: the documents of its index were replaced since this run was planned; "
            "start a new run, or restore the old index",
        )
    return documents
