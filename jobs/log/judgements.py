"""Readers of relevance judgements (qrels) and gold answers: of log rows, or of queries, for every log that has them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from cluster.cause import absent, one_line
from cluster.errors import ConfigError, UnavailableError
from cluster.storage import is_there, remote
from jobs.log.sets import irds
from jobs.log.sets.beir import HEADER, split_of
from jobs.log.sets.names import set_name
from jobs.log.table_file import TableFault, TextTable, form_of, open_table, text_lines
from rewriters.normalise import normalise

Key = Literal["log_id", "query_id", "query"]  # of judgements' first column: a log row's id, a query's id, or the query itself

MAX_GRADE = 1000  # trec_eval keeps a counter for every grade up to the highest


class JudgedBy(NamedTuple):
    """The LLM that judged."""

    model: str  # several, with commas, if several judged
    measures: tuple[str, ...]  # to measure by, since it judged the first results only
    notes: tuple[str, ...] = ()  # notes on its judgements; a sentence each
    relevant: int = 1  # the lowest grade of a relevant document


class Judgements(NamedTuple):
    """Relevance judgements: key -> doc_id -> grade (0 and less: not relevant).

    A key of kind `query` is in its normal form, as `queries.normalised` has it.
    """

    path: str
    grades: dict[str, dict[str, int]]
    key: Key = "log_id"
    judge: JudgedBy | None = None  # None: people judged

    @property
    def least(self) -> int:
        """Returns the lowest grade of a relevant document: of people 1, of a judge its own."""
        return 1 if self.judge is None else self.judge.relevant

    def measures(self, named: Sequence[str]) -> list[str]:
        """Returns the measures to use: the named ones, of a judge its own."""
        return list(named if self.judge is None else self.judge.measures)


def read_qrels(path: str, where: str = "evaluate.qrels", key: Key = "log_id") -> Judgements:
    """Reads judgements: lines of tab-separated `key doc_id grade`, or TREC's `key 0 doc_id grade`, in UTF-8.

    A first line that names these columns, or BEIR's, is none. Of a table (Parquet, CSV, lines of JSON) the columns `key`,
    `doc_id`, `grade`, or the only three, of which the last is no number. Text may be packed (`.gz`, `.zst`). Queries are
    normalised as those of the log are.

    Args:
        path: A file, here or on S3, or the name of a data set.
        where: The config key or argument that named the file; begins every error message.
        key: What the first column holds.

    Raises:
        ConfigError: The file or data set cannot be read, or a line has other columns, a grade above 1,000, no query, or
            contradicts an earlier line.
    """
    grades: dict[str, dict[str, int]] = {}
    if (name := set_name(path)) is not None and key != "log_id":
        message = f"a data set judges the ids of its queries, and evaluate.key is {key}; let it be log_id"
        raise ConfigError("judgements", f"{where}: {name}: {message}")
    if name is not None and name.kind == "irds":
        for query_id, doc_id, grade in irds.judgements(name.rest, where):
            line = f"{query_id} {doc_id} {grade}"
            _add((query_id, doc_id, str(grade)), key, f"{where}: {path}", line, grades)
    else:
        # a query has spaces, so only tabs can end it
        split = lambda line: line.split("\t") if "\t" in line or key == "query" else line.split()  # noqa: E731
        for row, line, fields in _records(qrels_file(path, where), where, (key, "doc_id", "grade"), split):
            _add(fields, key, f"{where}: {path}: {row}", line, grades)
    if not grades:
        raise ConfigError("judgements", f"{where}: {path}: holds no judgement; write lines of '{key}<TAB>doc_id<TAB>grade'")
    return Judgements(path, grades, key)


def qrels_file(path: str, where: str = "evaluate.qrels") -> str:
    """Returns the file of judgements: of a folder of BEIR that of the split; an id of ir_datasets as it stands.

    Raises ConfigError if a data set is not there, or has no judgements.
    """
    name = set_name(path)
    if name is None or name.kind == "irds":
        return path
    if name.kind == "topics":
        message = "has queries only; name the file with their judgements"
        raise ConfigError("judgements", f"{where}: {name}: {message}")
    return split_of(name.rest, where)[1]


def local_qrels(path: str) -> str | None:
    """Returns the file of judgements on this machine; None: there is none here."""
    try:
        file = qrels_file(path)
    except ConfigError:
        return None
    return file if not remote(file) and Path(file).is_file() else None


def is_here(path: str) -> bool:
    """Returns True if judgements can be read here: on S3, or of an id of ir_datasets, it is taken for granted."""
    name = set_name(path)
    if (name is not None and name.kind == "irds") or remote(path if name is None else name.rest):
        return True
    return local_qrels(path) is not None


def given_qrels(grades: Mapping[str, Mapping[str, int]], key: Key = "log_id") -> Judgements:
    """Returns judgements that a program gives as key -> doc_id -> grade.

    Raises ConfigError for none, a grade that is no whole number up to 1,000, and a query that is empty or judged twice.
    """
    judged: dict[str, dict[str, int]] = {}
    for name, documents in grades.items():
        for doc_id, grade in documents.items():
            if not isinstance(grade, int) or grade > MAX_GRADE:
                what = f"qrels: {name!r}: {doc_id!r} has the grade {grade!r}"
                raise ConfigError("judgements", f"{what}; give whole numbers up to {MAX_GRADE:,}")
        shown = normalise(name) if key == "query" else name
        if not shown or shown in judged:
            what = "judged twice" if shown else "empty"
            raise ConfigError("judgements", f"qrels: the {key} {name!r} is {what}; correct it")
        judged[shown] = dict(documents)
    if not judged:
        raise ConfigError("judgements", f"qrels: holds no judgement; give {key} -> doc_id -> grade")
    return Judgements("qrels", judged, key)


def _add(fields: Sequence[str], key: Key, where: str, line: str, grades: dict[str, dict[str, int]]) -> None:
    """Adds a judgement to `grades`; refuses one that contradicts an earlier one, or whose grade is too high."""
    try:
        name, doc_id, grade = fields if len(fields) == 3 else (fields[0], *fields[2:])
        is_float = re.fullmatch(r"[-+]?\d+\.0+", grade)  # as pandas writes a column with a gap
        value = int(float(grade)) if is_float else int(grade)
    except ValueError as error:
        trec = "TREC's four columns, parted by tabs, too" if key == "query" else "TREC's four columns"
        problem = f"{where} is neither '{key}<TAB>doc_id<TAB>grade' nor {trec}; correct it: {line[:80]!r}"
        raise ConfigError("judgements", problem) from error
    name = normalise(name) if key == "query" else name
    for what, text in ((key, name), ("doc_id", doc_id)):
        if not text:
            raise ConfigError("judgements", f"{where}: the {what} is empty; correct it: {line[:80]!r}")
    if value > MAX_GRADE:
        problem = f"{where}: grade {value} is above {MAX_GRADE:,}; give small whole numbers: {line[:80]!r}"
        raise ConfigError("judgements", problem)
    earlier = grades.setdefault(name, {}).setdefault(doc_id, value)
    if earlier != value:
        problem = f"{where}: an earlier line gives the same document grade {earlier}; keep one: {line[:80]!r}"
        raise ConfigError("judgements", problem)


_WHERE = "evaluate.answers"
_ROWS = 1 << 13  # of CSV, read at a time


def read_answers(path: str, key: Key) -> dict[str, list[str]]:
    """Returns key -> gold answers, from tab-separated `key answer`, or a table; a key may have several lines."""
    answers: dict[str, list[str]] = {}
    for row, line, (first, *rest) in _records(path, _WHERE, (key, "answer"), lambda line: line.split("\t", 1)):
        name, answer = normalise(first) if key == "query" else first, "".join(rest)
        if not name or not answer.strip():
            raise ConfigError("judgements", f"{_WHERE}: {path}: {row} is not '{key}<TAB>answer'; correct it: {line[:80]!r}")
        answers.setdefault(name, []).append(answer)
    if not answers:
        raise ConfigError("judgements", f"{_WHERE}: {path}: holds no answer; write lines of '{key}<TAB>answer'")
    return answers


def _records(
    path: str, where: str, columns: tuple[str, ...], split: Callable[[str], list[str]]
) -> Iterator[tuple[str, str, list[str]]]:
    """Yields place, text and fields of the rows of a table, else of lines in UTF-8 that are not blank."""
    try:
        if not is_there(path):
            raise TableFault(f"{absent(path)}; give another file")
        # lines are parted by tabs whatever the name, and then need no header
        table = None if re.search(r"\.tsv(\.\w+)?$", path.lower()) or form_of(path) is None else open_table(path)
        if table is None or (isinstance(table, TextTable) and table.delimiter == "\t"):
            for number, line in text_lines(path):
                fields = split(line)
                if number > 1 or tuple(fields) not in (columns, HEADER):
                    yield f"line {number}", line, fields
            return
        names = table.names
        header = names[-1] == "answer" if columns[-1] == "answer" else not re.fullmatch(r"[-+\d.]+", names[-1])
        if not (named := set(columns) <= set(names)) and not (header and len(names) == len(columns)):
            raise TableFault(f"has {', '.join(names)}; name its columns {', '.join(columns)}")
        numbers = count(1)
        for batch in table.batches(columns if named else names, _ROWS):
            texts = (column.cast(pa.string()).fill_null("").to_pylist() for column in batch.columns)
            yield from ((f"row {next(numbers)}", ", ".join(fields), list(fields)) for fields in zip(*texts, strict=True))
    except UnavailableError:
        raise
    except TableFault as fault:
        raise ConfigError("judgements", f"{where}: {path}{fault.at}: {fault.message}") from fault
    except (OSError, pa.ArrowException) as error:
        raise ConfigError("judgements", f"{where}: {path}: cannot be read: {one_line(error)}; give another file") from error
