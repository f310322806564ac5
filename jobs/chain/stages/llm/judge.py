"""The judging stage: an LLM grades the first results and the answers of all arms; each text once, whichever arms have it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.chain.arms.tasks import ACCURACY, CRITERIA, RELEVANCE, LlmTask
from jobs.chain.block import Ask, LlmBlock, Step
from jobs.chain.stages.llm.first_results import Rows, ShownResults
from jobs.chain.stages.llm.stage import LlmStage
from jobs.chain.steps.contexts import NO_DOCUMENTS, beginning
from jobs.chain.worker import WorkerJob
from jobs.counts import WITHOUT_GOLD
from jobs.job.steps import GRADE_KEYS
from jobs.tables import JUDGEMENT
from rewriters.guards.mask import Mask
from rewriters.steps.results import StepResult
from rewriters.steps.settings import RelevanceSettings
from rewriters.strategy import render

NO_GOLD = "(none is known)"
Gold = Mapping[str, Sequence[str]]
"""Query_id -> gold answers."""


class JudgedText(NamedTuple):
    """A text that a judge was asked about: the first result of a query, or the answer of an arm."""

    kind: str
    ask: Ask
    doc_id: str | None
    arm: str | None


AskAbout = Callable[[int, str], Ask]
"""Row and text of a result -> what is asked about it; made once for all arms."""


class Judge(LlmStage):
    """A worker of the judging stage."""

    STAGE = "judge"
    NEEDS = ("shard", "query_id", "query", "context", "values", "documents", "fused", "web", "counts")
    ADDS = pa.schema([("judgements", pa.list_(JUDGEMENT))])

    def __init__(self, job: WorkerJob) -> None:
        self._gold, self._tasks = job.gold, {one.kind: one for one in job.work.tasks(self.STAGE)}
        settings = self._tasks[RELEVANCE].settings if RELEVANCE in self._tasks else None
        self._relevance = settings if isinstance(settings, RelevanceSettings) else None
        super().__init__(job)

    def shown(self) -> Iterable[int]:
        """Returns the arms of which documents are shown, by index."""
        return self._arms if RELEVANCE in self._tasks else ()

    def rows(self, block: LlmBlock) -> tuple[Any, ...]:
        """Returns the judgements; that of a result once for all arms."""
        table, work, numbers = block.table, self._work, range(len(self._work.answers))
        shown: Mapping[int, Rows] = {}
        if self._relevance is not None:
            most = dict.fromkeys(numbers, self._relevance.documents)
            shown = ShownResults(table, work).shown(self._documents, most, places=False)
        answers: list[list[dict[str, Any] | None]] = [[None] * len(block.queries) for _ in numbers]
        for row, of_row in enumerate(table.column("answers").to_pylist() if "answers" in table.column_names else ()):
            for row_judgement in of_row:
                answers[row_judgement["answer"]][row] = row_judgement

        @cache
        def ask_about(row: int, text: str) -> Ask:
            shown = beginning(text, None if self._relevance is None else self._relevance.document_chars)
            return block.ask(self._tasks[RELEVANCE], row, {"document": shown})

        if ACCURACY in self._tasks:
            answered = [query for row, query in enumerate(block.queries) if any(of[row] for of in answers)]
            block.counts[WITHOUT_GOLD] = sum(query.query_id not in self._gold for query in answered)
        judgements: list[dict[tuple[Any, ...], dict[str, Any]]] = [{} for _ in block.queries]
        steps = {
            number: judge(self._tasks, block, arm.arm, shown.get(number), answers[number], self._gold, ask_about)
            for number, arm in enumerate(work.answers)
        }
        for judged in block.run(steps).values():
            for about, judgement in judged:
                judgements[about.ask.row].setdefault((about.ask.key, about.doc_id, about.arm, judgement["kind"]), judgement)
        return ([list(of.values()) for of in judgements],)


def judge(
    tasks: Mapping[str, LlmTask],
    block: LlmBlock,
    arm: str,
    results: Rows | None,
    answers: Sequence[Mapping[str, Any] | None],
    gold: Gold,
    ask_about: AskAbout,
) -> Step[list[tuple[JudgedText, dict[str, Any]]]]:
    """Grades the first results and the answers of an arm.

    Args:
        tasks: Kind -> what the judge is asked.
        block: The queries.
        arm: Its name.
        results: Of each query, best first; None: no results are judged.
        answers: Of each query; None: it has none.
        gold: Answers that are right.
        ask_about: See there.
    """
    asked: list[JudgedText] = []
    for kind, task in tasks.items():
        if kind == RELEVANCE:
            for row, documents in enumerate(results or ()):
                asked += [JudgedText(kind, ask_about(row, one.text).about(one.doc_id), one.doc_id, None) for one in documents]
            continue
        for row, answer in enumerate(answers):
            if answer is not None:
                known = gold.get(block.queries[row].query_id, ())
                asked.append(JudgedText(kind, _about_answer(task, block, row, answer, known), None, arm))
    judged = []
    for text, reply in zip(asked, (yield [one.ask for one in asked]), strict=True):
        if reply.result.text is None:
            named = f"document {text.doc_id!r}" if text.arm is None else f"the answer of {arm}"
            block.note(text.ask, reply, f"{named}: ")
            continue
        judged += [(text, judgement) for judgement in _judgements(text, reply.result, reply.completion.model)]
    return judged


def _about_answer(task: LlmTask, block: LlmBlock, row: int, answer: Mapping[str, Any], gold: Sequence[str]) -> Ask:
    mask = Mask(task.mask)
    mask(block.queries[row].text)  # first, so that the others have the placeholders of the query
    values = {"answer": mask(answer["text"])}
    if task.kind == CRITERIA:  # masked as the answer is, which is compared with it
        shown = [
            render(task.step.document, {
                "number": str(number), "source": f" (source: {source})" if source else "", "label": "", "text": text,
            })
            for number, (text, source) in enumerate(zip(answer["texts"], answer["places"], strict=True), start=1)
        ]  # fmt: skip
        values["documents"] = mask("\n\n".join(shown) or NO_DOCUMENTS)
    else:
        values["gold"] = mask("\n".join(f"- {known}" for known in gold)) or NO_GOLD
    return block.ask(task, row, values, mask)


def _judgements(text: JudgedText, result: StepResult, model: str) -> list[dict[str, Any]]:
    kind = text.kind
    if result.grade is not None:
        grades = {kind: result.grade}
    elif kind in GRADE_KEYS:
        grades = {kind: result.grades[GRADE_KEYS[kind]]}
    else:
        grades = {f"{kind}/{name}": grade for name, grade in result.grades.items()}
    return [
        {
            "kind": name, "doc_id": text.doc_id, "arm": text.arm, "grade": grade, "sample": text.ask.request.sample,
            "model": model, "prompt_hash": text.ask.request.prompt_hash,
        }
        for name, grade in grades.items()
    ]  # fmt: skip
