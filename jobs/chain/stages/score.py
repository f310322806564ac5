"""The scoring stage: scores every candidate for the original query with the reranker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from cluster.errors import RetrieverError
from cluster.run.stage import heartbeat
from jobs.chain.fill import fill
from jobs.chain.search_texts import originals
from jobs.job.opening import open_documents
from jobs.tables import SCORE, nested, with_appended, with_failure
from retrievers.ranking import offsets_of
from retrievers.reranker import Reranker, open_reranker
from retrievers.retriever import DocumentStore, RetrieverSettings, distinct
from retrievers.served.reranker import ServerReranker
from retrievers.settings import RerankSettings, TypoSettings

PORTION = 2048  # pairs scored between two progress reports: some minutes on two CPU cores; sorted by length within a portion

Key = TypeVar("Key", bound=Hashable)


class Score:
    """A worker of the scoring stage; it reads the text of each document once per shard and does not pass it on."""

    NEEDS = ("query_id", "query", "candidates")
    ADDS = pa.schema([("scores", pa.list_(SCORE))])  # null if the reranker failed on the query

    def __init__(
        self,
        settings: RerankSettings,
        documents: tuple[str, RetrieverSettings],
        device: str,
        corpus: str | None = None,
        typos: TypoSettings | None = None,
    ) -> None:
        """Opens the reranker and the documents.

        Args:
            settings: the config's `rerank`, of a kind with a model.
            documents: (name, settings) of the retriever whose index has the texts.
            device: the torch device of the model.
            corpus: identity of the documents at planning; None: not checked.
            typos: in the queries, as they are scored; None: none.

        Raises:
            RetrieverError: the model or the index is missing, or the documents were replaced.
        """
        reranker = open_reranker(settings, device)
        assert reranker is not None, "rerank.kind: none has no scoring stage"
        self._kind, self._reranker = settings.kind, reranker
        self._documents = planned_documents(*documents, corpus)
        self._typos = typos
        self._model = settings.encoder.model if settings.encoder is not None else settings.model

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `scores` and costs."""
        lists = table.column("candidates").combine_chunks()
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        doc_ids = lists.flatten().field("doc_id")
        query_ids = np.repeat(np.array(table.column("query_id").to_pylist(), dtype=object), lengths).tolist()
        queries = dict(zip(table.column("query_id").to_pylist(), originals(table, self._typos), strict=True))
        pairs = list(zip(query_ids, doc_ids.to_pylist(), strict=True))
        scores = fill(
            None,
            pairs,
            lambda missing: scored_portions(
                self._reranker,
                self._documents,
                missing,
                [queries[query_id] for query_id, _ in missing],
                [d for _, d in missing],
            ),
        )
        flat = pa.StructArray.from_arrays(
            [doc_ids, pa.repeat(pa.scalar(self._model, pa.string()), len(pairs)), pa.array(scores, pa.float64())],
            fields=list(SCORE),
        )
        (field,) = self.ADDS
        table = table.append_column(field, nested(offsets_of(lengths), flat, field.type))
        sent = sent_requests(self._reranker, queries.values())
        spent = [
            [costs.entry("rerank", self._kind, float(n), model=self._model, pairs=n, requests=sent.pop(queries[query_id], 0))]
            for query_id, n in zip(table.column("query_id").to_pylist(), lengths.tolist(), strict=True)
        ]
        return with_appended(table, "costs", spent)

    def charge_failed(self, table: pa.Table) -> pa.Table:
        """Returns a query on which the reranker failed with the cost of the requests that were sent for it."""
        spent = failed_cost(self._reranker, originals(table, self._typos), self._kind, self._model)
        return with_appended(table, "costs", [spent])


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
    """Returns a query on which the reranker failed, without scores and with a row in errors; RetrieverErrors are raised.

    Without scores its candidates stay in fused order.
    """
    table = with_failure(table, "rerank", error)
    (field,) = Score.ADDS
    return table.append_column(field, pa.nulls(table.num_rows, field.type))
