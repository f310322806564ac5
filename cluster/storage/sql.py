"""Words of a query for DuckDB where it takes no parameters: names of files in table functions, keys, columns."""

import re


def text_literal(value: str) -> str:
    """Returns a text as SQL writes it: in quotes, with its own doubled."""
    return "'" + value.replace("'", "''") + "'"


def file_literal(path: str) -> str:
    """Returns the name of one file as SQL writes it, where DuckDB would take it for a pattern of several.

    In a local name `*`, `?` and `[` are escaped: for `log[1].csv` DuckDB would read `log1.csv`. Names on S3 are never patterns
    here (`cluster.storage.s3_duckdb`).
    """
    return text_literal(path if path.startswith("s3://") else re.sub(r"[*?[]", r"[\g<0>]", path))


def identifier(name: str) -> str:
    """Returns the name of a column as SQL writes it: in double quotes, with its own doubled."""
    return '"' + name.replace('"', '""') + '"'
