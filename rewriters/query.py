"""A query as strategies are given it."""

from collections.abc import Mapping
from typing import NamedTuple


class Query(NamedTuple):
    """One query of the log."""

    query_id: str  # of every table
    text: str  # as it is shown and searched
    context: str | None = None  # the earlier turns of its conversation; None without any
    values: Mapping[str, str | None] = {}  # column of the log -> the value, for variables of prompts; None: no row has one
