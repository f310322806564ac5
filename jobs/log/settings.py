"""The config's `log`: which files and columns are the query log."""

from __future__ import annotations

import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from jobs.config.fields import FROZEN, NOT_IDENTITY


def day(value: Any) -> Any:
    """Returns a date as YYYY-MM-DD; raises ValueError for a text that is none."""
    if isinstance(value, datetime.date):  # as YAML reads one that is not quoted
        return value.isoformat()
    if isinstance(value, str) and value == _iso(value):
        return value
    raise ValueError(f"{value!r} is not a date; write it as 2026-01-31")


def _iso(text: str) -> str | None:
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d").date().isoformat()
    except ValueError:
        return None


def _path_or_paths(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return value
    raise ValueError(f"should be a path or a list of paths, found {value!r}")


class LogSettings(BaseModel):
    """The query log: Parquet files of any columns."""

    model_config = FROZEN

    path: Annotated[str | list[str], BeforeValidator(_path_or_paths)]
    """A file, a folder (hive partitions included) or a list of them."""
    query_column: str
    """The column of the queries."""
    id_column: str | None = None
    """The column that identifies log rows in `query_map`, qrels and errors; without one a row is `<file>#<row>`."""
    count_column: str | None = None
    """In a pre-aggregated log, the column with the number of times that a row's query was asked."""
    context_column: str | None = None
    """The column of the earlier turns of a conversation, text or a list of texts, oldest first; part of a query's identity."""
    max_chars: Annotated[int, Field(gt=0)] = 2000
    """Longer queries are rejected (a row in errors/), not cut."""
    max_context_chars: Annotated[int, Field(gt=0)] = 8000
    """Of longer contexts only the newest characters are kept; the row is not rejected."""
    date: Annotated[Annotated[str, BeforeValidator(day)] | None, NOT_IDENTITY] = None
    """The day that the log is of; where `path` has `{date}`, the value of that."""
