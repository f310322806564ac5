"""Which files of an export of User Behavior Insights (UBI) hold queries, and which hold events.

OpenSearch keeps them in the indexes `ubi_queries` and `ubi_events`; exports take their names from these.
"""

from __future__ import annotations

import os

from cluster.errors import LogError
from cluster.storage import object_at, remote
from jobs.log.files import JSON_ENDINGS, LogFile, Wanted, find_log_files
from jobs.log.settings import LogSettings

QUERIES, EVENTS = "ubi_queries", "ubi_events"


def _named(key: str, name: str) -> bool:
    return any(part.startswith(name) for part in key.split("/"))


def _no_events(key: str) -> bool:
    return not _named(key, EVENTS)


def _no_queries(key: str) -> bool:
    return not _named(key, QUERIES)


def _events(key: str) -> bool:
    return _named(key, EVENTS)


_ENDINGS = (".parquet", *JSON_ENDINGS)
_QUERIES = Wanted(_ENDINGS, _no_events)


def log_files(log: LogSettings) -> list[LogFile]:
    """Returns the files of the log's queries, in order of their names.

    Raises:
        LogError: there are none.
        ClusterError, OSError: errors of S3.
    """
    if log.format != "ubi":
        return find_log_files(log.path)
    return _ended(find_log_files(log.path, wanted=_QUERIES))


def event_files(log: LogSettings) -> list[LogFile]:
    """Returns the files of the log's events, in order of their names.

    Without `log.events` they are the ubi_events* in the folders of `log.path`; where a path has none, or is a file, they are
    looked for at the path in which `ubi_events` stands in place of the last `ubi_queries`.

    Raises:
        LogError: there are none.
        ClusterError, OSError: errors of S3.
    """
    if log.events is not None:
        return _ended(find_log_files(log.events, wanted=Wanted(_ENDINGS, _no_queries, "log.events")))
    found: dict[str, LogFile] = {}
    for path in [log.path] if isinstance(log.path, str) else log.path:
        for file in _beside(path):
            found.setdefault(file.path, file)
    return list(found.values())


def _beside(path: str) -> list[LogFile]:
    """Returns the files of the events that belong to a path of queries."""
    if _is_folder(path):
        try:
            return find_log_files(path, wanted=Wanted(_ENDINGS, _events))
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
    return _ended(find_log_files(other, wanted=Wanted(_ENDINGS, _no_queries, "log.events (by log.path)")))


def _is_folder(path: str) -> bool:
    return object_at(path) is None if remote(path) else os.path.isdir(path)


def _ended(files: list[LogFile]) -> list[LogFile]:
    """Returns the files; refuses one whose name does not tell its format."""
    for file in files:
        if not file.path.endswith(_ENDINGS):
            what = f"neither Parquet nor lines of JSON by its name; let it end in one of {', '.join(_ENDINGS)}"
            raise LogError("log-ubi", f"log file {file.path}: {what}")
    return files
