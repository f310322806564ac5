"""The scoring stage: scores each pair of query and document once, whichever arms need it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.errors import RetrieverError
from cluster.run.stage import heartbeat
from jobs.chain.arms.shared_work import ScoredBy
from jobs.chain.fill import fill
from jobs.chain.search_texts import originals
from jobs.chain.store import GatheredScores, Scored
from jobs.chain.tables import PAIR_SCORE
from jobs.job.opening import open_documents
from jobs.tables import nested, with_appended, with_failure
from retrievers.ranking import offsets_of
from retrievers.reranker import Reranker, open_reranker
from retrievers.retriever import DocumentStore, RetrieverSettings, distinct
from retrievers.served.reranker import ServerReranker

PORTION = 2048  # pairs scored between two progress reports: some minutes on two CPU cores; sorted by length within a portion

Key = TypeVar("Key", bound=Hashable)


class Score:
    """A worker of the scoring stage, with all rerankers; it reads the text of each document once per shard."""

    NEEDS = ("query_id", "query", "documents")
    ADDS = pa.schema([("scores", pa.list_(PAIR_SCORE))])  # null if a reranker failed on the query

    def __init__(
        self, rerankers: Sequence[ScoredBy], documents: Mapping[str, tuple[str, RetrieverSettings]], device: str, gathered: str
    ) -> None:
        """Opens the rerankers and the documents.

        Args:
            rerankers: of all arms.
            documents: (name, settings) of the retrievers whose indexes have the texts, by `ScoredBy.documents`.
            device: the torch device of the models.
            gathered: the folder of what ablations gather.

        Raises:
            RetrieverError: a model or an index is missing, or documents were replaced.
        """
        opened: dict[str, Reranker] = {}  # arms with typos share a model with those without
        for one in rerankers:
            if one.settings.model_dump_json() not in opened:
                reranker = open_reranker(one.settings, device)
                assert reranker is not None, "rerank.kind: none scores nothing"
                opened[one.settings.model_dump_json()] = reranker
        self._rerankers = [(one, opened[one.settings.model_dump_json()]) for one in rerankers]
        corpora = {one.documents: one.corpus for one in rerankers}
        self._documents = {key: planned_documents(*documents[key], corpus) for key, corpus in corpora.items()}
        self._gathered = gathered

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `scores` and costs."""
        lists = table.column("documents").combine_chunks().to_pylist()
        spent: list[list[dict[str, object]]] = [[] for _ in lists]
        found: list[list[dict[str, object]]] = [[] for _ in lists]
        scored: list[tuple[np.ndarray, np.ndarray, float]] = []
        here: dict[str, set[Scored]] = {}  # by space: pairs of this block that were looked up; arms with typos share some
        for number, (one, opened) in enumerate(self._rerankers):
            began = time.perf_counter()
            queries = list(zip(table.column("query_id").to_pylist(), originals(table, one.typos), strict=True))
            places = [
                (row, place)
                for row, documents in enumerate(lists)
                for place, document in enumerate(documents)
                if number in document["scored_by"]
            ]
            keys = [Scored(*queries[row], lists[row][place]["doc_id"]) for row, place in places]
            made: set[Scored] = set()
            values = fill(
                GatheredScores(self._gathered, one.space),
                keys,
                lambda missing, by=opened, of=self._documents[one.documents], made=made: _score(by, of, missing, made),  # type: ignore[misc]
            )
            fresh, reused = np.zeros(len(queries), dtype=np.int64), np.zeros(len(queries), dtype=np.int64)
            for (row, place), key, value in zip(places, keys, values, strict=True):
                found[row].append({"reranker": number, "document": place, "score": value})
                fresh[row] += key in made
                reused[row] += key not in made and key not in here.get(one.space, ())
            here.setdefault(one.space, set()).update(keys)
            scored.append((fresh, reused, (time.perf_counter() - began) / max(1, len(made))))
        for (one, opened), (fresh, reused, each) in zip(self._rerankers, scored, strict=True):  # after the last that may raise
            texts = originals(table, one.typos)
            sent = sent_requests(opened, texts)
            alone = len(self._rerankers) == 1  # then every query has an entry, also one without candidates
            for row in range(len(texts)) if alone else np.flatnonzero(fresh + reused):
                spent[row].append(
                    costs.entry(
                        "rerank", one.settings.kind, each * int(fresh[row]), model=one.model, pairs=int(fresh[row]),
                        reused=int(reused[row]), requests=sent.pop(texts[row], 0),
                    )
                )  # fmt: skip
        flat = pa.array([score for of_query in found for score in of_query], PAIR_SCORE)
        column = nested(offsets_of(np.array([len(one) for one in found], dtype=np.int64)), flat, pa.list_(PAIR_SCORE))
        return with_appended(table.append_column(self.ADDS.field("scores"), column), "costs", spent)

    def charge_failed(self, table: pa.Table) -> pa.Table:
        """Returns a query on which a reranker failed with the costs of the requests that were sent for it."""
        spent = [failed_cost(by, originals(table, one.typos), one.settings.kind, one.model) for one, by in self._rerankers]
        return with_appended(table, "costs", [[entry for of_one in spent for entry in of_one]])


