"""The answering stage: an LLM answers each query from the first results of each arm; arms with one context share the answer."""

from typing import Any

import pyarrow as pa

from jobs.chain.arms.tasks import LlmTask
from jobs.chain.block import LlmBlock, Step
from jobs.chain.stages.llm.first_results import Rows, ShownResults, corrected_results
from jobs.chain.stages.llm.stage import LlmStage
from jobs.chain.steps.contexts import citations, context_of
from jobs.chain.tables import ARM_ANSWER
from jobs.chain.worker import WorkerJob
from jobs.tables import WRONG_CITATION
from rewriters.guards.mask import unmasked

Answers = list[list[dict[str, Any]]]


class Generate(LlmStage):
    """A worker of the answering stage."""

    STAGE = "answer"
    # and `grades` and `corrections`, where results are graded
    NEEDS = ("shard", "query_id", "query", "context", "values", "documents", "fused", "web", "counts")
    ADDS = pa.schema([("answers", pa.list_(ARM_ANSWER))])

    def __init__(self, job: WorkerJob) -> None:
        super().__init__(job)
        self._tasks = {number: arm.tasks["answer"] for number, arm in self._arms.items()}

    def rows(self, block: LlmBlock) -> tuple[Any, ...]:
        """Returns the answers of all arms."""
        corrected = {number: arm.grade for number, arm in self._work.doing("grade").items() if arm.grade is not None}
        most = {number: corrected.get(number, of.context).documents for number, of in self._tasks.items()}
        first = ShownResults(block.table, self._work).shown(self._documents, most)
        first |= {number: corrected_results(block.table, number, first[number]) for number in corrected.keys() & first.keys()}
        steps = {number: answer(of, block, first[number]) for number, of in self._tasks.items()}
        answers_of: Answers = [[] for _ in block.queries]
        for number, answers in block.run(steps).items():
            for row, of_row in enumerate(answers):
                answers_of[row] += [one | {"answer": number} for one in of_row]
                block.counts["answers_cut"] += sum(one["cut"] for one in of_row)
        return (answers_of,)


def answer(task: LlmTask, block: LlmBlock, results: Rows) -> Step[Answers]:
    """Answers each query from its first results; a query whose answer cannot be read has none.

    Args:
        task: How the arm answers.
        block: The queries.
        results: Of each query, best first.
    """
    shown = [documents[: task.context.documents] for documents in results]
    contexts = [context_of(task, documents, task.count_tokens) for documents in shown]
    asks = [block.ask(task, row, {"documents": context.text}) for row, context in enumerate(contexts)]
    answers: Answers = [[] for _ in asks]
    for ask, reply, context in zip(asks, (yield asks), contexts, strict=True):
        result = reply.result
        if result.text is None:
            block.note(ask, reply)
            continue
        text = unmasked(result.text, ask.mask.values)
        cited, wrong = citations(text, context.documents)
        if wrong:
            numbers = ", ".join(map(str, wrong))
            message = f"the answer cites {numbers}, and its context has {len(context.documents)} documents"
            block.note(ask, reply, reason=WRONG_CITATION, message=message, raw=text)
        documents = [
            {"doc_id": doc_id, "label": label or None} for doc_id, label in zip(context.documents, context.labels, strict=True)
        ]
        from_documents = shown[ask.row][: len(context.documents)]
        answers[ask.row].append(
            {
                "text": text, "cut": result.cut, "cited": list(cited), "documents": documents,
                "texts": [one.text for one in from_documents], "places": [one.source for one in from_documents],
                "left_out": context.left_out, "cut_documents": context.cut, "model": reply.completion.model,
                "prompt_hash": ask.request.prompt_hash,
            }
        )  # fmt: skip
    return answers
