"""The context of an answer: the first documents of a query, as a prompt shows them."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import NamedTuple

from jobs.chain.arms.tasks import LlmTask
from rewriters.steps.settings import LABELS
from rewriters.strategy import render

_CITED = re.compile(r"\[\s*(\d{1,3}(?:\s*[-–,;]\s*\d{1,3})*)\s*\]")  # [2020] is a year
NO_DOCUMENTS = "(none was found)"


class FoundText(NamedTuple):
    """A document that an answer may be made from, in order of rank.

    Attributes:
        doc_id: Of the document.
        score: By which it has its rank; NaN: it has none, as a page that was found where results do not suffice.
        text: As it is indexed.
        source: Where it is from; "": not known.
        reranked: The reranker's score; NaN: it has none; None: there is no reranker.
        grade: An LLM's; None: it has none.
    """

    doc_id: str
    score: float
    text: str
    source: str
    reranked: float | None = None
    grade: float | None = None


class Context(NamedTuple):
    """The documents that an answer is made from, as the prompt shows them.

    Attributes:
        text: As the prompt shows it.
        documents: The doc_ids in it, in the order of their numbers, from 1.
        labels: Of each; "" where documents have none.
        by_label: Label -> its documents as the prompt shows them.
        left_out: Documents for which there was no room.
        cut: Documents that were cut.
    """

    text: str
    documents: tuple[str, ...]
    labels: tuple[str, ...]
    by_label: Mapping[str, str]
    left_out: int
    cut: int


def context_of(task: LlmTask, documents: Sequence[FoundText], count_tokens: Callable[[str], int]) -> Context:
    """Returns the context that documents make.

    A document is left out with all behind it where it would exceed `context_tokens`; the first is cut instead.
    """
    settings, room, cut = task.context, task.context.context_tokens, 0
    shown: list[str] = []
    labels: list[str] = []
    for number, document in enumerate(documents, start=1):
        label = ""
        if settings.labels is not None and not (settings.labels.by != "rank" and isnan(document.score)):
            label = settings.labels.label(number, len(documents), document.score, document.reranked, document.grade)
        text = beginning(document.text, settings.document_chars)
        is_cut = text is not document.text
        shown_text = _document(task, number, document.source, label, text)
        if room is not None:
            tokens = count_tokens(shown_text if not shown else settings.separator + shown_text)
            if tokens > room and not shown:
                shown_text = _document(task, number, document.source, label, _cut(text, len(text) * room // tokens))
                while (tokens := count_tokens(shown_text)) > room and len(text) > 1:
                    text = _cut(text, len(text) * 4 // 5)
                    shown_text = _document(task, number, document.source, label, text)
                is_cut = True
            elif tokens > room:
                break
            room -= min(room, tokens)
        shown.append(shown_text)
        labels.append(label)
        cut += is_cut
    doc_ids = tuple(one.doc_id for one in documents[: len(shown)])
    text = settings.separator.join(shown) or NO_DOCUMENTS
    by_label = {
        label: settings.separator.join(words for words, own in zip(shown, labels, strict=True) if own == label)
        for label in LABELS
    }
    return Context(text, doc_ids, tuple(labels), by_label, len(documents) - len(shown), cut)


def beginning(text: str, most: int | None) -> str:
    """Returns a text, truncated to `most` characters; None: no limit."""
    return text if most is None or len(text) <= most else text[:most].rstrip() + " ..."


def _document(task: LlmTask, number: int, source: str, label: str, text: str) -> str:
    values = {
        "number": str(number),
        "source": f" (source: {source})" if source else "",
        "label": f" ({label} relevance)" if label else "",
        "text": text,
    }
    return render(task.step.document, values).rstrip()


def _cut(text: str, chars: int) -> str:
    """Returns the beginning of a text, up to a word's end where there is one."""
    part = text[: max(1, chars)]
    return part.rpartition(" ")[0] or part


def citations(answer: str, documents: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns the documents cited as [1], [1][3], [1, 3] or [1-3], in order, and the numbers that no document has.

    Each once; `documents`: doc_ids by their numbers, from 1.
    """
    numbers: dict[int, None] = {}
    for match in _CITED.finditer(answer):
        for part in re.split("[,;]", match[1]):
            ends = [int(one) for one in re.findall(r"\d+", part)]
            numbers |= dict.fromkeys(range(ends[0], ends[-1] + 1) if ends[0] < ends[-1] else ends)
    right = tuple(documents[number - 1] for number in numbers if 1 <= number <= len(documents))
    return right, tuple(number for number in numbers if not 1 <= number <= len(documents))


def without_citations(answer: str) -> str:
    """Returns an answer without what `citations` reads as a citation."""
    return re.sub(rf"{_CITED.pattern}(?:\s*[,;]\s*(?=\[\s*\d))?", "", answer)
