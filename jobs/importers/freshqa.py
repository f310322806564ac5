"""FreshQA: a CSV as its spreadsheet exports it: lines of warning, the header, a question a record.

Columns: `id`, `split`, `question`, `effective_year`, `next_review`, `false_premise` (TRUE, FALSE), `num_hops` (one-hop,
multi-hop), `fact_type` (never-changing, slow-changing, fast-changing), `source`, `answer_0` to `answer_9`, `note`. No record
has a passage: the answers are those of the web on the day of the file.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa

from cluster.errors import ConfigError
from cluster.storage import open_file
from cluster.storage.packed import unpacked
from jobs.importers.questions import DataSet, PassageFile, Question, Questions
from jobs.importers.records import DataRecord

_COLUMNS = pa.schema(
    [(name, pa.string()) for name in ("split", "effective_year", "next_review", "num_hops", "fact_type")]
    + [("false_premise", pa.bool_())]
)
_SLICES = ("false_premise", "fact_type", "num_hops", "effective_year", "split")
_NEEDED = ("id", "question", "answer_0")
_PREAMBLE = 20  # records that may stand before the header
_TRUTHS = {"TRUE": True, "FALSE": False}
_ANSWER = re.compile(r"answer_\d+")
_NO_ANSWER = "questions without answers"


def csv_records(path: str) -> Iterator[DataRecord]:
    """Yields the records behind the header of a file, here or on S3; record 1 is the first behind it, and blank ones are none.

    Raises:
        ConfigError: None of its first records is the header, a record has a field too many, or a quote is not closed.
        OSError: It cannot be read.
    """
    names: list[str] = []
    number = 0
    with open_file(path) as opened:
        rows = csv.reader(io.TextIOWrapper(unpacked(opened, path), encoding="utf-8-sig", newline=""), strict=True)
        try:
            for place, row in enumerate(rows, 1):
                cells = [cell.strip() for cell in row]
                if not names:
                    names = cells if set(_NEEDED) <= set(cells) else []
                    if not names and place == _PREAMBLE:
                        break
                elif any(cells):
                    number += 1
                    if any(cells[len(names) :]):
                        _refuse(path, f"record {number:,} (line {rows.line_num:,}) has more fields than the header")
                    yield DataRecord(
                        path, number, {name: cell for name, cell in zip(names, cells, strict=False) if name and cell}
                    )
        except csv.Error as error:
            _refuse(path, f"line {rows.line_num:,}: {error}")
        except UnicodeDecodeError as error:
            _refuse(path, f"is not UTF-8 ({error.reason}), behind record {number:,}")
    if not names:
        _refuse(path, f"none of its first {_PREAMBLE} records is the header ({', '.join(_NEEDED)} and others)")


def _refuse(path: str, words: str) -> NoReturn:
    raise ConfigError("data-set", f"{path}: {words}; take it as its spreadsheet exports it")


def _read(records: Iterator[DataRecord], passages: PassageFile | None, questions: Questions) -> None:
    """Takes each of the columns of answers as an acceptable answer."""
    for record in records:
        values: dict[str, Any] = {name: record.text(name) if record.has(name) else None for name in _COLUMNS.names}
        if (premise := values["false_premise"]) is not None:
            if premise.upper() not in _TRUTHS:
                record.wrong("false_premise", f"{premise!r} is neither TRUE nor FALSE")
            values["false_premise"] = _TRUTHS[premise.upper()]
        answers = [record.text(name) for name in record.names if _ANSWER.fullmatch(name)]
        questions.notes[_NO_ANSWER] += not answers
        questions.add(record, Question(record.text("id"), record.text("question"), values, list(dict.fromkeys(answers))))


FRESHQA = DataSet("FreshQA: CSV as its spreadsheet exports it", csv_records, _read, _COLUMNS, _SLICES, has_corpus=False)
