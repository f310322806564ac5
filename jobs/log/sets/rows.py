"""Rows of a set's queries as columns of text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa


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
