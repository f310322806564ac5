"""Tables on S3 for DuckDB: it reads them in ranges, through our own connection.

Its httpfs extension is a download of its own for every version, and cannot renew credentials in the middle of a query.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import fsspec

from cluster.s3_file import PerThread


class _Files(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """What DuckDB asks of a file system; read only."""

    protocol = "s3"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self._modified: dict[str, datetime] = {}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> PerThread:
        if mode != "rb":
            raise OSError(f"s3://{path}: is read only here")
        bucket, _, key = self._strip_protocol(path).partition("/")
        file = PerThread(bucket, key)
        self._modified[file.url] = file.modified
        return file

    def modified(self, path: str) -> datetime:
        """When an opened object was put: DuckDB's cache goes by it."""
        return self._modified.get(f"s3://{self._strip_protocol(path)}", datetime.now(UTC))

    def glob(self, path: str, **_: Any) -> list[str]:
        """The path itself: all files are given by name."""
        return [path]


def attach(connection: duckdb.DuckDBPyConnection) -> None:
    """Let the connection read s3://; nothing is asked of a server before it does."""
    connection.register_filesystem(_Files())
