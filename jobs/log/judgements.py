"""Readers of relevance judgements (qrels) and gold answers: of log rows, or of queries, for every log that has them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from cluster.errors import ConfigError, UnavailableError
from cluster.storage import open_file
from jobs.log.sheets import judged_lines
from rewriters.normalise import normalise

Key = Literal["log_id", "query_id", "query"]
"""What the first column of judgements may hold: a log row's id, a query's id, or the query itself."""

MAX_GRADE = 1000  # trec_eval keeps a counter for every grade up to the highest


class JudgedBy(NamedTuple):
    """The LLM that made judgements."""

    model: str
    """Several, with commas, if several judged."""
    measures: tuple[str, ...]
    """To measure by, since it judged the first results only."""
    notes: tuple[str, ...] = ()
    """What is to be said of its judgements; a sentence each."""
    relevant: int = 1
    """The lowest grade of a relevant document."""


class Judgements(NamedTuple):
    """Relevance judgements: key -> doc_id -> grade (0 and less: not relevant).

    A key of kind `query` is in its normal form, as `queries.normalised` has it.
    """

    path: str
    grades: dict[str, dict[str, int]]
    key: Key = "log_id"
    judge: JudgedBy | None = None
    """None: people judged."""

    @property
    def least(self) -> int:
        """Returns the lowest grade of a relevant document: of people 1, of a judge its own."""
        return 1 if self.judge is None else self.judge.relevant

    def measures(self, named: Sequence[str]) -> list[str]:
        """Returns what to measure by: the named measures, of a judge its own."""
        return list(named if self.judge is None else self.judge.measures)


def read_qrels(path: str, where: str = "evaluate.qrels", key: Key = "log_id") -> Judgements:
    """Reads judgements: lines of tab-separated `key doc_id grade`, or TREC's `key 0 doc_id grade`, in UTF-8.

    Sheets of documents to be judged (`jobs/log/sheets.py`) are read as far as their grades are filled in.

    Args:
        path: a local file or an object on S3.
        where: the config key or argument that named the file; begins every error message.
        key: what the first column holds. Queries are normalised as those of the log are.

    Raises:
        ConfigError: the file cannot be read, or a line has other columns, a grade above 1,000, no query, or contradicts an
            earlier line.
    """
    grades: dict[str, dict[str, int]] = {}
    for number, line in judged_lines(_lines(path, where), key, f"{where}: {path}"):
        _read_line(line, key, f"{where}: {path}: line {number}", grades)
    if not grades:
        raise ConfigError("judgements", f"{where}: {path}: holds no judgement; write lines of '{key}<TAB>doc_id<TAB>grade'")
    return Judgements(path, grades, key)


def given_qrels(grades: Mapping[str, Mapping[str, int]], where: str, key: Key = "log_id") -> Judgements:
    """Returns judgements that a program gives as key -> doc_id -> grade; `where` begins messages.

    Raises:
        ConfigError: there are none, a grade is no whole number up to 1,000, or a query is empty or judged twice.
    """
    found: dict[str, dict[str, int]] = {}
    for name, of in grades.items():
        for doc_id, grade in of.items():
            if not isinstance(grade, int) or grade > MAX_GRADE:
                what = f"{where}: {name!r}: {doc_id!r} has the grade {grade!r}"
                raise ConfigError("judgements", f"{what}; give whole numbers up to {MAX_GRADE:,}")
        shown = normalise(name) if key == "query" else name
        if not shown or shown in found:
            what = "judged twice" if shown else "empty"
            raise ConfigError("judgements", f"{where}: the {key} {name!r} is {what}; correct it")
        found[shown] = dict(of)
    if not found:
        raise ConfigError("judgements", f"{where}: holds no judgement; give {key} -> doc_id -> grade")
    return Judgements(where, found, key)


def _read_line(line: str, key: Key, place: str, grades: dict[str, dict[str, int]]) -> None:
    # a query has spaces, so only tabs can end it
    fields = line.split("\t") if "\t" in line or key == "query" else line.split()
    try:
        name, doc_id, grade = fields if len(fields) == 3 else (fields[0], *fields[2:])
        value = int(grade)
    except ValueError as error:
        trec = "TREC's four columns, parted by tabs, too" if key == "query" else "TREC's four columns"
        raise ConfigError(
            "judgements", f"{place} is neither '{key}<TAB>doc_id<TAB>grade' nor {trec}; correct it: {line[:80]!r}"
        ) from error
    if value > MAX_GRADE:
        raise ConfigError(
            "judgements", f"{place}: grade {value} is above {MAX_GRADE:,}; give small whole numbers: {line[:80]!r}"
        )
    name = normalise(name) if key == "query" else name
    if not name:
        raise ConfigError("judgements", f"{place}: the {key} is empty; correct it: {line[:80]!r}")
    earlier = grades.setdefault(name, {}).setdefault(doc_id, value)
    if earlier != value:
        raise ConfigError(
            "judgements", f"{place}: an earlier line gives the same document grade {earlier}; keep one: {line[:80]!r}"
        )


_WHERE = "evaluate.answers"


def read_answers(path: str, key: Key) -> dict[str, list[str]]:
    """Returns key -> gold answers, from lines of tab-separated `key answer` in UTF-8; a key may have several lines.

    Raises:
        ConfigError: the file cannot be read, or a line has other columns.
    """
    answers: dict[str, list[str]] = {}
    for number, line in _lines(path, _WHERE):
        name, tab, answer = line.partition("\t")
        name = normalise(name) if key == "query" else name
        if not tab or not name or not answer.strip():
            raise ConfigError(
                "judgements", f"{_WHERE}: {path}: line {number} is not '{key}<TAB>answer'; correct it: {line[:80]!r}"
            )
        answers.setdefault(name, []).append(answer)
    return answers


def _lines(path: str, where: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of the lines of a file in UTF-8 that are not blank; raises ConfigError if it cannot be read."""
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as lines:
            yield from ((number, line.rstrip("\n")) for number, line in enumerate(lines, 1) if line.strip())
    except UnicodeDecodeError as error:
        raise ConfigError(
            "judgements", f"{where}: {path}: cannot be read: it is not UTF-8 text ({error.reason}); convert it"
        ) from error
    except UnavailableError:
        raise
    except OSError as error:
        raise ConfigError(
            "judgements", f"{where}: {path}: cannot be read: {error.strerror or error}; give another file"
        ) from error
