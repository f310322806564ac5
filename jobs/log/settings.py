"""The config's `log`: which files and columns are the query log."""

from __future__ import annotations

import contextlib
import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from cluster.settings import NOT_IDENTITY, Names, Paths, Settings
from jobs.log.sets.names import SET_COLUMNS, set_names


def day(value: Any) -> Any:
    """Returns a date as YYYY-MM-DD; raises ValueError for a text that is none."""
    if isinstance(value, datetime.date):  # as YAML reads one that is not quoted
        return value.isoformat()
    with contextlib.suppress(TypeError, ValueError):
        if value == datetime.datetime.strptime(value, "%Y-%m-%d").date().isoformat():
            return value
    raise ValueError(f"{value!r} is not a date; write it as 2026-01-31")


def _known_by_data_sets(schema: dict[str, Any]) -> None:
    """The column of the queries need not be named where data sets know it."""
    schema["required"].remove("query_column")


class LogSettings(Settings):
    """The query log: Parquet, JSON lines or CSV of any columns, or a data set."""

    model_config = ConfigDict(json_schema_extra=_known_by_data_sets)

    path: Annotated[Paths, Names.FILE]
    """A file, a folder (hive partitions included) or a list of them; `*.parquet`, or where a folder has none, JSON lines
    (`*.jsonl`, `*.ndjson`, `*.json`) or CSV (`*.csv`, `*.tsv`), also packed (`.gz`, `.zst`). Or data sets: `beir:FOLDER/SPLIT`,
    `irds:ID`, `topics:FILE` (docs/test-collections.md)."""
    query_column: str
    """The column of the queries; required, unless `path` is a data set, which has text."""
    id_column: str | None = None
    """The column that identifies log rows in `query_map`, qrels and errors; without one a row is `<file>#<row>`. A
    data set's is query_id."""
    count_column: str | None = None
    """In a pre-aggregated log, the column with the number of times that a row's query was asked."""
    context_column: str | None = None
    """The column of the earlier turns of a conversation, text or a list of texts, oldest first; part of a query's identity."""
    max_chars: Annotated[int, Field(gt=0)] = 2000
    """Longer queries are rejected (a row in errors/), not cut."""
    allow_empty: Annotated[bool, NOT_IDENTITY] = False
    """Lets `run` end with exit code 0 and without a folder where the log has no row; else it is refused."""
    date: Annotated[Annotated[str, BeforeValidator(day)] | None, NOT_IDENTITY] = None
    """The day that the log is of; where `path` has `{date}`, the value of that."""

    @model_validator(mode="before")
    @classmethod
    def _known_columns(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        path = values.get("path")
        paths = [one for one in (path if isinstance(path, list) else [path]) if isinstance(one, str)]
        return (SET_COLUMNS if set_names(paths) else {}) | values

    @model_validator(mode="after")
    def _sets_or_files(self) -> LogSettings:
        paths = [self.path] if isinstance(self.path, str) else self.path
        if 0 < len(set_names(paths)) < len(paths):
            raise ValueError("path: lists data sets beside files, whose columns differ; name either")
        return self
