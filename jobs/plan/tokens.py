"""Tokens and seconds that missing requests take.

Prompts that are known are counted, and others of the same name are like them, else like those of answers that the store has of
the same engine; answers are as long, and take as long, as these. Without any, a prompt is as long as its template and what it
shows may be, and an answer has `max_tokens`.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from statistics import fmean
from typing import Any

import pyarrow as pa

from cluster.errors import ClusterError, RetrieverError
from cluster.storage import open_storage
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.steps.contexts import beginning
from jobs.chain.store.files import Space, StoreFiles, read_range
from jobs.job.retrievers import open_documents
from jobs.plan.amounts import NOTHING, Amount, exactly, of_number, total
from jobs.plan.work import WorkPart
from rewriters.engines import Request
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.strategy import render

STORED_ANSWERS = 500  # of a request that are read
OVERHEAD = 50  # of them whose prompts are counted, to see what a chat template adds
UNKNOWN_OVERHEAD = 64  # tokens that a chat template may add
DOCUMENTS = 100  # of an index, whose lengths stand for those of all
_ROWS = pa.schema(
    [
        ("query_id", pa.string()),
        ("request", pa.string()),
        ("prompt", pa.string()),
        *((name, pa.int64()) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")),
        *((name, pa.float64()) for name in ("seconds", "device_seconds")),
    ]
)


class Tokens:
    """Counts tokens and seconds of a job's missing requests."""

    def __init__(self, work: SharedWork, parts: Iterable[WorkPart], store: StoreFiles) -> None:
        self._work, self._longest, self._store = work, max(map(_longest, parts), default=0), store

    def quantities(self, number: Amount, part: WorkPart, some: Sequence[Request]) -> dict[str, Amount] | None:
        """Returns tokens and seconds of requests of one name, of which `some` are known; None: prompts have no bound."""
        assert part.engine is not None
        names = ("prompt_tokens", "cached_tokens", "completion_tokens", "seconds", "device_seconds")
        if part.engine.settings.is_recorded or not number.high:
            return dict.fromkeys(names, NOTHING)
        rows, counter = self._answers(part), TokenCounter(part.engine.settings.counted_by)
        prompts = self._prompts(number, part, some, rows, counter)
        if prompts is None:
            return None
        lengths = [row["completion_tokens"] for row in rows]
        amounts = {"prompt_tokens": prompts, "completion_tokens": of_number(lengths, number, max([_longest(part), *lengths]))}
        if rows:
            cached = sum(row["cached_tokens"] or 0 for row in rows) / sum(row["prompt_tokens"] for row in rows)
            # what a cache has is cheap: the least is with all of it, the most without
            amounts["cached_tokens"] = Amount(prompts.low, prompts.expected * cached, 0) if cached else NOTHING
            for key in ("seconds", "device_seconds"):
                amounts[key] = number.within_twice(fmean(row[key] or 0.0 for row in rows))
        return amounts

    def _answers(self, part: WorkPart) -> list[dict[str, Any]]:
        """Returns stored answers to requests of a name, of some files of an engine's space, that have tokens."""
        assert part.engine is not None
        name = part.task.step.name if isinstance(part.task, LlmTask) else part.task.base if part.task else ""
        space, answers = Space("completions", part.engine.space), list[dict[str, Any]]()
        for file in self._store.names.get(space, ()):
            if len(answers) < STORED_ANSWERS:
                rows = read_range(open_storage(self._store.root), f"{space.folder}/{file}", schema=_ROWS).to_pylist()
                answers += [row for row in rows if row["request"] == name and row["prompt_tokens"]]
        return answers[:STORED_ANSWERS]

    def _prompts(
        self, number: Amount, part: WorkPart, some: Sequence[Request], rows: Sequence[Any], counter: TokenCounter
    ) -> Amount | None:
        """Returns the tokens of prompts; None: how long documents are is not known."""
        if not some and rows:
            sizes = [row["prompt_tokens"] for row in rows]
            return of_number(sizes, number, 2 * max(sizes))
        if not some:
            most = self._longest_prompt(part, counter)
            return None if most is None else Amount(0, most * number.expected, (2 * most + UNKNOWN_OVERHEAD) * number.high)
        counted, apart = [float(counter.count(f"{request.system}{request.prompt}")) for request in some], 0.0
        if rows:
            added = [row["prompt_tokens"] - counter.count(str(row["prompt"])) for row in rows[:OVERHEAD]]
            counted, apart = [counter.count(request.prompt) + fmean(added) for request in some], max(added) - min(added)
        known = min(len(counted), int(number.low))
        others = Amount(*(max(0.0, end - known) for end in number))
        amount = total([exactly(sum(counted[:known])), of_number(counted, others, 2 * max(counted))])
        if not rows:  # another tokenizer may be the model's
            return Amount(amount.low / 2, amount.expected, 2 * amount.high + UNKNOWN_OVERHEAD * number.high)
        return Amount(max(0.0, amount.low - apart * number.low), amount.expected, amount.high + apart * number.high)

    def _longest_prompt(self, part: WorkPart, counter: TokenCounter) -> float | None:
        """Returns the tokens of a prompt that may be as long as settings allow; None: how long documents are is not known."""
        task = part.task
        if not isinstance(task, LlmTask):
            return counter.count(f"{task.system}{task.prompt}") if task is not None else None
        step, settings = task.step, task.settings
        tokens = counter.count(step.system + render(step.prompt, dict.fromkeys(step.variables, "")))
        tokens += self._longest * len(step.variables & {"tried", "rewrites", "answer"})
        if not step.variables & {"document", "documents", "high", "medium", "low"}:
            return tokens
        if not self._documents:
            return None
        number = (
            1
            if "document" in step.variables
            else max(getattr(of.settings, "documents", 1) for arm in self._work.answers for of in arm.tasks.values())
        )
        chars = getattr(settings, "document_chars", None)
        lengths = [counter.count(beginning(text, chars)) for text in self._documents]
        shown = number * (fmean(lengths) + counter.count(step.document))
        return tokens + min(shown, getattr(settings, "context_tokens", None) or shown)

    @cached_property
    def _documents(self) -> list[str]:
        """The texts of some documents; none: they lie elsewhere."""
        retriever = self._work.retrievers[self._work.answers[0].documents]
        with suppress(RetrieverError, ClusterError, OSError):
            return open_documents(retriever.name, retriever.settings.at(retriever.identity), cached_only=True).some(DOCUMENTS)
        return []


def _longest(part: WorkPart) -> int:
    return 0 if part.task is None else int(part.task.decoding.get("max_tokens") or 0)
