"""The files of the query log, local or on S3, and which of those of User Behavior Insights (UBI) hold queries or events.

OpenSearch keeps them in the indexes `ubi_queries` and `ubi_events`; exports take their names from these.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

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
FORM_NAMES: dict[Form, str] = {"parquet": "Parquet", "json": "JSON lines", "csv": "CSV"}
ENDINGS = tuple(ending for endings in FORMS.values() for ending in endings)


def form_of(path: str) -> Form:
    """Returns how a file of this name holds rows; one whose ending says nothing is taken for Parquet."""
    return next((form for form, endings in FORMS.items() if path.lower().endswith(endings)), "parquet")


@dataclass(frozen=True)
class Wanted:
    """Which files of a folder count."""

    endings: tuple[str, ...] = ENDINGS
    only: str = ""  # begins a folder or the file in its key, relative to the folder
    but: str | None = None  # begins none of these
    key: str = "log.path"  # the config key that names the folder, for messages
    ubi: bool = False  # exports of UBI: of a folder the files of all forms count, else those of one

    @property
    def words(self) -> str:
        """Returns what the files are, for messages."""
        known = ", ".join(f"*{ending}" for ending in self.endings if not ending.endswith(tuple(PACKED)))
        *names, last = dict.fromkeys(FORM_NAMES[form_of(ending)] for ending in self.endings)
        return f"{', '.join(names)} or {last} file ({known})"

    def __contains__(self, key: object) -> bool:
        """Returns whether the file of this key counts; hidden ones do not."""
        name = str(key)
        if not name.lower().endswith(self.endings) or any(part[:1] in "._" for part in name.split("/")):
            return False
        parts = name.split("/")
        return any(part.startswith(self.only) for part in parts) and not (
            self.but is not None and any(part.startswith(self.but) for part in parts)
        )


TABLES = Wanted()


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
    ubi: bool = False  # an export of UBI
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

    def no_lines(self, words: str, at: str) -> LogError:
        """Returns the error that its text is not lines of JSON as they are to be."""
        return self.error("log-ubi", words, at) if self.ubi else self.error("log-unreadable", words, at)


def versions(files: Sequence[LogFile]) -> list[dict[str, Any]]:
    """Returns the versions of files, and of those that say which of their rows count."""
    return [one.version for file in files for one in (file, file.judged) if one is not None]


def replaced(file: LogFile) -> LogError:
    """Returns the error that a file is not the one that was listed: the plan holds for that version only."""
    return file.error("log-changed", "was replaced since it was listed; start again")


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


def find_log_files(path: str | Sequence[str], date: str | None = None, wanted: Wanted = TABLES) -> list[LogFile]:
    """Returns the files of a log, sorted by name; a file found twice is listed once.

    Args:
        path: a file, a folder with or without hive partitions, or a list of these. In folders what is `wanted` counts, at
            any depth; names that begin with `.` or `_` are skipped, links are followed. Beside Parquet nothing else counts.
        date: the value of `{date}`, for messages.
        wanted: the endings of files, and more; Parquet, JSON lines or CSV, if not said. A file that is named itself always
            counts.

    Raises:
        LogError: a path does not exist, or holds no such file, or CSV beside JSON lines.
        ClusterError, OSError: errors of S3.
    """
    paths, key = [path] if isinstance(path, str) else list(path), wanted.key
    if not paths:
        raise LogError("log-missing", f"{key} is an empty list; name a file or folder")
    when = f" (date {date})" if date else ""
    # os.path takes S3 URLs for paths below the working directory; common and relative paths are right all the same
    base = None if len(paths) == 1 else os.path.commonpath([os.path.dirname(os.path.abspath(one)) for one in paths])
    found: dict[str, LogFile] = {}
    for one in paths:
        if remote(one):
            if not all(remote(other) for other in paths):
                raise LogError("log-missing", f"{key} {one}{when}: is mixed with local files; name all in s3://, or none")
            root, inside, content = _s3_files(one, wanted)
        else:
            if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", one):
                raise LogError(
                    "log-missing", f"{key} {one}{when}: cannot be read; name s3://BUCKET/FOLDER, a local file or folder"
                )
            if not os.path.exists(one):
                raise LogError("log-missing", f"{key} {one}{when}: no such file or folder{_nearest_path(one, key)}")
            root, inside, content = _local_files(one, wanted)
        if not inside:
            raise LogError("log-missing", f"{key} {one}{when}: no {wanted.words} in this folder, {content}; name another")
        for file in inside if wanted.ubi else of_one_form(inside, f"{key} {one}{when}"):
            name = os.path.relpath(file.path, base or root)
            named = replace(file, name=name, form=form_of(file.path), ubi=wanted.ubi)
            found.setdefault(os.path.realpath(file.path), named)
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


def _s3_files(url: str, which: Wanted) -> tuple[str, list[LogFile], str]:
    """Returns the folder to which names are relative, the log files, and a description of the content.

    A URL is a file if there is an object of this name, else a folder.
    """
    entry = object_at(url)
    root = (url.rpartition("/")[0] if entry else url).rstrip("/")
    entries = [entry] if entry else list(open_storage(root).list())
    wanted = [one for one in entries if entry or one.key in which]
    files = [LogFile(f"{root}/{one.key}", "", one.size, None, _partitions(f"{root}/{one.key}"), one.etag) for one in wanted]
    return root, files, f"found {_first_names([one.key for one in entries])}" if entries else "it is empty"


def _local_files(path: str, which: Wanted) -> tuple[str, list[LogFile], str]:
    folder = os.path.isdir(path)
    files = []
    for one in _walk(path, which) if folder else [path]:
        stat = os.stat(one)
        files.append(LogFile(one, "", stat.st_size, stat.st_mtime_ns, _partitions(os.path.abspath(one))))
    names = sorted(os.listdir(path)) if folder else []
    return path if folder else os.path.dirname(path) or ".", files, f"found {_first_names(names)}" if names else "it is empty"


def _walk(folder: str, which: Wanted) -> Iterator[str]:
    seen: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link to a parent folder
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if name[0] not in "._"]
        inside = [os.path.join(parent, name) for name in files]
        yield from (one for one in inside if os.path.relpath(one, folder) in which)


def _partitions(path: str) -> tuple[tuple[str, str | None], ...]:
    pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if re.fullmatch(r"[^=]+=.*", folder)]
    return tuple((key, None if value == HIVE_NULL else unquote(value)) for key, value in pairs)


def _nearest_path(path: str, key: str) -> str:
    parent, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(parent):
        return f", and no folder {parent}; correct {key}"
    return nearest(name, sorted(os.listdir(parent)))


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


QUERIES, EVENTS = "ubi_queries", "ubi_events"


_ENDINGS = (".parquet", *JSON_ENDINGS)
_QUERIES = Wanted(_ENDINGS, but=EVENTS, ubi=True)


def log_files(log: LogSettings) -> list[LogFile]:
    """Returns the files of the log's queries, in order of their names.

    Raises:
        LogError: there are none.
        ConfigError: a data set cannot be had.
        ClusterError, OSError: errors of S3.
    """
    if names := set_names(log.path):
        return [_of_set(name) for name in names]
    if log.format != "ubi":
        return find_log_files(log.path)
    return _ended(find_log_files(log.path, wanted=_QUERIES))


def _of_set(name: SetName) -> LogFile:
    first, *others = [_as_log_file(file, name) for file in query_files(name)]
    return replace(first, judged=next(iter(others), None))


def _as_log_file(file: SetFile, name: SetName) -> LogFile:
    return LogFile(file.path, str(name), file.size, file.mtime_ns, etag=file.etag, form="set", data_set=name)


def event_files(log: LogSettings) -> list[LogFile]:
    """Returns the files of the log's events, in order of their names.

    Without `log.events` they are the ubi_events* in the folders of `log.path`; where a path has none, or is a file, they are
    looked for at the path in which `ubi_events` stands in place of the last `ubi_queries`.

    Raises:
        LogError: there are none.
        ClusterError, OSError: errors of S3.
    """
    if log.events is not None:
        return _ended(find_log_files(log.events, wanted=Wanted(_ENDINGS, but=QUERIES, key="log.events", ubi=True)))
    found: dict[str, LogFile] = {}
    for path in [log.path] if isinstance(log.path, str) else log.path:
        for file in _beside(path):
            found.setdefault(file.path, file)
    return list(found.values())


def _beside(path: str) -> list[LogFile]:
    """Returns the files of the events that belong to a path of queries."""
    if object_at(path) is None if remote(path) else os.path.isdir(path):
        try:
            return find_log_files(path, wanted=Wanted(_ENDINGS, EVENTS, ubi=True))
        except LogError as error:
            if QUERIES not in path:
                words = f"log.path {path}: no {EVENTS}* in this folder; let log.events name them"
                raise LogError("log-missing", words) from error
    before, _, after = path.rpartition(QUERIES)
    if QUERIES not in path:
        raise LogError(
            "log-missing", f"log.path {path}: where the events lie does not follow from it; let log.events name them"
        )
    other = f"{before}{EVENTS}{after}"
    return _ended(find_log_files(other, wanted=Wanted(_ENDINGS, but=QUERIES, key="log.events (by log.path)", ubi=True)))


def _ended(files: list[LogFile]) -> list[LogFile]:
    """Returns the files; refuses one whose name does not tell its format."""
    for file in files:
        if not file.path.endswith(_ENDINGS):
            what = f"neither Parquet nor lines of JSON by its name; let it end in one of {', '.join(_ENDINGS)}"
            raise file.error("log-ubi", what)
    return files
