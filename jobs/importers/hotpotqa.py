"""HotpotQA: a list of objects, in the distractor and in the fullwiki form, as its README describes them.

Fields: `_id`, `question`, `answer`, `supporting_facts` (of each sentence that is needed its paragraph's title and its number),
`context` (of each paragraph its title and its sentences), `type` (bridge, comparison), `level` (easy, medium, hard). The test
file has neither answers nor facts. In the fullwiki form the paragraphs are those that the authors' search found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from jobs.importers.questions import DataSet, PassageFile, Question, Questions
from jobs.importers.records import DataRecord, json_records

_COLUMNS = pa.schema([("type", pa.string()), ("level", pa.string())])
_ELSEWHERE = "supporting paragraphs that their question's context lacks, and that are not judged"


def _read(records: Iterator[DataRecord], passages: PassageFile | None, questions: Questions) -> None:
    """Takes a paragraph as a passage, and as relevant where one of its sentences is a supporting fact."""
    assert passages is not None
    for record in records:
        ids: dict[str, list[str]] = {}
        for title, sentences in _pairs(record, "context", list):
            if not all(isinstance(one, str) for one in sentences):
                record.wrong("context", "has a paragraph whose sentences are no texts")
            text = " ".join(filter(None, (one.strip() for one in sentences)))
            if text:
                ids.setdefault(title, []).append(passages.add(title, text))
        question = Question(record.text("_id"), record.text("question"), {name: _text(record, name) for name in _COLUMNS.names})
        if record.has("answer"):
            question.answers = [record.text("answer")]
        if record.has("supporting_facts"):
            titles = {title for title, _ in _pairs(record, "supporting_facts", int)}
            question.documents = {doc_id for title in titles for doc_id in ids.get(title, ())}
            questions.notes[_ELSEWHERE] += len(titles - ids.keys())
        questions.add(record, question)


def _pairs(record: DataRecord, name: str, second: type) -> list[tuple[str, Any]]:
    """Returns the pairs of a title and a value that a field holds."""
    found = record.items(name)
    for one in found:
        if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], second)):
            of = "sentences" if second is list else "the number of a sentence"
            record.wrong(name, f"has an item that is not a title and {of}")
    return [(title.strip(), value) for title, value in found]


def _text(record: DataRecord, name: str) -> str | None:
    return record.text(name) if record.has(name) else None


HOTPOTQA = DataSet(
    "HotpotQA: JSON of the distractor or the fullwiki form", json_records, _read, _COLUMNS, ("type", "level"), has_corpus=True
)
