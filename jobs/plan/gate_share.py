"""The share of queries that the gate lets be rewritten, by a sample of a job's queries."""

from __future__ import annotations

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.searches import IndexSearches, Wanted
from jobs.chain.store.files import NO_STORE
from jobs.job.opening import open_retriever
from jobs.run.planning.sample import PlannedQueries, read_sample
from retrievers.retriever import SearchText
from rewriters.gate import decide

SAMPLE = 200  # queries


def rewritten_share(work: SharedWork, queries: PlannedQueries) -> float | None:
    """Returns the share of a sample that the gate lets be rewritten; None without a gate. Adds nothing to the store.

    Args:
        work: Of one arm.
        queries: Of the job; only a sample of them is searched.

    Raises:
        RetrieverError: The index cannot be searched.
    """
    gate = next((one.gate for one in work.readings if one.gate is not None), None)
    if gate is None:
        return None
    table, opened = read_sample(queries, SAMPLE, seed=0), work.retrievers[gate.retriever]
    retriever = open_retriever(opened.name, opened.settings.at(opened.identity), expect_identity=opened.identity)
    query_ids = table.column("query_id").to_pylist()
    texts = [SearchText(text) for text in table.column("query").to_pylist()]
    asked: dict[Wanted, list[str]] = {}
    for text, query_id in zip(texts, query_ids, strict=True):
        asked.setdefault(text, []).append(query_id)
    lists = dict(zip(asked, IndexSearches(opened, retriever, NO_STORE)(asked), strict=True))
    sure = sum(decide(gate.settings.by, lists[text].scores[:1].tolist(), gate.settings.below).sure for text in texts)
    return 1 - sure / max(1, len(texts))
