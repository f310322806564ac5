"""The stage of further rounds: queries that found little are rewritten from what was found, and searched again.

Rewrite, retrieve, read (Ma et al. 2023, arXiv 2305.14283), in rounds. A worker has an LLM, the retrievers and the rerankers. A
refined query is a text of the strategy `iterate`, its position is the round. Its lists are fused as those of the arm are.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.run.stage import heartbeat
from cluster.storage import open_storage
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.block import LlmBlock, Step
from jobs.chain.lists import lists_of, stored_rows
from jobs.chain.search_texts import Text
from jobs.chain.searches import Retrieval, RoutedSearch
from jobs.chain.stages.candidates import UNRANKED, BlockCandidates, Candidates, candidate_columns, moved_scores, united
from jobs.chain.stages.cosines import similarity
from jobs.chain.stages.fuse import SearchLists
from jobs.chain.stages.llm.first_results import ShownResults
from jobs.chain.stages.llm.merging import merged
from jobs.chain.stages.llm.stage import LlmStage
from jobs.chain.stages.score import Score
from jobs.chain.stages.stored_rows import with_stored
from jobs.chain.stages.web.web_hits import with_web
from jobs.chain.steps.contexts import FoundText, TokensOf, context_of, token_counter
from jobs.chain.steps.grading import document_values, grade_of
from jobs.chain.tables import ARM_ROUND, ASKED
from jobs.chain.worker import WorkerJob
from jobs.counts import RoundQueries
from jobs.job.steps import LABEL_GRADES
from jobs.tables import ITERATE, ORIGINAL, REPEATED_QUERY, with_appended
from retrievers.retriever import SearchText
from retrievers.settings import FuseSettings
from rewriters.guards.mask import Mask, unmasked
from rewriters.normalise import normalise
from rewriters.steps.reading import StepResult
from rewriters.steps.settings import LABEL_VARIABLES, LabelGradeSettings

RERANK = "rerank"  # value of `iterate.by`


class ArmRounds:
    """The rounds of one arm in a block, while they are made.

    Attributes:
        number: The arm's index.
        answer: The arm, as the lists of its refined queries are fused.
        task: How its queries are refined.
        grading: How documents are graded before; None: they are not.
        rounds: How many there are, and when.
        search: Of its refined queries.
        tried: The refined queries of each row.
        best: The best score of each row so far, shape (rows,); -inf: none.
        ended: The rows without a further round, shape (rows,), bool.
        rankings: The candidates of each round, those before the first included.
    """

    def __init__(self, number: int, work: SharedWork, candidates: Candidates, best: Sequence[Any]) -> None:
        """Begins before the first round; `best` is the column of a block."""
        answer, rows = work.answers[number], candidates.rows
        search, fuse = work.searches[answer.search], {"weights": {ORIGINAL: 0.0}, "redundancy": "none"}
        self.number, self.task, self.grading = number, answer.tasks["iterate"], answer.tasks.get(LABEL_GRADES)
        self.rounds = self.task.rounds
        self.answer = replace(answer, strategies=frozenset({ITERATE}), fuse=answer.fuse.model_copy(update=fuse))
        routed = {name: search.retrievers[name] for name in search.route(ITERATE)}
        lists = [(row, one["retriever"], one["score"]) for row, of_row in enumerate(best) for one in of_row
                 if one["search"] == answer.search]  # fmt: skip
        self.search = replace(search, retrievers=routed, together=frozenset(), joined=None, fuse=FuseSettings())
        self.tried: list[list[str]] = [[] for _ in range(rows)]
        self.best, self.ended = np.full(rows, -np.inf), np.zeros(rows, dtype=bool)
        self.rankings = [BlockCandidates(candidates.doc_ids, candidates.pages, {number: candidates.of(number)})]
        self.note_lists(lists)

    def note_lists(self, lists: Iterable[tuple[int, str, float]]) -> None:
        """Notes the best scores of lists, where rounds go by a retriever's: row, retriever and score of each."""
        for row, retriever, score in lists:
            if retriever == self.rounds.by:
                self.best[row] = max(self.best[row], score)

    def note_scores(self, block: Candidates) -> None:
        """Notes the best scores of the reranker, where rounds go by them; where it failed, rounds end."""
        if self.rounds.by != RERANK:
            return
        assert self.answer.reranker is not None
        self.ended |= ~block.has_scores
        of = block.of(self.number)
        own = block.rank_in(self.number) <= block.pairs(self.number)[of.row]
        np.fmax.at(self.best, of.row[own], block.reranked[self.answer.reranker][of.document[own]])

    def due(self, number: int) -> list[int]:
        """Returns the rows that need a round: their best score is below the threshold, and none has failed on them."""
        if number > self.rounds.rounds:
            return []
        return np.flatnonzero(~self.ended & ((self.best < self.rounds.below) | np.isneginf(self.best))).tolist()

    def routed(self, texts: Mapping[int, str], number: int) -> RoutedSearch:
        """Returns the searches of a round; `texts`: row -> its refined query."""
        of = [Text(row, 1, ITERATE, number, 1.0, 1.0, SearchText(text, "query")) for row, text in texts.items()]
        return RoutedSearch(self.search, dict.fromkeys(self.search.retrievers, of), {self.answer.strategies: [self.answer.arm]})


