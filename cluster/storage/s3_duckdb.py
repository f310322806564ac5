"""S3 as a file system of DuckDB: its own Parquet reader, over our connection and retries.

Why not otherwise: DuckDB's httpfs extension is a separate download for every version, and cannot renew credentials within a
query. pyarrow's S3 file system ignores AWS_ENDPOINT_URL_S3 and a profile's endpoint, and gives up after three attempts in 3 s.
Arrow data in place of files cost more: six tables of 2.4 million rows joined and sorted took 7 CPU s and 483 MB through
DuckDB's reader, 17 CPU s and 1,216 MB through a pyarrow dataset, 17 CPU s and 494 MB through a stream of record batches.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import Any

import duckdb
import fsspec

from cluster.errors import LogError, UnavailableError
from cluster.storage.copies import cache_folder, work_folder
from cluster.storage.s3_file import S3File

_MACROS = """
CREATE MACRO rows_of(files) AS TABLE FROM read_parquet(files, hive_partitioning = false);
CREATE MACRO rows_by_name(files) AS TABLE FROM read_parquet(files, hive_partitioning = false, union_by_name = true);
"""
"""The rows of Parquet files as they are, and those of files that may lack columns. By itself DuckDB takes `stage=prod` in a
path for a column, in place of the file's own of that name."""


class _File(S3File):
    """A file with a position for each thread: DuckDB calls `seek` and `read` from several."""

    def __init__(self, url: str) -> None:
        self._own = threading.local()
        super().__init__(url, block=1)  # DuckDB itself reads ahead and caches

    @property
    def loc(self) -> int:
        return getattr(self._own, "at", 0)

    @loc.setter
    def loc(self, position: int) -> None:
        self._own.at = position


class _Files(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """The part of fsspec that DuckDB calls; read only."""

    protocol = "s3"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self._opened: dict[str, tuple[int, datetime]] = {}  # url -> size, last modified

    def _open(self, path: str, mode: str = "rb", **_: Any) -> _File:
        if mode != "rb":
            raise OSError(f"s3://{path}: is read only here")
        file = _File(f"s3://{self._strip_protocol(path)}")
        self._opened[file.url] = file.size, file.modified
        return file

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Returns the size of a file that DuckDB has opened."""
        name = f"s3://{self._strip_protocol(path)}"
        return {"name": name, "size": self._opened[name][0], "type": "file"}

    def modified(self, path: str) -> datetime:
        """Returns the time at which an opened object was put; DuckDB invalidates its cache by it."""
        return self._opened[f"s3://{self._strip_protocol(path)}"][1]

    def glob(self, path: str, **_: Any) -> list[str]:
        """Returns the path itself: all files are given by name."""
        return [path]


def open_duckdb(config: Mapping[str, str | int | bool] | None = None) -> duckdb.DuckDBPyConnection:
    """Opens an in-memory DuckDB that reads s3://, without the progress bar on standard output, which has results only."""
    connection = _quiet(duckdb.connect(config=dict(config or {})))
    connection.register_filesystem(_Files())
    connection.execute(_MACROS)
    return connection


def _quiet(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    with suppress(duckdb.InvalidInputException):  # in Jupyter without ipywidgets there is no bar, and even this is refused
        connection.execute("SET enable_progress_bar = false")
    return connection


_kept: ContextVar[Callable[[str, int, bool], duckdb.DuckDBPyConnection] | None] = ContextVar("kept", default=None)


@contextmanager
def kept_duckdb() -> Iterator[None]:
    """Has each `bounded_duckdb` of this context share one database with those of the same settings.

    A database takes 25 ms of CPU to open, and a page reads from ten. What is read stays in its memory to the end.
    """
    with ExitStack() as stack:
        token = _kept.set(cache(lambda *bounds: stack.enter_context(_bounded(*bounds))))
        try:
            yield
        finally:
            _kept.reset(token)


@contextmanager
def bounded_duckdb(memory: str, threads: int, *, ordered: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens `open_duckdb` in bounded memory; it spills to a temporary folder. `ordered`: in the order of the files."""
    kept = _kept.get()
    # a cursor has temporary tables of its own
    opened = _bounded(memory, threads, ordered) if kept is None else _quiet(kept(memory, threads, ordered).cursor())
    with opened as connection:
        yield connection


@contextmanager
def _bounded(memory: str, threads: int, ordered: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    with work_folder() as folder:
        limits: dict[str, str | int | bool] = {"memory_limit": memory, "threads": threads, "preserve_insertion_order": ordered}
        with open_duckdb(limits | {"temp_directory": str(folder)}) as connection:
            yield connection


def no_room(what: str, error: duckdb.Error, memory: str, remedy: str) -> LogError:
    """Returns the error of a query that ran out of memory, with that remedy, or of disk space (DuckDB has two for it)."""
    why = reason(error)
    if isinstance(error, duckdb.OutOfMemoryException) and "max_temp_directory_size" not in str(error):
        return LogError("disk-space", f"{what}: it needs more memory than its {memory} ({why}); {remedy}")
    return LogError(
        "disk-space", f"{what} (memory_limit {memory}, temporary files in {cache_folder()}): {why}; free space there"
    )


def reason(error: Exception) -> str:
    """Returns the reason why DuckDB failed, in one line (it passes an exception of our file system on as a traceback).

    Raises UnavailableError where the storage did not answer: nothing is wrong with the tables.
    """
    text = str(error)
    away = [text] if isinstance(error, UnavailableError) else re.findall(r"UnavailableError: (.*)$", text, re.MULTILINE)
    if away:
        raise UnavailableError(away[-1]) from None
    raised = re.findall(r"^(?:[\w.]*\.)?\w+(?:Error|Exception): (.*)$", text, re.MULTILINE)
    return " ".join((raised[-1] if raised and "Traceback" in text else text).split())[:200]
