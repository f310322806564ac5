"""The scoring stage: scores each pair of query and document once, whichever arms need it."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.run.stage import bear, heartbeat
from jobs.chain.arms.resources import ScoredBy
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.documents import document_texts, planned_documents
from jobs.chain.store.facts import Scored, StoredScores, text_digest
from jobs.chain.store.files import Space
from jobs.chain.tables import PAIR_SCORE
from jobs.chain.worker import WorkerJob
from jobs.tables import FAILED, failure_row, with_appended, with_empty_columns
from retrievers.ranking import ranks
from retrievers.reranker import Reranker, open_reranker
from retrievers.served.reranker import ServerReranker

PORTION = 2048  # pairs scored between two progress reports: some minutes on two CPU cores; sorted by length within a portion
_COLUMNS = ("scores", "unscored", "needed", "costs", "errors")  # that scoring appends to


class Score:
    """A worker of the scoring stage, with all rerankers; it reads the text of each document once per shard."""

    NEEDS = ("query_id", "query", "documents", "web", "fused", "needed")
    # `unscored`: the rerankers that failed on the query, whose arms are ranked as they were fused; -1: all
    ADDS = pa.schema([("scores", pa.list_(PAIR_SCORE)), ("unscored", pa.list_(pa.int16()))])

    def __init__(self, job: WorkerJob) -> None:
        """Opens the rerankers and the documents; raises RetrieverError where a model or an index is missing or was replaced."""
        work = job.work
        opened: dict[str, Reranker] = {}  # rerankers over other documents share a model
        for scored_by in work.rerankers:
            if scored_by.settings.model_dump_json() not in opened:
                opened[scored_by.settings.model_dump_json()] = self.opened(scored_by, job.device)
        self._rerankers = [(one, opened[one.settings.model_dump_json()]) for one in work.rerankers]
        self._documents = {key: planned_documents(work.retrievers[key]) for key in {one.documents for one in work.rerankers}}
        self._store, self._work = job.store, work

    def opened(self, scored_by: ScoredBy, device: str) -> Reranker:
        """Returns an open reranker."""
        reranker = open_reranker(scored_by.settings, device)
        assert reranker is not None, "rerank.kind: none scores nothing"
        return reranker

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with scores, the pairs that are needed, costs, and errors of rerankers."""
        return self.scored(with_empty_columns(table, self.ADDS), range(table.num_rows))

    def scored(self, table: pa.Table, rows: Collection[int]) -> pa.Table:
        """Returns a block in which the pairs that some rows need have scores, too."""
        block = Candidates(table, self._work)
        query_ids, queries = (table.column(name).to_pylist() for name in ("query_id", "query"))
        needed = [self._needed(block, number, rows) for number in range(len(self._rerankers))]
        texts = self._texts(block, needed)
        added: dict[str, list[list[Any]]] = {name: [[] for _ in queries] for name in _COLUMNS}
        charged: list[tuple[np.ndarray, np.ndarray, float]] = []
        stores: dict[str, StoredScores] = {}  # by space
        digest = cache(text_digest)
        for number, (reranker, opened) in enumerate(self._rerankers):
            began, row_of = time.perf_counter(), block.document_row
            keys = {at: Scored(query_ids[row_of[at]], queries[row_of[at]], digest(text)) for at, text in texts[number].items()}
            store = stores.setdefault(reranker.space, StoredScores(self._store, Space("scores", reranker.space)))
            new = [at for at in keys if np.isnan(block.reranked[number][at])]
            store.in_hand |= {keys[at]: float(block.reranked[number][at]) for at in keys.keys() - new}
            known, paid = set(store.in_hand), set[Scored]()
            fresh, reused = np.zeros(len(queries), dtype=np.int64), np.zeros(len(queries), dtype=np.int64)
            by_digest = {keys[at].document: text for at, text in texts[number].items()}
            try:
                scores = store.fill([keys[at] for at in new], partial(_score, opened, by_digest, paid))
            except Exception as error:
                bear(error)
                added["unscored"][0].append(number)
                added["errors"][0].append(failure_row("rerank", error, reranker.settings.counted_as))
                new, scores, needed[number] = [], [], {}
                paid.clear()
            for at, score in zip(new, scores, strict=True):
                row = row_of[at]
                added["scores"][row].append({"reranker": number, "document": at - block.starts[row], "score": score})
                if keys[at] not in known:  # documents with one text are one pair
                    (fresh if keys[at] in paid else reused)[row] += 1
                    known.add(keys[at])
            for at, arms in _users(needed[number]).items() if self._work.only is None else ():
                key = f"{reranker.space}/{keys[at].query_id}/{keys[at].document.hex()}"
                component = f"{reranker.settings.counted_as}@{reranker.settings.scored_by}"
                added["needed"][row_of[at]].append({"key": key, "quantity": "pairs", "component": component, "arms": arms})
            charged.append((fresh, reused, (time.perf_counter() - began) / max(1, len(paid))))
        for store in stores.values():
            store.save()
        alone = len(self._rerankers) == 1  # then every query has an entry, also one without candidates
        for number, (fresh, reused, each) in enumerate(charged):  # after the last that may raise
            reranker, opened = self._rerankers[number]
            # what was sent to a server and is not told yet: a call that raises tells nothing
            sent = opened.requests(queries) if isinstance(opened, ServerReranker) else Counter[str]()
            for row in rows if alone else np.flatnonzero(fresh + reused + [sent[query] for query in queries]).tolist():
                added["costs"][row].append(
                    costs.entry(
                        "rerank", reranker.settings.counted_as, each * int(fresh[row]), model=reranker.settings.scored_by,
                        pairs=int(fresh[row]), reused=int(reused[row]), requests=sent.pop(queries[row], 0),
                        error=FAILED if number in added["unscored"][row] else None,
                    )
                )  # fmt: skip
        for name, more in added.items():
            table = with_appended(table, name, more)
        return table

    def _needed(self, block: Candidates, reranker: int, rows: Collection[int]) -> dict[str, np.ndarray]:
        """Returns the documents of some rows that each arm needs scored by a reranker."""
        due = np.isin(block.document_row, list(rows)) & block.has_scores[reranker][block.document_row]
        due_of_arms = {}
        for arm, answer in enumerate(self._work.answers):
            if answer.reranker == reranker:
                own = block.of_arm(arm).document[ranks(block.lengths(arm)) <= answer.candidates]
                due_of_arms[answer.arm] = own[due[own]]
        return due_of_arms

    def _texts(self, block: Candidates, needed: Sequence[Mapping[str, np.ndarray]]) -> list[dict[int, str]]:
        """Returns document -> its text, of those that arms need, by reranker; a document of an index is read once."""
        wanted: dict[str, list[int]] = {}
        pairs = [np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *of.values()])).tolist() for of in needed]
        for (reranker, _), own in zip(self._rerankers, pairs, strict=True):
            wanted.setdefault(reranker.documents, []).extend(own)
        read = document_texts(block, self._documents, wanted, places=False)
        return [
            {at: read[reranker.documents][at][0] for at in own}
            for (reranker, _), own in zip(self._rerankers, pairs, strict=True)
        ]


def _users(needed: Mapping[str, np.ndarray]) -> dict[int, list[str]]:
    """Returns document -> the arms that need it."""
    users: dict[int, list[str]] = {}
    for arm, own in needed.items():
        for at in own.tolist():
            users.setdefault(at, []).append(arm)
    return users


def _score(by: Reranker, texts: Mapping[bytes, str], paid: set[Scored], keys: list[Scored]) -> Iterator[tuple[Scored, float]]:
    """Yields pairs with their scores, which are made `PORTION` at a time, and notes the pairs in `paid`."""
    paid.update(keys)
    for begin in range(0, len(keys), PORTION):
        part = keys[begin : begin + PORTION]
        scores = by.score([key.text for key in part], [texts[key.document] for key in part])
        yield from zip(part, scores.tolist(), strict=True)
        heartbeat(min(1.0, (begin + PORTION) / len(keys)))
