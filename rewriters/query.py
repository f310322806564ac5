"""A query as strategies are given it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Query(NamedTuple):
    """One query of the log.

    Attributes:
        query_id: Of every table.
        text: As it is shown and searched.
        context: The earlier turns of its conversation; None without any.
        values: Column of the log -> this query's value, for prompts with a variable of that name; None: no row has one.
    """

    query_id: str
    text: str
    context: str | None = None
    values: Mapping[str, str | None] = {}
