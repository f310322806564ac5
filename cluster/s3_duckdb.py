"""Tables on S3 for DuckDB: it reads them in ranges, through our own connection.

Its httpfs extension is a download of its own for every version, and cannot renew credentials in the middle of a query.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import duckdb
import fsspec

from cluster import UnavailableError
from cluster.s3_file import PerThread


class _Files(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """What DuckDB asks of a file system; read only."""

    protocol = "s3"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self._opened: dict[str, tuple[int, datetime]] = {}  # url -> what its answer said

    def _open(self, path: str, mode: str = "rb", **_: Any) -> PerThread:
        if mode != "rb":
            raise OSError(f"s3://{path}: is read only here")
        bucket, _slash, key = self._strip_protocol(path).partition("/")
        file = PerThread(bucket, key)
        self._opened[file.url] = file.size, file.modified
        return file

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """DuckDB asks for the size of a file that it has opened."""
        name = f"s3://{self._strip_protocol(path)}"
        return {"name": name, "size": self._opened[name][0], "type": "file"}

    def modified(self, path: str) -> datetime:
        """When an opened object was put: DuckDB's cache goes by it."""
        return self._opened[f"s3://{self._strip_protocol(path)}"][1]

    def glob(self, path: str, **_: Any) -> list[str]:
        """The path itself: all files are given by name."""
        return [path]


def attach(connection: duckdb.DuckDBPyConnection) -> None:
    """Let the connection read s3://; nothing is asked of a server before it does."""
    connection.register_filesystem(_Files())


def reason(error: Exception) -> str:
    """What DuckDB failed on, in one line; what our reading of S3 raised comes to it as a trace. UnavailableError where it was
    that: nothing is wrong with the tables then."""
    text = str(error)
    away = [text] if isinstance(error, UnavailableError) else re.findall(r"UnavailableError: (.*)$", text, re.MULTILINE)
    if away:
        raise UnavailableError(away[-1]) from None
    raised = re.findall(r"^(?:[\w.]*\.)?\w+(?:Error|Exception): (.*)$", text, re.MULTILINE)
    return " ".join((raised[-1] if raised and "Traceback" in text else text).split())[:200]
