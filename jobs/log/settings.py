"""The config's `log`: which files and columns are the query log."""

import contextlib
import datetime
from typing import Annotated, Any, Self

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
    """Query log: Parquet, JSON lines or CSV, or a data set."""

    model_config = ConfigDict(json_schema_extra=_known_by_data_sets)

    path: Annotated[Paths, Names.FILE]
    """File, folder or list of them: Parquet, JSON lines or CSV, also compressed (`.gz`, `.zst`); or data sets:
    `beir:FOLDER/SPLIT`, `irds:ID`, `topics:FILE`."""
    query_column: str
    """Column of the queries; known for data sets."""
    id_column: str | None = None
    """Column of row ids, which judgements name; null: `<file>#<row>`, for a data set query_id."""
    count_column: str | None = None
    """Column with the number of times that the row's query was asked."""
    context_column: str | None = None
    """Column of earlier turns of a conversation, a text or a list of texts, oldest first; part of a query's identity."""
    max_chars: Annotated[int, Field(gt=0)] = 2000
    """Longer queries are rejected, with a row in errors/."""
    allow_empty: Annotated[bool, NOT_IDENTITY] = False
    """Ends `run` with exit code 0 where the log has no row, in place of a refusal."""
    date: Annotated[Annotated[str, BeforeValidator(day)] | None, NOT_IDENTITY] = None
    """Day of the log, the value of `{date}` in `path`."""

    @model_validator(mode="before")
    @classmethod
    def _known_columns(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        path = values.get("path")
        paths = [one for one in (path if isinstance(path, list) else [path]) if isinstance(one, str)]
        return (SET_COLUMNS if set_names(paths) else {}) | values

    @model_validator(mode="after")
    def _sets_or_files(self) -> Self:
        paths = [self.path] if isinstance(self.path, str) else self.path
        if 0 < len(set_names(paths)) < len(paths):
            raise ValueError("path: lists data sets beside files, whose columns differ; name either")
        return self
