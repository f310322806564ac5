"""MuSiQue: an object a line, of MuSiQue-Ans and of MuSiQue-Full, as its authors' code writes and reads them.

Fields: `id` (begins with the shape of its hops: 2hop, 3hop1, ...), `question`, `paragraphs` (`idx`, `title`, `paragraph_text`,
`is_supporting`), `question_decomposition` (a single-hop question a step), `answer`, `answer_aliases`, `answerable`. The test
file has questions and paragraphs alone. In MuSiQue-Full each question stands twice under one id, once with paragraphs that do
not suffice to answer it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from jobs.importers.questions import DataSet, PassageFile, Question, Questions
from jobs.importers.records import DataRecord, json_records

_COLUMNS = pa.schema([("type", pa.string()), ("hops", pa.int64()), ("answerable", pa.bool_())])
_SHAPE = re.compile(r"((\d)hop\d?)__")
_TWICE = "questions that also stand in the file with paragraphs that do not suffice, and are one row"
_UNANSWERABLE = "questions that their paragraphs do not answer: without answers and judgements"


def _read(records: Iterator[DataRecord], passages: PassageFile | None, questions: Questions) -> None:
    """Takes paragraphs as passages, and as relevant where they support an answer that can be given.

    Of two records with one id, one of which is answerable, that one is the question. The paragraphs of both are searched.
    """
    assert passages is not None
    twice = set()
    for record in records:
        question = _question(record, passages)
        before = questions.found.get(question.id)
        pair = before is not None and {one.values["answerable"] for one in (before, question)} == {True, False}
        if before is None or not pair or question.id in twice or before.query != question.query:
            questions.add(record, question)
            continue
        twice.add(question.id)
        if question.values["answerable"]:
            questions.replace(record, question)
    questions.notes[_TWICE] += len(twice)
    questions.notes[_UNANSWERABLE] += sum(one.values["answerable"] is False for one in questions.found.values())


def _question(record: DataRecord, passages: PassageFile) -> Question:
    supporting = set()
    for paragraph in record.objects("paragraphs"):
        title = paragraph.text("title") if paragraph.has("title") else ""
        doc_id = passages.add(title, paragraph.text("paragraph_text"))
        if paragraph.has("is_supporting") and paragraph.truth("is_supporting"):
            supporting.add(doc_id)
    name = record.text("id")
    shape = _SHAPE.match(name)
    hops = int(shape[2]) if shape else None
    if record.has("question_decomposition"):
        hops = len(record.objects("question_decomposition"))
    answerable = record.truth("answerable") if record.has("answerable") else None
    question = Question(name, record.text("question"), {"type": shape and shape[1], "hops": hops, "answerable": answerable})
    if record.has("answer") and answerable is not False:
        question.answers = [record.text("answer"), *(record.texts("answer_aliases") if record.has("answer_aliases") else [])]
        question.documents = supporting
    return question


MUSIQUE = DataSet("MuSiQue: JSON lines of -Ans or -Full", json_records, _read, _COLUMNS, ("hops", "type"), has_corpus=True)
