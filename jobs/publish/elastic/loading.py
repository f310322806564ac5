"""Loading of rows into the index of a version."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import islice

from retrievers.elastic.bulk import BulkLoader
from retrievers.elastic.connection import Connection

_AT_ONCE = 2_048  # rows that are handed to the loader


def load_rows(connection: Connection, index: str, lines: Iterable[tuple[str, str]], in_flight: int) -> None:
    """Loads rows, given as key and JSON; one that is there already stays, since it is equal.

    Raises:
        RetrieverError: The server refuses a row, or stayed unavailable.
    """
    remaining = iter(lines)
    with closing(BulkLoader(connection, index, in_flight)) as loader:
        while some := list(islice(remaining, _AT_ONCE)):
            loader.add([{"_op_type": "create", "_id": key, "_source": line.encode()} for key, line in some])
        loader.drain()
