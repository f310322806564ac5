"""What is made of a data set: its questions, and the passages that they bring with them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.importers.records import DataRecord

CORPUS = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
_ROWS = 1 << 13  # written at a time


@dataclass
class Question:
    """A question: a row of the log."""

    id: str
    query: str
    values: dict[str, Any]
    """A further column of the log -> the question's value; None: it has none."""
    answers: list[str] = field(default_factory=list)
    """Gold answers, each acceptable."""
    documents: set[str] = field(default_factory=set)
    """Ids of the passages that support its answer."""


class PassageFile:
    """The passages of a data set, each of which is written once, when it is first met."""

    def __init__(self, path: Path) -> None:
        """Begins the file of a corpus."""
        self.met, self._known = 0, set[bytes]()
        self._rows: list[tuple[str, str, str]] = []
        self._writer = pq.ParquetWriter(path, CORPUS, compression="zstd")

    def __len__(self) -> int:
        """Returns the number of passages that are told apart."""
        return len(self._known)

    def add(self, title: str, text: str) -> str:
        """Takes a passage; returns its id, which title and text alone make."""
        key = hashlib.sha256(f"{title}\0{text}".encode()).digest()[:16]
        self.met += 1
        if key not in self._known:
            self._known.add(key)
            self._rows.append((key.hex(), title, text))
            if len(self._rows) >= _ROWS:
                self._flush()
        return key.hex()

    def close(self) -> None:
        """Ends the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else ([], [], [])
        self._writer.write_table(pa.table([pa.array(one, pa.string()) for one in columns], schema=CORPUS))
        self._rows = []


class Questions:
    """The questions of a data set, each of which has an id of its own, and what is to be said of them."""

    def __init__(self) -> None:
        """Begins without any."""
        self.found: dict[str, Question] = {}
        self.notes: Counter[str] = Counter()
        """What was met, in words -> how often."""
        self._numbers: dict[str, int] = {}

    def add(self, record: DataRecord, question: Question) -> None:
        """Takes the question of a record.

        Raises:
            ConfigError: An earlier record has its id.
        """
        if question.id in self.found:
            record.refuse(f"its id {question.id!r} is that of record {self._numbers[question.id]:,}, too")
        self.replace(record, question)

    def replace(self, record: DataRecord, question: Question) -> None:
        """Takes the question of a record in place of one with its id, if there is one."""
        self.found[question.id], self._numbers[question.id] = question, record.number


class DataSet(NamedTuple):
    """A published set: how its file is read, and what becomes of it."""

    words: str
    """What it is, for people."""
    records: Callable[[str], Iterator[DataRecord]]
    """Reads the records of a file."""
    read: Callable[[Iterator[DataRecord], PassageFile | None, Questions], None]
    """Takes questions and passages from records."""
    columns: pa.Schema
    """Further columns of the log."""
    slices: tuple[str, ...]
    """Those of them by which results are measured part by part."""
    has_corpus: bool
    """Whether its records bring the passages that are searched."""
