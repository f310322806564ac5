"""Answers with the columns that RAGAS reads: question, contexts, answer, ground_truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from jobs.measure.export.answers.answered import AnsweredArm
from jobs.measure.export.answers.written import WrittenAnswers, write_rows

_COLUMNS = pa.schema(
    [
        ("question", pa.string()),
        ("contexts", pa.list_(pa.string())),
        ("answer", pa.string()),
        ("ground_truth", pa.string()),
    ]
)


def write_ragas(path: str, answers: AnsweredArm) -> WrittenAnswers:
    """Writes a row per answer; `ground_truth` is the first gold answer, null without one.

    Raises:
        RetrieverError: the index of the documents is gone, or holds others now.
        ConfigError: files of the run cannot be read.
    """
    seen: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for one in answers.read(contexts=True):
            seen["several"] += len(one.gold) > 1
            seen["none"] += not one.gold
            seen["cut"] += bool(one.row["cut_documents"])
            yield {
                "question": one.row["query"],
                "contexts": one.contexts,
                "answer": one.row["text"],
                "ground_truth": one.gold[0] if one.gold else None,
            }

    count = write_rows(path, _COLUMNS, rows())
    return WrittenAnswers(path, count, notes_of(answers, count, seen) + several_note(seen))


def notes_of(answers: AnsweredArm, count: int, seen: Counter[str]) -> tuple[str, ...]:
    """Returns what a file of answers with contexts leaves out or assumes."""
    without = answers.without(count)
    notes = [f"{without:,} queries without an answer have no row"] if without else []
    notes += [f"{seen['none']:,} without a gold answer"] if seen["none"] else []
    notes += [f"contexts of {seen['cut']:,} are whole, of which the prompt had the beginning"] if seen["cut"] else []
    return tuple(notes)


def several_note(seen: Counter[str]) -> tuple[str, ...]:
    """Returns how many rows have the first of several gold answers."""
    return (f"{seen['several']:,} have the first of several gold answers",) if seen["several"] else ()
