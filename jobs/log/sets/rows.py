"""Rows of a set's queries: lines of its files, and columns of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.cause import one_line
from cluster.errors import LogError, UnavailableError
from jobs.log.table_file import lines_of


class SetQueries(NamedTuple):
    """The queries of a data set."""

    rows: pa.Table  # query_id, text and other columns, all of them text
    left_out: int  # queries of other splits that stand in the same file


def table_of(rows: Sequence[Mapping[str, str | None]]) -> pa.Table:
    """Returns rows as columns of text: `query_id`, `text`, then the others as they are first met; what lacks is null."""
    names = dict.fromkeys(("query_id", "text", *(name for row in rows for name in row)))
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})


def as_text(value: Any) -> str | None:
    """Returns a value as text: one that is none as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def text_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of the lines of a file, here or on S3, that are not blank; the file may be packed.

    Raises:
        LogError: It cannot be read, or is not UTF-8.
    """
    try:
        for number, raw in enumerate(lines_of(path), 1):
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            if line.strip():
                yield number, line
    except UnavailableError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        bytes_ = isinstance(error, UnicodeDecodeError)
        words = "is not UTF-8; convert it" if bytes_ else f"cannot be read: {one_line(error)}; copy it again"
        raise LogError("log-files", f"log file {path}: {words}") from error
