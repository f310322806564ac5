"""Words of a query for DuckDB where it takes no parameters: names of files in table functions, keys, columns."""

from __future__ import annotations


def text_literal(value: str) -> str:
    """Returns a text as SQL writes it: in quotes, with its own doubled."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Returns the name of a column as SQL writes it: in double quotes, with its own doubled."""
    return '"' + name.replace('"', '""') + '"'
