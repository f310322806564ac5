"""The files of the query log, local or on S3."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from cluster.cause import absent
from cluster.errors import LogError, nearest
from cluster.storage import FoundFile, files_at, is_hidden, remote
from jobs.log.sets.names import SetName, set_names
from jobs.log.sets.queries import query_files
from jobs.log.settings import LogSettings
from jobs.log.table_file import TableFault, form_of

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_WANTED = "Parquet, JSON lines or CSV file (*.parquet, *.json, *.jsonl, *.ndjson, *.csv, *.tsv)"


@dataclass(frozen=True)
class LogFile:
    """One file of the log; a later start compares `size` and `changed` to see whether it was replaced."""

    path: str  # absolute or as configured, for opening
    name: str  # relative to the log's path, with "/"; the same on every machine; begins the log_id of a row
    size: int  # bytes
    changed: int | str  # nanoseconds of its last change; of an object its etag
    partitions: tuple[tuple[str, str | None], ...] = ()  # hive partitions in its path (date=2020-01-01), outer first
    data_set: SetName | None = None  # of which it has the queries
    judged: LogFile | None = None  # which of its queries count, judgements say

    @property
    def version(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size, "etag" if isinstance(self.changed, str) else "mtime_ns": self.changed}

    def error(self, code: str, problem: str, at: str = "") -> LogError:
        """Returns an error of the file, or of what is `at` a place in it, such as `, line 3`."""
        return LogError(code, f"log file {self.path}{at}: {problem}")


def versions(files: Sequence[LogFile]) -> list[dict[str, Any]]:
    """Returns the versions of files, and of those that say which of their rows count."""
    return [part.version for file in files for part in (file, file.judged) if part is not None]


def replaced(file: LogFile) -> LogError:
    """Returns the error that a file is not the one that was listed: the plan holds for that version only."""
    return file.error("run-changed", "was replaced since it was listed; start again")


def of_one_form(files: Sequence[FoundFile]) -> list[FoundFile]:
    """Returns those files of a folder that hold its rows: Parquet files, where there are any, else all.

    Raises TableFault if some are lines of JSON, some CSV, so that rows may be there twice.
    """
    forms = {form_of(file.path) or "parquet": file.name for file in files}
    if "parquet" in forms:
        return [file for file in files if form_of(file.path) in ("parquet", None)]
    if len(forms) > 1:
        message = f"holds lines of JSON and CSV, which may be the same rows ({', '.join(sorted(forms.values()))})"
        raise TableFault(f"{message}; name the files, or a folder of one form")
    return list(files)


def find_log_files(path: str | Sequence[str]) -> list[LogFile]:
    """Returns the files of a log, sorted by name; a file found twice is listed once.

    `path` is a file, a folder with or without hive partitions, or a list of these. In folders Parquet, JSON lines or CSV
    counts, at any depth; names that begin with `.` or `_` are skipped, links are followed. Beside Parquet nothing else
    counts. A file that is named itself always counts.

    Raises LogError if a path does not exist, or holds no such file, or CSV beside JSON lines.
    """
    paths = [path] if isinstance(path, str) else list(path)
    if not paths:
        raise LogError("log-files", "log.path is an empty list; name a file or folder")
    # os.path takes S3 URLs for paths below the working directory; common and relative paths are right all the same
    base = None if len(paths) == 1 else os.path.commonpath([os.path.dirname(os.path.abspath(entry)) for entry in paths])
    by_path: dict[str, LogFile] = {}
    for entry in paths:
        where = f"log.path {entry}"
        if remote(entry) and not all(map(remote, paths)):
            raise LogError("log-files", f"{where}: is mixed with local files; name all in s3://, or none")
        if not remote(entry) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", entry):
            raise LogError("log-files", f"{where}: cannot be read; name s3://BUCKET/FOLDER, a local file or folder")
        if not remote(entry) and not os.path.exists(entry):
            raise LogError("log-files", f"{where}: {absent(entry)}{_nearest_path(entry)}")
        every = files_at(entry)
        inside = [file for file in every if file.path == entry or (form_of(file.name) and not is_hidden(file.name))]
        if not inside:
            names = [file.name for file in every[:5]] + [f"{len(every) - 5} more"] * (len(every) > 5)
            content = f"found {', '.join(names)}" if every else "it is empty"
            raise LogError("log-files", f"{where}: no {_WANTED} in this folder, {content}; name another")
        try:
            inside = of_one_form(inside)
        except TableFault as fault:
            raise LogError("log-files", f"{where}: {fault.message}") from fault
        root = os.path.dirname(entry) or "." if inside[0].path == entry else entry
        for file in inside:
            name = os.path.relpath(file.path, base or root)
            folders = (file.path if remote(entry) else os.path.abspath(file.path)).split("/")[:-1]
            pairs = [folder.split("=", 1) for folder in folders if re.fullmatch(r"[^=]+=.*", folder)]
            partitions = tuple((key, None if value == HIVE_NULL else unquote(value)) for key, value in pairs)
            by_path.setdefault(os.path.realpath(file.path), LogFile(file.path, name, file.size, file.changed, partitions))
    return sorted(by_path.values(), key=lambda file: file.name)


def _nearest_path(path: str) -> str:
    parent, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(parent):
        return f", and no folder {parent}; correct log.path"
    return nearest(name, sorted(os.listdir(parent)))


def log_files(log: LogSettings) -> list[LogFile]:
    """Returns the files of the log's queries, in order of their names; raises LogError, or ConfigError for a data set."""
    listed = []
    for name in set_names(log.path):
        files = [LogFile(file.path, str(name), file.size, file.changed, data_set=name) for file in query_files(name)]
        listed.append(replace(files[0], judged=next(iter(files[1:]), None)))
    return listed or find_log_files(log.path)
