"""Judged documents that no index of a run has: they cannot be found, and measures that count them say so."""

from typing import NamedTuple

from cluster.errors import ClusterError, RetrieverError
from jobs.job.corpora import searched_indexes
from jobs.job.retrievers import open_documents
from jobs.log.judgements import Judgements
from jobs.runs.folder import RunFolder
from retrievers.hybrid.retriever import all_documents
from retrievers.kinds import all_indexed, indexed_identities
from retrievers.web.hits import is_page

MOST = 10_000  # judged documents that are looked up: 20 requests to Elasticsearch


class UnknownDocuments(NamedTuple):
    """Judged documents that are in no index of a run."""

    unknown: int
    looked_up: int  # of the judged documents, at most `MOST`, evenly drawn
    note: str


def unknown_documents(run: RunFolder, judgements: Judgements) -> UnknownDocuments | None:
    """Returns the judged documents that no index of the run has; None: none, or the indexes cannot be read as they were."""
    judged = sorted({doc_id for grades in judgements.grades.values() for doc_id in grades})
    if any(not one.indexed(name) for name, one in run.config.retrieve.retrievers.items()):
        judged = [doc_id for doc_id in judged if not is_page(doc_id)]  # nobody knows all pages of the web
    asked = judged[:: max(1, -(-len(judged) // MOST))]
    left, seen = asked, dict[tuple[str, str], None]()
    retrievers, indexes = run.config.retrieve.retrievers, run.record.get("indexes") or {}
    of_indexes = all_indexed(retrievers).keys()
    if not of_indexes or not of_indexes <= indexed_identities(indexes).keys():
        return None
    try:
        for index in searched_indexes(retrievers, indexes):
            if (index.member, index.location) in seen or not left:
                continue
            seen[index.member, index.location] = None
            documents = open_documents(index.name, index.settings.at(index.identity), cached_only=True)
            if index.identity.get("corpus") != getattr(documents, "entry", {}).get("corpus"):
                return None
            known = all_documents({index.member: documents}).known(left)
            left = [doc_id for doc_id, is_known in zip(left, known, strict=True) if not is_known]
    except (RetrieverError, ClusterError, OSError):
        return None
    if not left:
        return None
    drawn = "" if len(asked) == len(judged) else f" drawn from {len(judged):,}"
    every = "none of the judged documents can be found" if len(left) == len(asked) else "they cannot be found"
    looked = dict.fromkeys(location for _, location in seen)
    note = (
        f"warning: {len(left):,} of {len(asked):,} judged documents{drawn} are not in the index ({', '.join(looked)}), such as "
        f"{left[0][:80]!r}: {every}, and count as missed; compare the ids of judgements and corpus"
    )
    return UnknownDocuments(len(left), len(asked), note)
