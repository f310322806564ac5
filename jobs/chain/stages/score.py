"""The scoring stage: scores each pair of query and document once, whichever arms need it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.run.stage import heartbeat
from jobs.chain.arms.opened import ScoredBy
from jobs.chain.fill import Portion, fill
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.documents import planned_documents
from jobs.chain.store.facts import Scored, StoredScores, text_digest
from jobs.chain.store.files import Space
from jobs.chain.tables import PAIR_SCORE
from jobs.chain.worker import WorkerJob
from jobs.tables import with_appended, with_columns
from retrievers.ranking import ranks
from retrievers.reranker import Reranker, open_reranker
from retrievers.served.reranker import ServerReranker

PORTION = 2048  # pairs scored between two progress reports: some minutes on two CPU cores; sorted by length within a portion


class ScoredBlock(NamedTuple):
    """The scores of a block.

    Attributes:
        scores: The column `scores`.
        spent: What they have cost, row by row.
        needed: Of several arms: the pairs that each needs, row by row, for the column `needed`.
    """

    scores: pa.ListArray
    spent: list[list[dict[str, object]]]
    needed: list[list[dict[str, object]]]


class Score:
    """A worker of the scoring stage, with all rerankers; it reads the text of each document once per shard."""

    NEEDS = ("query_id", "query", "documents", "web", "fused", "needed")
    ADDS = pa.schema([("scores", pa.list_(PAIR_SCORE))])  # null if a reranker failed on the query

    def __init__(self, job: WorkerJob) -> None:
        """Opens the rerankers and the documents; raises RetrieverError where a model or an index is missing or was replaced."""
        work = job.work
        opened: dict[str, Reranker] = {}  # rerankers over other documents share a model
        for one in work.rerankers:
            if one.settings.model_dump_json() not in opened:
                opened[one.settings.model_dump_json()] = self.opened(one, job.device)
        self._rerankers = [(one, opened[one.settings.model_dump_json()]) for one in work.rerankers]
        self._documents = {key: planned_documents(work.retrievers[key]) for key in {one.documents for one in work.rerankers}}
        self._store, self._work = job.store, work

    def opened(self, one: ScoredBy, device: str) -> Reranker:
        """Returns an open reranker."""
        reranker = open_reranker(one.settings, device)
        assert reranker is not None, "rerank.kind: none scores nothing"
        return reranker

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `scores`, the pairs that are needed, and costs."""
        scored = self.scored(table, range(table.num_rows))
        table = with_appended(with_appended(table, "costs", scored.spent), "needed", scored.needed)
        return with_columns(table, self.ADDS, [scored.scores])

    def scored(self, table: pa.Table, rows: Collection[int]) -> ScoredBlock:
        """Returns the scores of a block, of some rows with those of new texts; none of queries on which a reranker failed."""
        block = Candidates(table, self._work)
        doc_ids = block.doc_ids.to_pylist()
        query_ids, queries = (table.column(name).to_pylist() for name in ("query_id", "query"))
        needed = [self._needed(block, number, rows) for number in range(len(self._rerankers))]
        places = [np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *of.values()])).tolist() for of in needed]
        known = table.column("scores").to_pylist() if block.scored else [[] for _ in range(table.num_rows)]
        found: list[list[dict[str, object]]] = [of_row or [] for of_row in known]
        spent, pairs = ([list[dict[str, Any]]() for _ in known] for _ in range(2))
        charged: list[tuple[np.ndarray, np.ndarray, float]] = []
        documents = self._texts([[doc_ids[at] for at in of if block.document_page[at] < 0] for of in places])
        stores: dict[str, StoredScores] = {}  # by space
        for number, (one, opened) in enumerate(self._rerankers):
            began = time.perf_counter()
            digests, texts = documents[one.documents]
            keys: dict[int, Scored] = {}
            for at in places[number]:
                row, page = int(block.document_row[at]), block.page_text(at)
                digest = digests[doc_ids[at]] if page is None else text_digest(page[0])
                texts |= {} if page is None else {digest: page[0]}
                keys[at] = Scored(query_ids[row], queries[row], digest)
            of = stores.setdefault(one.space, StoredScores(self._store, Space("scores", one.space)))
            new = [at for at in places[number] if np.isnan(block.reranked[number][at])]
            of.in_hand |= {keys[at]: float(block.reranked[number][at]) for at in keys.keys() - new}
            before, paid = set(of.in_hand), set[Scored]()
            scores = fill(of, [keys[at] for at in new], partial(_score, opened, texts, paid))
            users: dict[int, list[str]] = {}
            for arm, own in needed[number].items() if self._work.only is None else ():
                for at in own.tolist():
                    users.setdefault(at, []).append(arm)
            for at, arms in users.items():
                key = f"{one.space}/{keys[at].query_id}/{keys[at].document.hex()}"
                asked = {"key": key, "quantity": "pairs", "component": f"{one.settings.counted_as}@{one.model}", "arms": arms}
                pairs[int(block.document_row[at])].append(asked)
            fresh, reused = np.zeros(len(queries), dtype=np.int64), np.zeros(len(queries), dtype=np.int64)
            for at, score in zip(new, scores, strict=True):
                row = int(block.document_row[at])
                found[row].append({"reranker": number, "document": at - int(block.starts[row]), "score": float(score)})
                if keys[at] not in before:  # documents with one text are one pair
                    (fresh if keys[at] in paid else reused)[row] += 1
                    before.add(keys[at])
            charged.append((fresh, reused, (time.perf_counter() - began) / max(1, len(paid))))
        for of in stores.values():
            of.save()
        for (one, opened), (fresh, reused, each) in zip(self._rerankers, charged, strict=True):  # after the last that may raise
            sent = sent_requests(opened, queries)
            alone = len(self._rerankers) == 1  # then every query has an entry, also one without candidates
            for row in rows if alone else np.flatnonzero(fresh + reused).tolist():
                spent[row].append(
                    costs.entry(
                        "rerank", one.settings.counted_as, each * int(fresh[row]), model=one.model, pairs=int(fresh[row]),
                        reused=int(reused[row]), requests=sent.pop(queries[row], 0),
                    )
                )  # fmt: skip
        column = pa.array([None if old is None else new for old, new in zip(known, found, strict=True)], pa.list_(PAIR_SCORE))
        return ScoredBlock(column, spent, pairs)

    def _needed(self, block: Candidates, reranker: int, rows: Collection[int]) -> dict[str, np.ndarray]:
        """Returns the documents of some rows that each arm needs scored by a reranker."""
        due = np.isin(block.document_row, list(rows))
        if block.scored:
            due &= block.has_scores[block.document_row]
        found = {}
        for arm, answer in enumerate(self._work.answers):
            if answer.reranker == reranker:
                own = block.of(arm).document[ranks(block.lengths(arm)) <= answer.candidates]
                found[answer.arm] = own[due[own]]
        return found

    def _texts(self, wanted: Sequence[Sequence[str]]) -> dict[str, tuple[dict[str, bytes], dict[bytes, str]]]:
        """Returns, by where the texts are, doc_id -> digest of its text, and digest -> text; `wanted`: doc_ids by reranker."""
        found = {}
        for key, documents in self._documents.items():
            of_key = [of for (one, _), of in zip(self._rerankers, wanted, strict=True) if one.documents == key]
            doc_ids = list(dict.fromkeys(doc_id for of in of_key for doc_id in of))
            texts = documents.texts(doc_ids, heartbeat)
            digests = [text_digest(text) for text in texts]
            found[key] = dict(zip(doc_ids, digests, strict=True)), dict(zip(digests, texts, strict=True))
        return found

    def charge_failed(self, table: pa.Table) -> pa.Table:
        """Returns a query on which a reranker failed with the costs of the requests that were sent for it."""
        spent = []
        for one, by in self._rerankers:
            if sent := sent_requests(by, table.column("query").to_pylist()).total():
                spent.append(costs.entry("rerank", one.settings.counted_as, model=one.model, requests=sent, error="failed"))
        return with_appended(table, "costs", [spent])


def sent_requests(reranker: Reranker, queries: Iterable[str]) -> Counter[str]:
    """Returns the requests that a reranker at a server has sent for each of these queries and not told yet; of others none.

    A call that raises tells none, so they are told when its queries are scored in smaller blocks.
    """
    return reranker.requests(queries) if isinstance(reranker, ServerReranker) else Counter()


def _score(by: Reranker, texts: Mapping[bytes, str], paid: set[Scored], keys: list[Scored]) -> Iterator[Portion[Scored, float]]:
    """Yields the scores of pairs, `PORTION` at a time, and notes the pairs in `paid`."""
    paid.update(keys)
    for begin in range(0, len(keys), PORTION):
        part = keys[begin : begin + PORTION]
        scores = by.score([key.text for key in part], [texts[key.document] for key in part])
        yield list(zip(part, scores.tolist(), strict=True))
        heartbeat(min(1.0, (begin + PORTION) / len(keys)))
