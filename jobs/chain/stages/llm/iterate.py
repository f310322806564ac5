"""The stage of further rounds: queries that found little are rewritten from what was found, and searched again.

Rewrite, retrieve, read (Ma et al. 2023, arXiv 2305.14283), in rounds. A worker has an LLM, the retrievers and the rerankers. A
refined query is a text of the strategy `iterate`, its position is the round. Its lists are fused as those of the arm are.
"""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.run.stage import heartbeat
from jobs.chain.block import LlmBlock
from jobs.chain.lists import lists_of, stored_rows
from jobs.chain.searches import Retrieval
from jobs.chain.stages.candidates import UNRANKED, BlockCandidates, Candidates, candidate_columns, moved_scores, united
from jobs.chain.stages.fuse import SearchLists
from jobs.chain.stages.llm.first_results import ShownResults
from jobs.chain.stages.llm.merge import merged
from jobs.chain.stages.llm.rounds import ArmRounds, refine
from jobs.chain.stages.llm.stage import LlmStage
from jobs.chain.stages.score import Score
from jobs.chain.stages.stored_rows import with_stored
from jobs.chain.stages.web.web_hits import with_web
from jobs.chain.tables import ARM_ROUND
from jobs.chain.worker import WorkerJob
from jobs.counts import ROUND_QUERIES
from jobs.tables import ITERATE, with_values


class Iterate(LlmStage):
    """A worker of the stage of further rounds."""

    STAGE = "iterate"
    NEEDS = ("shard", "query_id", "query", "context", "values", "stored", "documents", "web", "fused", "best", "counts")
    ADDS = pa.schema([("rounds", pa.list_(ARM_ROUND))])
    DROPS = ("best",)

    def __init__(self, job: WorkerJob) -> None:
        super().__init__(job)
        work = job.work
        searches = [work.searches[arm.search] for arm in self._arms.values()]
        keys = {search.retrievers[name] for search in searches for name in search.route(ITERATE)}
        searched = {key: one for key, one in work.retrievers.items() if key in keys}
        self._retrieval = Retrieval(job, searched)
        dropping = {arm.documents for arm in self._arms.values() if arm.drops}
        self._texts = {key: partial(self._documents[key].texts, alive=heartbeat) for key in dropping}
        self._score = Score(job) if work.rerankers else None
        self._searching = threading.Lock()  # several blocks are under way in a worker, and tokenizers bear one thread at a time

    def close(self) -> None:
        """Closes the engines, and ends what saves journals."""
        super().close()
        self._retrieval.close()

    def rows(self, block: LlmBlock) -> tuple[Any, ...]:
        """Returns the rounds; the block has the candidates of all of them then."""
        results = ShownResults(block.table, self._work)
        best = block.table.column("best").to_pylist()
        arms = {number: ArmRounds(number, self._work, results.block, best) for number in self._arms}
        rounds: list[list[dict[str, Any]]] = [[] for _ in block.queries]
        for number in range(1, max(of.rounds.rounds for of in arms.values()) + 1):
            for arm_rounds in arms.values():
                arm_rounds.note_scores(results.block)
            due = {at: rows for at, of in arms.items() if (rows := of.due(number))}
            if not due:
                break
            most = {at: arms[at].rounds.documents for at in due}
            shown = results.shown(self._documents, most, {(at, row) for at, rows in due.items() for row in rows})
            steps = {at: refine(arms[at], block, number, {row: shown[at][row] for row in rows}) for at, rows in due.items()}
            refined = {at: found for at, found in block.run(steps).items() if found}
            if refined:
                texts = {at: {row: one["text"] for row, one in found.items()} for at, found in refined.items()}
                with self._searching:
                    self._search(block, {at: arms[at] for at in texts}, texts, number)
                had, results = results, ShownResults(block.table, self._work)
                for at, queries in refined.items():
                    before, after = (shown.doc_ids(at, self._work.answers[at].keep) for shown in (had, results))
                    for row, refined_query in queries.items():
                        rounds[row].append(refined_query | {"new": len(set(after[row]) - set(before[row]))})
                    block.count(at, ROUND_QUERIES.key(number), len(queries))
            heartbeat()
        block.table = block.table.drop_columns(list(self.DROPS))
        return (rounds,)

    def _search(
        self, block: LlmBlock, arms: Mapping[int, ArmRounds], texts: Mapping[int, Mapping[int, str]], number: int
    ) -> None:
        """Adds the candidates of refined queries (index of an arm -> row -> query) to a block, and what they have cost."""
        table, work, before, parts = block.table, self._work, Candidates(block.table, self._work), []
        routed = [of.routed(texts[at], number) for at, of in arms.items()]
        with self._retrieval.block(table, "retrieve", f"round {number}") as searches:
            lists_of_arms = searches.search(routed)
            table, stored = with_web(table, routed, lists_of_arms, searches)
            ids = table.column("query_id").combine_chunks()
            for (at, arm_rounds), lists in zip(arms.items(), lists_of_arms, strict=True):
                pages = searches.pages(arm_rounds.search.retrievers, lists)
                fused = SearchLists(lists_of(lists, arm_rounds.search), table.num_rows, None, pages, work.keep_sources)
                arm_rounds.note_lists(fused.best())
                candidates = fused.fuse(arm_rounds.answer, self._texts).candidates
                arm_rounds.rankings.append(BlockCandidates(fused.hits.doc_ids, fused.pages, {at: candidates}))
                # other arms may drop what this one keeps
                texts_of = self._texts[arm_rounds.answer.documents] if arm_rounds.answer.drops else None
                parts.append(merged(arm_rounds.rankings, table.num_rows, arm_rounds.answer, arm_rounds.rounds, texts_of))
                if at == 0 and work.keep_lists:
                    stored["runs"] = stored_rows(ids, lists, arm_rounds.answer.retrieved)
        table = searches.closed(with_stored(table, self._retrieval.storage, stored))
        block.table = table  # so that an error below charges them
        others = {at: before.of_arm(at) for at in range(len(work.answers)) if at not in arms}
        scored = np.flatnonzero(~np.isnan(before.reranked).all(axis=0)) if len(work.rerankers) else np.zeros(0, dtype=np.int64)
        others[UNRANKED] = before.documents(scored)
        columns, moved = candidate_columns(
            table.num_rows, united([BlockCandidates(before.doc_ids, before.pages, others), *parts])
        )
        table = with_values(table, dict(zip(("documents", "fused", "web"), columns, strict=True)))
        if self._score is not None:
            table = with_values(table, {"scores": moved_scores(before, scored, moved)})
            table = self._score.scored(table, {row for of_arm in texts.values() for row in of_arm})
        block.table = table
