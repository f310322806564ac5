"""Rows of a set's queries: lines of its files, and columns of text."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.errors import LogError, UnavailableError
from cluster.storage import open_file
from jobs.log.table_file import unpacked


class SetQueries(NamedTuple):
    """The queries of a data set.

    Attributes:
        rows: `query_id`, `text` and other columns, all of them text.
        left_out: Number of queries of other splits that stand in the same file.
    """

    rows: pa.Table
    left_out: int


def table_of(rows: Sequence[Mapping[str, str | None]]) -> pa.Table:
    """Returns rows as columns of text: `query_id`, `text`, then the others as they are first met; what lacks is null."""
    names = dict.fromkeys(("query_id", "text", *(name for row in rows for name in row)))
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})


def as_text(value: Any) -> str | None:
    """Returns a value as text: one that is none as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def text_of(path: str) -> str:
    """Returns the text of a file, here or on S3, that may be packed.

    Raises:
        LogError: It cannot be read.
    """
    try:
        with open_file(path) as opened, io.TextIOWrapper(unpacked(opened, path), "utf-8-sig") as text:
            return text.read()
    except UnavailableError:
        raise
    except UnicodeDecodeError as error:
        words = f"cannot be read: it is not UTF-8 ({error.reason}); convert it"
        raise LogError("log-files", f"log file {path}: {words}") from error
    except (OSError, pa.ArrowException) as error:
        words = f"cannot be read: {getattr(error, 'strerror', None) or error}; copy it again"
        raise LogError("log-files", f"log file {path}: {words}") from error


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of the lines of a file that are not blank; errors are those of `text_of`."""
    # not splitlines(), for which a text may hold ends of lines, such as U+2028
    yield from ((number, line.rstrip("\r")) for number, line in enumerate(text_of(path).split("\n"), 1) if line.strip())
