"""The stage of further rounds: queries that found little are rewritten from what was found, and searched again.

Rewrite, retrieve, read (Ma et al. 2023, arXiv 2305.14283), in rounds. A worker has an LLM, the retrievers and the rerankers; it
searches, fuses and scores by the stages of the chain, so that a round is a small block of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster.costs import COSTS
from cluster.run.stage import heartbeat, shard_of
from jobs.chain.arms.generations import iterate_settings
from jobs.chain.arms.rounds import round_work
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.counts import with_counts
from jobs.chain.stages.documents import Corpora, documents_of, texts_and_places
from jobs.chain.stages.fuse import Fuse
from jobs.chain.stages.llm.round_state import Place, RoundState
from jobs.chain.stages.order import Order
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.score import Score
from jobs.chain.stages.stored_rows import Rankings as RankedArms
from jobs.chain.stages.users import request_counts
from jobs.chain.steps.asking import AskedFor, Asking, ShardAnswers
from jobs.chain.steps.contexts import FoundText, context_of, token_counter
from jobs.chain.steps.merging import QueryCandidates, candidates_of, merged
from jobs.chain.tables import ARM_REWRITE, ARM_ROUND, COUNT, DOCUMENT, FUSED, PAIR_SCORE
from jobs.counts import RoundQueries, arm_key
from jobs.tables import ERROR, ITERATE, REPEATED_QUERY, error_row, with_appended, with_columns, with_failure
from rewriters.engines import Request
from rewriters.guards.mask import Mask, unmasked
from rewriters.normalise import normalise
from rewriters.scores.thresholds import Quantile
from rewriters.steps.reading import read_step
from rewriters.steps.settings import LABEL_VARIABLES

RERANK = "rerank"  # value of `iterate.by`
_OF_ROUND = ("shard", "query_id", "query", "context", "values")  # columns of a round's block beside the refined queries


class _Due(NamedTuple):
    """A refined query that is asked for."""

    request: Request
    mask: Mask
    key: Key


class _Hit(NamedTuple):
    """A document among the first of an arm, with the scores by which it is ranked and graded."""

    doc_id: str
    score: float
    reranked: float | None


class Iterate:
    """A worker of the stage of further rounds."""

    NEEDS = ("shard", "query_id", "query", "context", "values", "stored", "documents", "fused", "ranked", "best", "counts")
    ADDS = pa.schema([("rounds", pa.list_(ARM_ROUND))])
    DROPS = ("best",)

    def __init__(
        self,
        work: SharedWork,
        device: str,
        job: AskedFor,
    ) -> None:
        """Starts the engines, and opens retrievers, rerankers and documents.

        Args:
            work: Of all arms.
            device: The torch device of the models.
            job: For which is asked, searched and scored.
        """
        self._work, self._round = work, round_work(work)
        self._iterating = work.generating("iteration")
        self._generation = dict(self._iterating)
        of = self._generation.values()
        most = max(int(one.decoding.get("max_tokens", 0)) for one in of)
        self._asking = Asking("iterate", [one.engine for one in of], job, most)
        self.start_up = self._asking.start_up
        self._counters = {number: token_counter(one) for number, one in self._iterating}
        self._documents = documents_of(work, self._generation)
        lists = work.keep_lists and self._iterating[0][0] == 0  # those of the job's first arm are written
        self._round = replace(self._round, keep_lists=lists)
        self._retrieve, self._fuse = Retrieve(self._round, device, job.run, job.store), Fuse(self._round)
        self._score = Score(work.rerankers, work.retrievers, device, job.store) if work.rerankers else None
        self._order = Order(work)
        self._alone = self._round.only.arm if self._round.only is not None and work.only is None else None

    def close(self) -> None:
        """Closes the engines."""
        self._asking.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the candidates and ranks of all rounds, the rounds, errors and costs."""
        state, empty = RoundState(table, self._work), self._empty(table)
        answers = self._asking.open(shard_of(table))
        for number in range(1, max(iterate_settings(of).rounds for _, of in self._iterating) + 1):
            due = self._due(table, state, number)
            if not due:
                break
            asked = self._asked(table, due, state)
            answers.add(one.request for one in asked.values())
            table = self._searched(table, self._texts(asked, answers, state, number), state, number)
            heartbeat()
        answers.close()
        table = self._with_hits(table, empty - self._empty(table), state)
        table = with_appended(with_appended(table, "errors", state.errors), "costs", state.costs)
        table = with_appended(table, "costs", [answers.costs(of) for of in state.requests])
        counts = self._counts(answers, state)
        rounds = pa.array(state.rounds, pa.list_(ARM_ROUND))
        return with_columns(with_counts(table, counts).drop_columns(list(self.DROPS)), self.ADDS, [rounds])

    def _empty(self, table: pa.Table) -> set[Place]:
        """Returns the arms and rows without a candidate."""
        block = Candidates(table, len(self._work.answers), len(self._work.rerankers))
        return {
            (arm, row)
            for arm, _ in self._iterating
            for row in np.flatnonzero(np.bincount(block.of(arm).row, minlength=block.rows) == 0).tolist()
        }

    def _with_hits(self, table: pa.Table, found: set[Place], state: RoundState) -> pa.Table:
        """Returns the block without the notes on queries without hits for which a round has found some."""
        if self._work.only is None:
            for arm, _ in found:
                state.counts[arm_key(self._work.answers[arm].arm, "no_hits")] -= 1
            return table
        rows = {row for _, row in found}
        errors = [
            [one for one in of if row not in rows or one["reason"] != "no_hits"]
            for row, of in enumerate(table.column("errors").to_pylist())
        ]
        index = table.schema.get_field_index("errors")
        return table.set_column(index, table.schema.field(index), pa.array(errors, pa.list_(ERROR)))

    def _due(self, table: pa.Table, state: RoundState, number: int) -> list[Place]:
        """Returns the arms and rows that need a round: their best score is below the threshold, and none has failed on them."""
        found = []
        reranked: Candidates | None = None
        for arm, of in self._iterating:
            settings = iterate_settings(of)
            if settings.by == RERANK:
                reranked = reranked or Candidates(table, len(self._work.answers), len(self._work.rerankers))
                state.note_reranked(arm, self._work.answers[arm], reranked)
            rows, below = range(table.num_rows) if settings.rounds >= number else (), settings.below
            assert not isinstance(below, Quantile)
            found += [
                (arm, row) for row in rows
                if (arm, row) not in state.ended and ((best := state.best.get((arm, row))) is None or best < below)
            ]  # fmt: skip
        return found

    def _asked(self, table: pa.Table, due: Sequence[Place], state: RoundState) -> dict[Place, _Due]:
        """Returns the request for each refined query, which is shown the first results of its arm as they are now."""
        shown = self._first(table, due, {arm: of.settings.documents for arm, of in self._iterating})
        wanted: dict[Corpora, list[str]] = {key: [] for key in self._documents}
        for (arm, _), hits in shown.items():
            wanted[self._work.answers[arm].documents] += [hit.doc_id for hit in hits]
        texts = texts_and_places(self._documents, wanted)
        found = {}
        for (arm, row), hits in shown.items():
            of, known = self._generation[arm], texts[self._work.answers[arm].documents]
            documents = [FoundText(hit.doc_id, hit.score, *known[hit.doc_id], hit.reranked) for hit in hits]
            context, mask = context_of(of, documents, self._counters[arm]), Mask(of.mask)
            tried = "\n".join(mask(text) for text in state.tried[arm, row]) or "(none)"
            values = {"documents": context.text, "tried": tried}
            if of.settings.labels is not None and of.step.variables & LABEL_VARIABLES:
                values |= {label.lower(): words or "(none)" for label, words in context.by_label.items()}
            request = of.step.request(state.queries[row], values, mask, of.decoding, of.engine.key)
            found[arm, row] = _Due(request, mask, self._asking.key(request))
        return found

    def _first(self, table: pa.Table, places: Collection[Place], most: Mapping[int, int]) -> dict[Place, list[_Hit]]:
        """Returns the first documents of some arms and rows; `most`: index of an arm -> how many."""
        block = Candidates(table, len(self._work.answers), len(self._work.rerankers))
        ranked, doc_ids = RankedArms(table, block, self._work), block.doc_ids.to_pylist()
        found: dict[Place, list[_Hit]] = {place: [] for place in places}
        for arm, documents in most.items():
            first = ranked.first(arm, documents)
            reranker = self._work.answers[arm].reranker
            for row, place, score in zip(first.row.tolist(), first.document.tolist(), first.score.tolist(), strict=True):
                if (arm, row) in found:
                    reranked = None if reranker is None else float(block.reranked[reranker][place])
                    found[arm, row].append(_Hit(doc_ids[place], score, reranked))
        return found

    def _texts(self, asked: Mapping[Place, _Due], answers: ShardAnswers, state: RoundState, number: int) -> dict[Place, str]:
        """Returns the refined queries that are to be searched; what cannot be read, or was searched before, ends the rounds."""
        found = {}
        for (arm, row), one in asked.items():
            of, made = self._generation[arm], answers.made[one.key].completion
            state.requests[row].setdefault(one.key, replace(one.request, name=of.name))
            state.needed.setdefault(f"{of.name}@{made.model}", {}).setdefault(one.key, set()).add(self._work.answers[arm].arm)
            result = read_step(of.step, made, one.request.query)
            said = result.text if of.step.output == "text" else result.fields.get("query")
            text = " ".join(unmasked(said or "", one.mask.values).split())
            known = {normalise(other) for other in (state.queries[row].text, *state.tried[arm, row])}
            reason, message = result.reason, result.message
            if reason is None and normalise(text) in known:
                reason, message = REPEATED_QUERY, "the refined query is one that was searched already, so no round follows"
            if reason is not None:
                state.ended.add((arm, row))
                error = error_row("iterate", of.name, reason, str(message), made.text, made.attempts)
                if error not in state.errors[row]:
                    state.errors[row].append(error)
                continue
            found[arm, row] = text
            state.tried[arm, row].append(text)
            state.rounds[row].append(
                {
                    "answer": arm, "round": number, "best": state.best.get((arm, row)), "text": text, "new": 0,
                    "model": made.model, "prompt_hash": one.request.prompt_hash,
                }
            )  # fmt: skip
        return found

    def _searched(self, table: pa.Table, texts: Mapping[Place, str], state: RoundState, number: int) -> pa.Table:
        """Returns the block with the candidates that refined queries add, ordered anew."""
        if not texts:
            return table
        rows = sorted({row for _, row in texts})
        kept = {arm: self._work.answers[arm].keep for arm, _ in self._iterating}
        results, candidates = self._first(table, texts, kept), candidates_of(table.take(pa.array(rows)))
        block = self._fuse(self._retrieve(self._block(table, rows, texts, number)))
        state.note_lists(block, rows, self._iterating)
        if self._score is not None:
            block = self._score(_without_known(block, candidates))
        state.add(block, rows, self._alone)
        more = [one for of in block.column("stored").to_pylist() for one in of]
        table = with_appended(table, "stored", [more, *([[]] * (table.num_rows - 1))])
        table = self._merged(table, block, rows, candidates, state)
        table = self._order(table.drop_columns(["ranked"]))
        for (arm, row), now in self._first(table, texts, kept).items():
            (last,) = [one for one in state.rounds[row] if (one["answer"], one["round"]) == (arm, number)]
            last["new"] = len({hit.doc_id for hit in now} - {hit.doc_id for hit in results[arm, row]})
        return table

    def _block(self, table: pa.Table, rows: Sequence[int], texts: Mapping[Place, str], number: int) -> pa.Table:
        """Returns the block of a round: the queries, with their refined queries as texts of the strategy `iterate`."""
        block = table.take(pa.array(rows)).select(_OF_ROUND)
        rewrites: list[list[dict[str, Any]]] = [
            [
                {
                    "strategy": ITERATE, "position": number, "text": text, "weight": 1.0, "search_as": "query", "model": "",
                    "prompt_hash": "", "parsed_as": "", "selected_reason": None, "position_weight": 1.0, "guards": [],
                    "arm": self._work.answers[arm].arm,
                }
                for (arm, at), text in texts.items() if at == row
            ]
            for row in rows
        ]  # fmt: skip
        empty: list[list[Any]] = [[]] * len(rows)
        columns = {
            "rewrites": pa.array(rewrites, pa.list_(ARM_REWRITE)), "counts": pa.array(empty, pa.list_(COUNT)),
            "costs": pa.array(empty, COSTS), "errors": pa.array(empty, pa.list_(ERROR)),
        }  # fmt: skip
        return with_columns(block, pa.schema([(name, one.type) for name, one in columns.items()]), columns.values())

    def _merged(
        self,
        table: pa.Table,
        block: pa.Table,
        rows: Sequence[int],
        candidates: Sequence[QueryCandidates],
        state: RoundState,
    ) -> pa.Table:
        """Returns the block with the candidates of a round merged into those of before, which are `candidates` of the rows."""
        arms = {
            place: (number, self._work.answers[number], iterate_settings(of))
            for place, (number, of) in enumerate(self._iterating)
        }
        found = [
            merged(before, more, arms, state.rankings.setdefault(row, {}))
            for row, before, more in zip(rows, candidates, candidates_of(block), strict=True)
        ]
        kinds = {"documents": DOCUMENT, "fused": FUSED} | ({"scores": PAIR_SCORE} if self._score is not None else {})
        for name, kind in kinds.items():
            changed = pa.array([getattr(one, name) for one in found], pa.list_(kind))
            at = np.arange(table.num_rows)
            at[list(rows)] = table.num_rows + np.arange(len(rows))
            both = pa.concat_arrays([table.column(name).combine_chunks(), changed])
            index = table.schema.get_field_index(name)
            table = table.set_column(index, table.schema.field(index), both.take(pa.array(at)))
        return table

    def _counts(self, answers: ShardAnswers, state: RoundState) -> Counter[str]:
        counts = Counter({name: count for name, count in state.counts.items() if count})
        for one in (one for of in state.rounds for one in of):
            key = RoundQueries(one["round"]).key
            counts[key if self._work.only is not None else arm_key(self._work.answers[one["answer"]].arm, key)] += 1
        if self._work.only is None:
            counts.update(request_counts("rounds", state.needed, answers.is_reused))
        return counts


def _without_known(block: pa.Table, candidates: Sequence[QueryCandidates]) -> pa.Table:
    """Returns the block of a round in which no pair is to be scored that `candidates` of before have a score of."""
    known = [
        {(before.documents[one["document"]]["doc_id"], one["reranker"]) for one in before.scores or ()} for before in candidates
    ]
    left = [
        [
            {"doc_id": one["doc_id"], "scored_by": [by for by in one["scored_by"] if (one["doc_id"], by) not in scored]}
            for one in of_row
        ]
        for scored, of_row in zip(known, block.column("documents").to_pylist(), strict=True)
    ]
    index = block.schema.get_field_index("documents")
    return block.set_column(index, block.schema.field(index), pa.array(left, pa.list_(DOCUMENT)))


def without_rounds(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which the stage failed, as it was before, with a row in errors; RetrieverErrors are raised."""
    table = with_failure(table, "iterate", error).drop_columns(list(Iterate.DROPS))
    return with_columns(table, Iterate.ADDS, [pa.array([[]] * table.num_rows, pa.list_(ARM_ROUND))])
