"""The files of the query log, local or on S3."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

from cluster.cause import absent
from cluster.errors import LogError, nearest
from cluster.storage import object_at, open_storage, remote
from cluster.storage.csv_file import CSV_ENDINGS
from cluster.storage.packed import PACKED
from jobs.log.sets.names import SetName, set_names
from jobs.log.sets.queries import SetFile, query_files
from jobs.log.settings import LogSettings

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
JSON_ENDINGS = tuple(f".{name}{packed}" for name in ("json", "jsonl", "ndjson") for packed in ("", *PACKED))
Form = Literal["parquet", "json", "csv", "set"]
FORMS: dict[Form, tuple[str, ...]] = {"parquet": (".parquet",), "json": JSON_ENDINGS, "csv": CSV_ENDINGS}
"""How a file holds rows -> endings of the names of such files; lines of JSON, and CSV, may be packed."""
ENDINGS = tuple(ending for endings in FORMS.values() for ending in endings)
_WANTED = "Parquet, JSON lines or CSV file (*.parquet, *.json, *.jsonl, *.ndjson, *.csv, *.tsv)"


def form_of(path: str) -> Form:
    """Returns how a file of this name holds rows; one whose ending says nothing is taken for Parquet."""
    return next((form for form, endings in FORMS.items() if path.lower().endswith(endings)), "parquet")


def counts(key: str) -> bool:
    """Returns whether a file of a folder counts, by its key there; hidden ones do not."""
    return key.lower().endswith(ENDINGS) and not any(part[:1] in "._" for part in key.split("/"))


@dataclass(frozen=True)
class LogFile:
    """One file of the log; a later start compares `size` and `etag` or `mtime_ns` to see whether it was replaced."""

    path: str  # absolute or as configured, for opening
    name: str  # relative to the log's path, with "/"; the same on every machine; begins the log_id of a row
    size: int  # bytes
    mtime_ns: int | None  # None: an object on S3
    partitions: tuple[tuple[str, str | None], ...] = ()  # hive partitions in its path (date=2020-01-01), outer first
    etag: str | None = None  # the object's version
    form: Form = "parquet"
    data_set: SetName | None = None  # of which it has the queries
    judged: LogFile | None = None  # which of its queries count, judgements say

    @property
    def version(self) -> dict[str, Any]:
        """Returns path, size and etag or mtime_ns, as the plan stores them."""
        changed = {"mtime_ns": self.mtime_ns} if self.etag is None else {"etag": self.etag}
        return {"path": self.path, "size": self.size, **changed}

    def error(self, code: str, words: str, at: str = "") -> LogError:
        """Returns an error of the file, or of what is `at` a place in it, such as `, line 3`."""
        return LogError(code, f"log file {self.path}{at}: {words}")


def versions(files: Sequence[LogFile]) -> list[dict[str, Any]]:
    """Returns the versions of files, and of those that say which of their rows count."""
    return [one.version for file in files for one in (file, file.judged) if one is not None]


def replaced(file: LogFile) -> LogError:
    """Returns the error that a file is not the one that was listed: the plan holds for that version only."""
    return file.error("run-changed", "was replaced since it was listed; start again")


def check_file_version(file: LogFile, error: Exception) -> None:
    """Checks that an error of reading is not that the file was replaced: the plan holds for the listed version only.

    Raises:
        LogError: the file was replaced.
    """
    if isinstance(error, OSError) and error.errno == errno.ESTALE:
        raise replaced(file) from error


def unchanged(file: LogFile) -> bool:
    """Returns whether a local file is still the one that was listed.

    Raises:
        OSError: there is no such file.
    """
    stat = os.stat(file.path)
    return (stat.st_size, stat.st_mtime_ns) == (file.size, file.mtime_ns)


def find_log_files(path: str | Sequence[str], date: str | None = None) -> list[LogFile]:
    """Returns the files of a log, sorted by name; a file found twice is listed once.

    Args:
        path: a file, a folder with or without hive partitions, or a list of these. In folders Parquet, JSON lines or CSV
            counts, at any depth; names that begin with `.` or `_` are skipped, links are followed. Beside Parquet nothing
            else counts. A file that is named itself always counts.
        date: the value of `{date}`, for messages.

    Raises:
        LogError: a path does not exist, or holds no such file, or CSV beside JSON lines.
        ClusterError, OSError: errors of S3.
    """
    paths = [path] if isinstance(path, str) else list(path)
    if not paths:
        raise LogError("log-missing", "log.path is an empty list; name a file or folder")
    when = f" (date {date})" if date else ""
    # os.path takes S3 URLs for paths below the working directory; common and relative paths are right all the same
    base = None if len(paths) == 1 else os.path.commonpath([os.path.dirname(os.path.abspath(one)) for one in paths])
    found: dict[str, LogFile] = {}
    for one in paths:
        if remote(one):
            if not all(remote(other) for other in paths):
                raise LogError("log-missing", f"log.path {one}{when}: is mixed with local files; name all in s3://, or none")
            root, inside, content = _s3_files(one)
        else:
            if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", one):
                raise LogError(
                    "log-missing", f"log.path {one}{when}: cannot be read; name s3://BUCKET/FOLDER, a local file or folder"
                )
            if not os.path.exists(one):
                raise LogError("log-missing", f"log.path {one}{when}: {absent(one)}{_nearest_path(one)}")
            root, inside, content = _local_files(one)
        if not inside:
            raise LogError("log-missing", f"log.path {one}{when}: no {_WANTED} in this folder, {content}; name another")
        for file in of_one_form(inside, f"log.path {one}{when}"):
            name = os.path.relpath(file.path, base or root)
            found.setdefault(os.path.realpath(file.path), replace(file, name=name, form=form_of(file.path)))
    return sorted(found.values(), key=lambda file: file.name)


def of_one_form(files: Sequence[LogFile], where: str) -> list[LogFile]:
    """Returns those files of a folder, which `where` names, that hold its rows: Parquet files, where there are any, else all.

    Raises:
        LogError: Some are lines of JSON, some CSV, so that rows may be there twice.
    """
    forms = {form_of(file.path): file for file in files}
    if "parquet" in forms:
        return [file for file in files if form_of(file.path) == "parquet"]
    if len(forms) > 1:
        first, second = sorted(os.path.basename(file.path) for file in forms.values())
        words = "holds lines of JSON and CSV, which may be the same rows"
        raise LogError("log-missing", f"{where}: {words} ({first}, {second}); name the files, or a folder of one form")
    return list(files)


def _s3_files(url: str) -> tuple[str, list[LogFile], str]:
    """Returns the folder to which names are relative, the log files, and a description of the content.

    A URL is a file if there is an object of this name, else a folder.
    """
    entry = object_at(url)
    root = (url.rpartition("/")[0] if entry else url).rstrip("/")
    entries = [entry] if entry else list(open_storage(root).list())
    wanted = [one for one in entries if entry or counts(one.key)]
    files = [LogFile(f"{root}/{one.key}", "", one.size, None, _partitions(f"{root}/{one.key}"), one.etag) for one in wanted]
    return root, files, f"found {_first_names([one.key for one in entries])}" if entries else "it is empty"


def _local_files(path: str) -> tuple[str, list[LogFile], str]:
    folder = os.path.isdir(path)
    files = []
    for one in _walk(path) if folder else [path]:
        stat = os.stat(one)
        files.append(LogFile(one, "", stat.st_size, stat.st_mtime_ns, _partitions(os.path.abspath(one))))
    names = sorted(os.listdir(path)) if folder else []
    return path if folder else os.path.dirname(path) or ".", files, f"found {_first_names(names)}" if names else "it is empty"


def _walk(folder: str) -> Iterator[str]:
    seen: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link to a parent folder
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if name[0] not in "._"]
        inside = [os.path.join(parent, name) for name in files]
        yield from (one for one in inside if counts(os.path.relpath(one, folder)))


def _partitions(path: str) -> tuple[tuple[str, str | None], ...]:
    pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if re.fullmatch(r"[^=]+=.*", folder)]
    return tuple((key, None if value == HIVE_NULL else unquote(value)) for key, value in pairs)


def _nearest_path(path: str) -> str:
    parent, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(parent):
        return f", and no folder {parent}; correct log.path"
    return nearest(name, sorted(os.listdir(parent)))


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def log_files(log: LogSettings) -> list[LogFile]:
    """Returns the files of the log's queries, in order of their names.

    Raises:
        LogError: there are none.
        ConfigError: a data set cannot be had.
        ClusterError, OSError: errors of S3.
    """
    if names := set_names(log.path):
        return [_of_set(name) for name in names]
    return find_log_files(log.path)


def _of_set(name: SetName) -> LogFile:
    first, *others = [_as_log_file(file, name) for file in query_files(name)]
    return replace(first, judged=next(iter(others), None))


def _as_log_file(file: SetFile, name: SetName) -> LogFile:
    return LogFile(file.path, str(name), file.size, file.mtime_ns, etag=file.etag, form="set", data_set=name)