def refine(
    of: ArmRounds, block: LlmBlock, number: int, shown: Mapping[int, Sequence[FoundText]], count_tokens: TokensOf
) -> Step[dict[int, dict[str, Any]]]:
    """Refines queries from their first results; one that cannot be read, or was searched before, ends their rounds.

    Args:
        of: The rounds of the arm.
        block: The queries.
        number: Of the round.
        shown: Row -> its first results.
        count_tokens: Returns the tokens of a text.

    Returns:
        Row -> the refined query, and what it was made from, as a row of rounds/.
    """
    task, found = of.task, dict[int, dict[str, Any]]()
    graded = {row: list(documents) for row, documents in shown.items()}
    if of.grading is not None:
        places = [(row, place) for row, documents in graded.items() for place in range(len(documents))]
        most = of.grading.settings.document_chars if isinstance(of.grading.settings, LabelGradeSettings) else None
        asks = [
            block.ask(of.grading, row, document_values(one.text, most)).about(one.doc_id)
            for row, documents in graded.items()
            for one in documents
        ]
        for (row, place), ask, reply in zip(places, asks, (yield asks), strict=True):
            if (grade := grade_of(reply.result)) is None:
                block.note(ask, reply, f"document {graded[row][place].doc_id!r}: ")
            else:
                graded[row][place] = graded[row][place]._replace(grade=float(grade))
    asks, contexts = [], []
    for row, documents in graded.items():
        context, mask = context_of(task, documents, count_tokens), Mask(task.mask)
        tried = "\n".join(mask(text) for text in of.tried[row]) or "(none)"
        values = {"documents": context.text, "tried": tried}
        if of.rounds.labels is not None and task.step.variables & LABEL_VARIABLES:
            values |= {label.lower(): words or "(none)" for label, words in context.by_label.items()}
        asks.append(block.ask(task, row, values, mask))
        contexts.append(context)
    for ask, reply, context in zip(asks, (yield asks), contexts, strict=True):
        text, reason, message = _refined(task, reply.result, ask.mask, [block.queries[ask.row].text, *of.tried[ask.row]])
        if reason is not None:
            of.ended[ask.row] = True
            block.note(ask, reply, reason=reason, message=message)
            continue
        of.tried[ask.row].append(text)
        labelled = zip(context.documents, context.labels, strict=True)
        best = float(of.best[ask.row])
        found[ask.row] = {
            "answer": of.number, "round": number, "best": None if np.isneginf(best) else best, "text": text, "new": 0,
            "model": reply.completion.model, "prompt_hash": ask.request.prompt_hash,
            "documents": [{"doc_id": doc_id, "label": label or None} for doc_id, label in labelled],
        }  # fmt: skip
    return found


def _refined(task: LlmTask, result: StepResult, mask: Mask, searched: Collection[str]) -> tuple[str, str | None, str | None]:
    """Returns the refined query of an answer, and why it is not searched, if it is not: reason and message."""
    said = result.text if task.step.output == "text" else result.fields.get("query")
    text = " ".join(unmasked(said or "", mask.values).split())
    if result.reason is None and not text:
        return "", "unparsable", "the answer has no query"
    if result.reason is None and normalise(text) in map(normalise, searched):
        return text, REPEATED_QUERY, "the refined query is one that was searched already, so no round follows"
    return text, result.reason, result.message