def planned_documents(name: str, settings: RetrieverSettings, corpus: str | None) -> DocumentStore:
    """Returns the documents of a retriever's index, as a worker opens them.

    Args:
        name: of the retriever.
        settings: of the retriever.
        corpus: identity of the documents at planning; None: not checked.

    Raises:
        RetrieverError: the index is missing, or the documents were replaced.
    """
    documents = open_documents(name, settings, patient=True)
    found = getattr(documents, "entry", {}).get("corpus")
    if corpus is not None and found is not None and found != corpus:
        raise RetrieverError(
            "index-replaced",
            f"retrieve.retrievers.{name}: the documents of its index were replaced since this run was planned; "
            "start a new run, or put the old index back",
        )
    return documents


def sent_requests(reranker: Reranker, queries: Iterable[str]) -> Counter[str]:
    """Returns the requests that a reranker at a server has sent for each of these queries and not told yet; of others none.

    A call that raises tells none, so they are told when its queries are scored in smaller blocks.
    """
    return reranker.requests(queries) if isinstance(reranker, ServerReranker) else Counter()


def failed_cost(reranker: Reranker, queries: Iterable[str], kind: str, model: str | None) -> list[dict[str, Any]]:
    """Returns the cost entry of the requests for queries that got no scores; none if none were sent."""
    sent = sent_requests(reranker, queries).total()
    return [costs.entry("rerank", kind, model=model, requests=sent, error="failed")] if sent else []


def _score(
    by: Reranker, documents: DocumentStore, missing: list[Scored], made: set[Scored]
) -> Iterator[list[tuple[Scored, float]]]:
    """Yields the scores of pairs in portions, and notes the pairs in `made`."""
    made.update(missing)
    return scored_portions(by, documents, missing, [key.text for key in missing], [key.doc_id for key in missing])


def scored_portions(
    reranker: Reranker, documents: DocumentStore, keys: list[Key], queries: Sequence[str], doc_ids: Sequence[str]
) -> Iterator[list[tuple[Key, float]]]:
    """Yields the keys of pairs with their scores, `PORTION` at a time; the text of each document is read once.

    Args:
        reranker: scores the pairs.
        documents: have the texts.
        keys: of the pairs.
        queries: of each pair, as it is scored.
        doc_ids: of each pair.
    """
    unique, place = distinct(doc_ids)
    texts = documents.texts(unique, heartbeat)
    for begin in range(0, len(keys), PORTION):
        part = slice(begin, begin + PORTION)
        scores = reranker.score(queries[part], [texts[i] for i in place[part]])
        yield list(zip(keys[part], scores.tolist(), strict=True))
        heartbeat(min(1.0, (begin + PORTION) / len(keys)))


def without_scores(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which a reranker failed, without scores and with a row in errors; RetrieverErrors are raised."""
    table = with_failure(table, "rerank", error)
    (field,) = Score.ADDS
    return table.append_column(field, pa.nulls(table.num_rows, field.type))
