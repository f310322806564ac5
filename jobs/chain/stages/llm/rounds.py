"""The rounds of one arm: which queries need a further one, and how an LLM refines them from what was found."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.block import LlmBlock, Step
from jobs.chain.search_texts import Text
from jobs.chain.searches import RoutedSearch
from jobs.chain.stages.candidates import BlockCandidates, Candidates
from jobs.chain.stages.llm.grade import grade_of
from jobs.chain.steps.contexts import FoundText, beginning, context_of
from jobs.job.steps import LABEL_GRADES
from jobs.tables import ITERATE, ORIGINAL, REPEATED_QUERY
from retrievers.retriever import SearchText
from retrievers.settings import FuseSettings
from rewriters.guards.mask import Mask, unmasked
from rewriters.normalise import normalise
from rewriters.steps.results import StepResult
from rewriters.steps.settings import LABEL_VARIABLES, LabelGradeSettings

RERANK = "rerank"  # value of `iterate.by`


class ArmRounds:
    """The rounds of one arm in a block, while they are made.

    Attributes:
        number: The arm's index.
        answer: The arm, as the lists of its refined queries are fused.
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
        self.number, self.rounds = number, answer.tasks["iterate"].rounds
        self.answer = replace(answer, strategies=frozenset({ITERATE}), fuse=answer.fuse.model_copy(update=fuse))
        routed = {name: search.retrievers[name] for name in search.route(ITERATE)}
        lists = [(row, hits["retriever"], hits["score"]) for row, of_row in enumerate(best) for hits in of_row
                 if hits["search"] == answer.search]  # fmt: skip
        self.search = replace(search, retrievers=routed, together=frozenset(), joined=None, fuse=FuseSettings())
        self.tried: list[list[str]] = [[] for _ in range(rows)]
        self.best, self.ended = np.full(rows, -np.inf), np.zeros(rows, dtype=bool)
        self.rankings = [BlockCandidates(candidates.doc_ids, candidates.pages, {number: candidates.of_arm(number)})]
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
        self.ended |= ~block.has_scores[self.answer.reranker]
        ranked = block.ranked(self.number)
        np.fmax.at(self.best, ranked.row, ranked.reranked)

    def due(self, number: int) -> list[int]:
        """Returns the rows that need a round: their best score is below the threshold, and none has failed on them."""
        if number > self.rounds.rounds:
            return []
        return np.flatnonzero(~self.ended & ((self.best < self.rounds.below) | np.isneginf(self.best))).tolist()

    def routed(self, texts: Mapping[int, str], number: int) -> RoutedSearch:
        """Returns the searches of a round; `texts`: row -> its refined query."""
        own = [Text(row, 1, ITERATE, number, 1.0, 1.0, SearchText(text, "query")) for row, text in texts.items()]
        retrievers = self.search.retrievers
        return RoutedSearch(retrievers, dict.fromkeys(retrievers, own), {self.answer.strategies: [self.answer.arm]})


def refine(
    rounds: ArmRounds, block: LlmBlock, number: int, shown: Mapping[int, Sequence[FoundText]]
) -> Step[dict[int, dict[str, Any]]]:
    """Refines queries from their first results; one that cannot be read, or was searched before, ends their rounds.

    Args:
        rounds: The rounds of the arm.
        block: The queries.
        number: Of the round.
        shown: Row -> its first results.

    Returns:
        Row -> the refined query, and what it was made from, as a row of rounds/.
    """
    task, grading = rounds.answer.tasks["iterate"], rounds.answer.tasks.get(LABEL_GRADES)
    refined: dict[int, dict[str, Any]] = {}
    graded = {row: list(documents) for row, documents in shown.items()}
    if grading is not None:
        places = [(row, place) for row, documents in graded.items() for place in range(len(documents))]
        most = grading.settings.document_chars if isinstance(grading.settings, LabelGradeSettings) else None
        asks = [
            block.ask(grading, row, {"document": beginning(document.text, most)}).about(document.doc_id)
            for row, documents in graded.items()
            for document in documents
        ]
        for (row, at), ask, reply in zip(places, asks, (yield asks), strict=True):
            if (grade := grade_of(reply.result)) is None:
                block.note(ask, reply, f"document {graded[row][at].doc_id!r}: ")
            else:
                graded[row][at] = graded[row][at]._replace(grade=float(grade))
    asks, contexts = [], []
    for row, documents in graded.items():
        context, mask = context_of(task, documents, task.count_tokens), Mask(task.mask)
        tried = "\n".join(mask(text) for text in rounds.tried[row]) or "(none)"
        values = {"documents": context.text, "tried": tried}
        if rounds.rounds.labels is not None and task.step.variables & LABEL_VARIABLES:
            values |= {label.lower(): words or "(none)" for label, words in context.by_label.items()}
        asks.append(block.ask(task, row, values, mask))
        contexts.append(context)
    for ask, reply, context in zip(asks, (yield asks), contexts, strict=True):
        text, reason, message = _refined(task, reply.result, ask.mask, [block.queries[ask.row].text, *rounds.tried[ask.row]])
        if reason is not None:
            rounds.ended[ask.row] = True
            block.note(ask, reply, reason=reason, message=message)
            continue
        rounds.tried[ask.row].append(text)
        labelled = zip(context.documents, context.labels, strict=True)
        best = float(rounds.best[ask.row])
        refined[ask.row] = {
            "answer": rounds.number, "round": number, "best": None if np.isneginf(best) else best, "text": text, "new": 0,
            "model": reply.completion.model, "prompt_hash": ask.request.prompt_hash,
            "documents": [{"doc_id": doc_id, "label": label or None} for doc_id, label in labelled],
        }  # fmt: skip
    return refined


def _refined(task: LlmTask, result: StepResult, mask: Mask, searched: Collection[str]) -> tuple[str, str | None, str | None]:
    """Returns the refined query of an answer, and why it is not searched, if it is not: reason and message."""
    answer = result.text if task.step.output == "text" else result.fields.get("query")
    text = " ".join(unmasked(answer or "", mask.values).split())
    if result.reason is None and not text:
        return "", "unparsable", "the answer has no query"
    if result.reason is None and normalise(text) in map(normalise, searched):
        return text, REPEATED_QUERY, "the refined query is one that was searched already, so no round follows"
    return text, result.reason, result.message