class Iterate(LlmStage):
    """A worker of the stage of further rounds."""

    STAGE, QUANTITY = "iterate", "rounds"
    NEEDS = ("shard", "query_id", "query", "context", "values", "stored", "documents", "web", "fused", "best", "counts")
    ADDS = pa.schema([("rounds", pa.list_(ARM_ROUND)), ("asked_in_rounds", pa.list_(ASKED))])
    DROPS = ("best",)

    def __init__(self, job: WorkerJob) -> None:
        super().__init__(job)
        work = job.work
        self._storage = open_storage(job.run)
        self._counters = {number: token_counter(arm.tasks["iterate"]) for number, arm in self._arms.items()}
        searches = [work.searches[arm.search] for arm in self._arms.values()]
        keys = {search.retrievers[name] for search in searches for name in search.route(ITERATE)}
        searched = {key: one for key, one in work.retrievers.items() if key in keys}
        self._retrieval = Retrieval(searched, self._storage, job.store, job.device)
        dropping = {arm.documents for arm in self._arms.values() if arm.drops}
        self._texts = {key: partial(self._documents[key].texts, alive=heartbeat) for key in dropping}
        self._score = Score(job) if work.rerankers else None
        self._searching = threading.Lock()  # several blocks are under way in a worker, and tokenizers bear one thread at a time

    def close(self) -> None:
        """Closes the engines, and ends what saves journals."""
        super().close()
        self._retrieval.close()

    def rows(self, table: pa.Table, block: LlmBlock) -> tuple[Any, ...]:
        """Returns the block with the candidates of all rounds, and the rounds."""
        results = ShownResults(table, self._work)
        best = table.column("best").to_pylist()
        arms = {number: ArmRounds(number, self._work, results.block, best) for number in self._arms}
        rounds: list[list[dict[str, Any]]] = [[] for _ in block.queries]
        for number in range(1, max(of.rounds.rounds for of in arms.values()) + 1):
            for of in arms.values():
                of.note_scores(results.block)
            due = {at: rows for at, of in arms.items() if (rows := of.due(number))}
            if not due:
                break
            most = {at: arms[at].rounds.documents for at in due}
            shown = results.shown(self._documents, most, {(at, row) for at, rows in due.items() for row in rows})
            steps = {
                at: refine(arms[at], block, number, {row: shown[at][row] for row in rows}, self._counters[at])
                for at, rows in due.items()
            }
            refined = {at: found for at, found in block.run(steps).items() if found}
            if refined:
                texts = {at: {row: one["text"] for row, one in found.items()} for at, found in refined.items()}
                with self._searching:
                    table = self._searched(table, block, {at: arms[at] for at in texts}, texts, number)
                had, results = results, ShownResults(table, self._work)
                for at, found in refined.items():
                    self._add(rounds, found, *(one.doc_ids(at, self._work.answers[at].keep) for one in (had, results)))
                    block.count(at, RoundQueries(number).key, len(found))
            heartbeat()
        return table.drop_columns(list(self.DROPS)), rounds

    def _add(
        self, rounds: Sequence[list[dict[str, Any]]], found: Mapping[int, dict[str, Any]], had: Sequence[list[str]],
        has: Sequence[list[str]],
    ) -> None:  # fmt: skip
        """Adds a round of an arm to those of each row, with how many of its results are new."""
        for row, one in found.items():
            rounds[row].append(one | {"new": len(set(has[row]) - set(had[row]))})

    def _searched(
        self,
        table: pa.Table,
        block: LlmBlock,
        arms: Mapping[int, ArmRounds],
        texts: Mapping[int, Mapping[int, str]],
        number: int,
    ) -> pa.Table:
        """Returns the block with the candidates that refined queries add, and what they have cost.

        Args:
            table: The block.
            block: For counts.
            arms: Those with refined queries, by index.
            texts: Index of an arm -> row -> its refined query.
            number: Of the round.
        """
        work, before, parts = self._work, Candidates(table, self._work), []
        routed = [of.routed(texts[at], number) for at, of in arms.items()]
        with self._retrieval.block(table, work.only is None) as searches:
            found, cosines = searches.search(routed), similarity(table.num_rows, [], None)
            table, stored = with_web(table, routed, found, searches.web)
            ids = table.column("query_id").combine_chunks()
            for (at, of), lists in zip(arms.items(), found, strict=True):
                pages = searches.pages(of.search, lists)
                fused = SearchLists(lists_of(lists, of.search), table.num_rows, cosines, pages, work.keep_sources)
                of.note_lists(fused.best())
                candidates = fused.fuse(of.answer, self._texts).candidates
                of.rankings.append(BlockCandidates(fused.hits.doc_ids, fused.pages, {at: candidates}))
                texts_of = (
                    self._texts[of.answer.documents] if of.answer.drops else None
                )  # other arms may drop what this one keeps
                parts.append(merged(of.rankings, table.num_rows, of.answer, of.rounds, texts_of))
                if at == 0 and work.keep_lists:
                    stored["runs"] = stored_rows(ids, lists, of.answer.retrieved)
        block.counts.update(searches.counts)
        table = with_stored(table, self._storage, stored)
        table = with_appended(table, "costs", searches.spent)
        others = {at: before.of(at) for at in range(len(work.answers)) if at not in arms}
        scored = np.flatnonzero(~np.isnan(before.reranked).all(axis=0)) if len(work.rerankers) else np.zeros(0, dtype=np.int64)
        others[UNRANKED] = before.documents(scored)
        columns = candidate_columns(table.num_rows, united([BlockCandidates(before.doc_ids, before.pages, others), *parts]))
        table = _with(table, dict(zip(("documents", "fused", "web"), columns, strict=True)))
        if self._score is not None:
            after = Candidates(table.drop_columns("scores"), work)
            table = _with(table, {"scores": moved_scores(before, after)})
            scores = self._score.scored(table)
            rows = {row for of_arm in texts.values() for row in of_arm}
            spent = [of_row if row in rows else [] for row, of_row in enumerate(scores.spent)]
            table = _with(with_appended(table, "costs", spent), {"scores": scores.scores})
            block.counts.update(scores.counts if work.only is None else {})
        return table


def _with(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Returns a block with other values in some of its columns."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), values)
    return table
