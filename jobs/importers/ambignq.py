"""AmbigNQ: a list of objects, in the full and in the light form, as its README describes them.

Fields: `id`, `question`, `annotations`, each of a `type`: singleAnswer with `answer` (texts), or multipleQAs with `qaPairs`
(`question`, `answer`), a question and its answers for each reading. In the full form also `viewed_doc_titles`, the pages of
Wikipedia that annotators looked at, and others that are not read. No record has a passage.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from jobs.importers.questions import DataSet, PassageFile, Question, Questions
from jobs.importers.records import DataRecord, json_records

_COLUMNS = pa.schema([("type", pa.string()), ("readings", pa.int64()), ("viewed_doc_titles", pa.list_(pa.string()))])
_SINGLE, _MULTIPLE = "singleAnswer", "multipleQAs"
_NO_ANSWER = "questions without annotations, and so without answers"


def _read(records: Iterator[DataRecord], passages: PassageFile | None, questions: Questions) -> None:
    """Takes every answer of every annotation and reading as acceptable."""
    for record in records:
        kinds: set[str] = set()
        answers: list[str] = []
        readings = 0
        for annotation in record.objects("annotations") if record.has("annotations") else ():
            kind = annotation.text("type")
            if kind not in (_SINGLE, _MULTIPLE):
                annotation.wrong("type", f"{kind!r} is neither {_SINGLE} nor {_MULTIPLE}")
            given = [annotation] if kind == _SINGLE else annotation.objects("qaPairs")
            answers += [text for one in given for text in one.texts("answer")]
            readings = max(readings, len(given))
            kinds.add(kind)
        values = {
            "type": None if not kinds else "both" if len(kinds) > 1 else kinds.pop(),
            "readings": readings or None,
            "viewed_doc_titles": record.texts("viewed_doc_titles") if record.has("viewed_doc_titles") else None,
        }
        questions.notes[_NO_ANSWER] += not answers
        questions.add(record, Question(record.text("id"), record.text("question"), values, list(dict.fromkeys(answers))))


AMBIGNQ = DataSet("AmbigNQ: JSON of the full or the light form", json_records, _read, _COLUMNS, ("type", "readings"), False)
