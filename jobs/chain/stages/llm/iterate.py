"""The stage of further rounds: queries that found little are rewritten from what was found, and searched again.

Rewrite, retrieve, read (Ma et al. 2023, arXiv 2305.14283), in rounds. A worker has an LLM, the retrievers and the rerankers; it
searches, fuses and scores by the stages of the chain, so that a round is a small block of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster.costs import COSTS
from cluster.run.stage import heartbeat
from jobs.chain.arms.generations import iterate_settings
from jobs.chain.arms.rounds import round_work
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.block import Ask, LlmBlock
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.fuse import Fuse
from jobs.chain.stages.llm.first_results import Place, ShownResults
from jobs.chain.stages.llm.round_merge import RoundMerge
from jobs.chain.stages.llm.round_state import RoundState, refined
from jobs.chain.stages.llm.stage import LlmStage
from jobs.chain.stages.order import Order
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.score import Score
from jobs.chain.steps.asking import AskedFor
from jobs.chain.steps.contexts import Context, FoundText, context_of, token_counter
from jobs.chain.steps.grading import document_values, grade_of
from jobs.chain.tables import ARM_REWRITE, ARM_ROUND, ASKED, COUNT
from jobs.counts import RoundQueries, arm_key
from jobs.tables import ERROR, ITERATE, with_appended, with_columns
from rewriters.guards.mask import Mask
from rewriters.steps.settings import LABEL_VARIABLES

RERANK = "rerank"  # value of `iterate.by`
_OF_ROUND = ("shard", "query_id", "query", "context", "values")  # columns of a round's block beside the refined queries


class _Due(NamedTuple):
    """A refined query that is asked for, from what is shown."""

    ask: Ask
    context: Context


class Iterate(LlmStage):
    """A worker of the stage of further rounds."""

    STAGE, QUANTITY = "iterate", "rounds"
    NEEDS = (*_OF_ROUND, "stored", "documents", "web", "fused", "ranked", "best", "counts")
    ADDS = pa.schema([("rounds", pa.list_(ARM_ROUND)), ("asked_in_rounds", pa.list_(ASKED))])
    DROPS = ("best",)

    def __init__(self, work: SharedWork, device: str, job: AskedFor) -> None:
        self._iterating = work.generating("iteration")
        self._generation = dict(self._iterating)
        super().__init__(work, job, [task for of in self._generation.values() for task in of.asked], self._generation)
        self._counters = {number: token_counter(one) for number, one in self._iterating}
        lists = work.keep_lists and self._iterating[0][0] == 0  # those of the job's first arm are written
        self._round = replace(round_work(work), keep_lists=lists)
        self._retrieve = Retrieve(self._round, device, job.run, job.store)
        self._fuse, self._order = Fuse(self._round), Order(work)
        score = Score(work.answers, work.rerankers, work.retrievers, device, job.store) if work.rerankers else None
        self._merge = RoundMerge(work, self._documents, score)
        self._searching = threading.Lock()  # several blocks are under way in a worker, and tokenizers bear one thread at a time
        self._alone = self._round.only.arm if self._round.only is not None and work.only is None else None

    def close(self) -> None:
        """Closes the engines, and ends what saves journals."""
        super().close()
        self._retrieve.close()

    def rows(self, table: pa.Table, block: LlmBlock) -> tuple[Any, ...]:
        """Returns the block with the candidates and ranks of all rounds, and the rounds."""
        results = ShownResults(table, self._work)
        state, empty = RoundState(table, self._work, block.queries), self._empty(results.block)
        for number in range(1, max(iterate_settings(of).rounds for _, of in self._iterating) + 1):
            due = self._due(results.block, state, number)
            if not due:
                break
            if texts := self._texts(self._asked(results, due, state, block), block, state, number):
                table = self._searched(table, texts, state, number)
                before, results = results, ShownResults(table, self._work)
                self._note_new(texts, before, results, state)
            heartbeat()
        table = self._with_hits(table, empty - self._empty(results.block), state)
        table = with_appended(with_appended(table, "errors", state.errors), "costs", state.costs).drop_columns(list(self.DROPS))
        block.counts.update(state.counts)
        for one in (one for of in state.rounds for one in of):
            block.count(one["answer"], RoundQueries(one["round"]).key)
        return table, state.rounds

    def _empty(self, block: Candidates) -> set[Place]:
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

    def _due(self, block: Candidates, state: RoundState, number: int) -> list[Place]:
        """Returns the arms and rows that need a round: their best score is below the threshold, and none has failed on them."""
        found = []
        for arm, of in self._iterating:
            settings = iterate_settings(of)
            if settings.by == RERANK:
                state.note_reranked(arm, self._work.answers[arm], block)
            rows, below = range(block.rows) if settings.rounds >= number else (), settings.below
            found += [
                (arm, row) for row in rows
                if (arm, row) not in state.ended and ((best := state.best.get((arm, row))) is None or best < below)
            ]  # fmt: skip
        return found

    def _asked(self, results: ShownResults, due: Sequence[Place], state: RoundState, block: LlmBlock) -> dict[int, list[_Due]]:
        """Returns the requests of each arm for refined queries, which are shown its first results as they are now."""
        shown = results.shown(self._documents, {arm: of.settings.documents for arm, of in self._iterating}, set(due))
        found: dict[int, list[_Due]] = {}
        for (arm, row), documents in self._graded({(arm, row): shown[arm][row] for arm, row in due}, block).items():
            of = self._generation[arm]
            context, mask = context_of(of, documents, self._counters[arm]), Mask(of.mask)
            tried = "\n".join(mask(text) for text in state.tried[arm, row]) or "(none)"
            values = {"documents": context.text, "tried": tried}
            if of.settings.labels is not None and of.step.variables & LABEL_VARIABLES:
                values |= {label.lower(): words or "(none)" for label, words in context.by_label.items()}
            found.setdefault(arm, []).append(_Due(block.ask(of, row, values, mask), context))
        return found

    def _graded(self, shown: Mapping[Place, list[FoundText]], block: LlmBlock) -> dict[Place, list[FoundText]]:
        """Returns documents with an LLM's grades, where the arm's are graded; what cannot be read is an error, and no grade."""
        asked: dict[int, list[Ask]] = {}
        for (arm, row), documents in shown.items():
            of = self._generation[arm]
            if of.grading is not None:
                texts = [document_values(one.text, of.document_chars) for one in documents]
                asked.setdefault(arm, []).extend(block.ask(of.grading, row, values) for values in texts)
        said = {arm: zip(asked[arm], replies, strict=True) for arm, replies in block.replies(asked).items()}
        found = {}
        for (arm, row), documents in shown.items():
            graded = list(documents)
            for place, (one, (ask, reply)) in enumerate(zip(documents, said.get(arm, ()), strict=False)):
                if (grade := grade_of(reply.result)) is None:
                    block.note(ask, reply, f"document {one.doc_id!r}: ")
                else:
                    graded[place] = one._replace(grade=float(grade))
            found[arm, row] = graded
        return found

    def _texts(self, asked: Mapping[int, Sequence[_Due]], block: LlmBlock, state: RoundState, number: int) -> dict[Place, str]:
        """Returns the refined queries that are to be searched; what cannot be read, or was searched before, ends the rounds."""
        found = {}
        replies = block.replies({arm: [one.ask for one in of] for arm, of in asked.items()})
        for arm, of_arm in asked.items():
            for (ask, context), reply in zip(of_arm, replies[arm], strict=True):
                row, step = ask.row, self._generation[arm].step
                text, reason, message = refined(step, reply.result, ask.mask, state.searched(arm, row))
                if reason is not None:
                    state.ended.add((arm, row))
                    block.note(ask, reply, reason=reason, message=message)
                    continue
                found[arm, row] = text
                state.tried[arm, row].append(text)
                shown = zip(context.documents, context.labels, strict=True)
                state.rounds[row].append(
                    {
                        "answer": arm, "round": number, "best": state.best.get((arm, row)), "text": text, "new": 0,
                        "model": reply.completion.model, "prompt_hash": ask.request.prompt_hash,
                        "documents": [{"doc_id": doc_id, "label": label or None} for doc_id, label in shown],
                    }
                )  # fmt: skip
        return found

    def _searched(self, table: pa.Table, texts: Mapping[Place, str], state: RoundState, number: int) -> pa.Table:
        """Returns the block with the candidates that refined queries add, ordered anew."""
        rows = sorted({row for _, row in texts})
        with self._searching:
            block = self._fuse(self._retrieve(self._block(table, rows, texts, number)))
            state.note_lists(block, rows, self._iterating)
            table, block = self._merge(table, block, rows, state)
        state.add(block, rows, self._alone)
        more = [one for of in block.column("stored").to_pylist() for one in of]
        table = with_appended(table, "stored", [more, *([[]] * (table.num_rows - 1))])
        return self._order(table.drop_columns(["ranked"]))

    def _note_new(self, texts: Mapping[Place, str], before: ShownResults, now: ShownResults, state: RoundState) -> None:
        """Notes how many results of each query are new in its last round."""
        for arm in dict.fromkeys(arm for arm, _ in texts):
            keep = self._work.answers[arm].keep
            had, has = before.doc_ids(arm, keep), now.doc_ids(arm, keep)
            for row in (row for of, row in texts if of == arm):
                last = next(one for one in reversed(state.rounds[row]) if one["answer"] == arm)
                last["new"] = len(set(has[row]) - set(had[row]))

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
