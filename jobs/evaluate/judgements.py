"""Reader of relevance judgements (qrels)."""

from __future__ import annotations

import io
from typing import NamedTuple

from cluster.errors import ConfigError, UnavailableError
from cluster.storage import open_file

MAX_GRADE = 1000  # trec_eval keeps a counter for every grade up to the highest


class Judgements(NamedTuple):
    """Relevance judgements: log_id -> doc_id -> grade (0 and less: not relevant)."""

    path: str
    grades: dict[str, dict[str, int]]


def read_qrels(path: str, where: str = "evaluate.qrels") -> Judgements:
    """Reads judgements: lines of tab-separated `log_id doc_id grade`, or TREC's `log_id 0 doc_id grade`, in UTF-8.

    Args:
        path: a local file or an object on S3.
        where: the config key or argument that named the file; begins every error message.

    Raises:
        ConfigError: the file cannot be read, or a line has other columns, a grade above 1,000, or contradicts an earlier
            line.
    """
    grades: dict[str, dict[str, int]] = {}
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    _read_line(line.rstrip("\n"), f"{where}: {path}: line {number}", grades)
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
    if not grades:
        raise ConfigError("judgements", f"{where}: {path}: holds no judgement; write lines of 'log_id<TAB>doc_id<TAB>grade'")
    return Judgements(path, grades)


def _read_line(line: str, place: str, grades: dict[str, dict[str, int]]) -> None:
    fields = line.split("\t") if "\t" in line else line.split()
    try:
        log_id, doc_id, grade = fields if len(fields) == 3 else (fields[0], *fields[2:])
        value = int(grade)
    except ValueError as error:
        raise ConfigError(
            "judgements", f"{place} is neither 'log_id<TAB>doc_id<TAB>grade' nor TREC's four columns; correct it: {line[:80]!r}"
        ) from error
    if value > MAX_GRADE:
        raise ConfigError(
            "judgements", f"{place}: grade {value} is above {MAX_GRADE:,}; give small whole numbers: {line[:80]!r}"
        )
    earlier = grades.setdefault(log_id, {}).setdefault(doc_id, value)
    if earlier != value:
        raise ConfigError(
            "judgements", f"{place}: an earlier line gives the same document grade {earlier}; keep one: {line[:80]!r}"
        )
