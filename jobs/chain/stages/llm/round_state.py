"""The state of the further rounds of a block, while they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.arms.generations import Generation, iterate_settings
from jobs.chain.arms.shared_work import Answer, SharedWork
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.llm.first_results import Place
from jobs.chain.steps.merging import Rankings
from jobs.counts import Work, WorkAlone, arm_key
from jobs.tables import REPEATED_QUERY
from rewriters.guards.mask import Mask, unmasked
from rewriters.normalise import normalise
from rewriters.query import Query
from rewriters.steps.reading import StepResult
from rewriters.steps.step import LlmStep


class RefinedQuery(NamedTuple):
    """The refined query of an answer; `reason` and `message`: why it is not searched, None: it is."""

    text: str
    reason: str | None
    message: str | None


def refined(step: LlmStep, result: StepResult, mask: Mask, searched: Collection[str]) -> RefinedQuery:
    """Returns the refined query of an answer; `searched`: what was searched before, in normal form."""
    said = result.text if step.output == "text" else result.fields.get("query")
    text = " ".join(unmasked(said or "", mask.values).split())
    if result.reason is None and not text:
        return RefinedQuery("", "unparsable", "the answer has no query")
    if result.reason is None and normalise(text) in searched:
        message = "the refined query is one that was searched already, so no round follows"
        return RefinedQuery(text, REPEATED_QUERY, message)
    return RefinedQuery(text, result.reason, result.message)


class RoundState:
    """The state of the rounds of a block."""

    def __init__(self, table: pa.Table, work: SharedWork, queries: Sequence[Query]) -> None:
        """Begins before the first round, with the best scores of the originals' lists."""
        self.queries = queries
        iterating = work.generating("iteration")
        self.tried: dict[Place, list[str]] = {(arm, row): [] for arm, _ in iterating for row in range(table.num_rows)}
        self.best: dict[Place, float] = {}
        self.ended = set[Place]()
        self.rankings: dict[int, Rankings] = {}
        self.rounds: list[list[dict[str, Any]]] = [[] for _ in self.queries]
        self.errors: list[list[dict[str, Any]]] = [[] for _ in self.queries]
        self.costs: list[list[dict[str, Any]]] = [[] for _ in self.queries]
        self.counts: Counter[str] = Counter()
        searches = {arm: work.answers[arm].search for arm, _ in iterating}
        self._note(table, range(table.num_rows), iterating, searches)

    def searched(self, arm: int, row: int) -> set[str]:
        """Returns the query and its refined queries so far, in normal form."""
        return {normalise(text) for text in (self.queries[row].text, *self.tried[arm, row])}

    def note_lists(self, block: pa.Table, rows: Sequence[int], iterating: Sequence[tuple[int, Generation]]) -> None:
        """Notes the best scores of the lists of a round."""
        self._note(block, rows, iterating, {arm: place for place, (arm, _) in enumerate(iterating)})

    def _note(
        self, block: pa.Table, rows: Sequence[int], iterating: Sequence[tuple[int, Generation]], searches: Mapping[int, int]
    ) -> None:
        for row, of_row in zip(rows, block.column("best").to_pylist(), strict=True):
            for arm, of in iterating:
                for one in of_row:
                    if one["search"] == searches[arm] and one["retriever"] == iterate_settings(of).by:
                        self.best[arm, row] = max(self.best.get((arm, row), -np.inf), one["score"])

    def note_reranked(self, arm: int, answer: Answer, block: Candidates) -> None:
        """Notes the best score that the reranker gave a candidate of each query in an arm; where it failed, rounds end."""
        assert answer.reranker is not None
        of = block.of(arm)
        own = block.rank[of.at] <= block.pairs(arm, answer)[of.row]
        scores = block.reranked[answer.reranker][of.document[own]]
        for row, score in zip(of.row[own].tolist(), scores.tolist(), strict=True):
            if not np.isnan(score):  # it was scored
                self.best[arm, row] = max(self.best.get((arm, row), -np.inf), score)
        self.ended |= {(arm, row) for row in np.flatnonzero(~block.has_scores).tolist()}

    def add(self, block: pa.Table, rows: Sequence[int], alone: str | None) -> None:
        """Adds what a round has cost; `alone`: the only arm with rounds of several, whose work the costs say."""
        for row, spent, errors in zip(rows, block.column("costs").to_pylist(), block.column("errors").to_pylist(), strict=True):
            own = [one for one in spent if one["stage"] != "fuse"]
            self.costs[row] += own
            self.errors[row] += [one for one in errors if one["stage"] != "fuse"]  # a round without hits is none of the query
            for one in own if alone else ():
                assert alone is not None
                work = Work("pairs" if one["stage"] == "rerank" else "searches", f"{one['component']}@{one['model'] or ''}")
                amount = one[work.quantity] + one["reused"]
                self.counts[arm_key(alone, work.key)] += amount
                self.counts[arm_key(alone, WorkAlone(work.quantity, work.component).key)] += amount
        for one in (one for of in block.column("counts").to_pylist() for one in of):
            if not one["name"].endswith(("stood_in", "no_hits")):  # a round without hits is none of its query
                self.counts[one["name"]] += one["count"]
