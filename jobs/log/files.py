"""The files of the query log, local or on S3."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from cluster.errors import LogError, nearest
from cluster.storage import object_at, open_storage, remote

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class LogFile:
    """One file of the log; a later start compares `size` and `etag` or `mtime_ns` to see whether it was replaced."""

    path: str  # absolute or as configured, for opening
    name: str  # relative to the log's path, with "/"; the same on every machine; begins the log_id of a row
    size: int  # bytes
    mtime_ns: int | None  # None: an object on S3
    partitions: tuple[tuple[str, str | None], ...] = ()  # hive partitions in its path (date=2020-01-01), outer first
    etag: str | None = None  # the object's version

    @property
    def version(self) -> dict[str, Any]:
        """Returns path, size and etag or mtime_ns, as the plan stores them."""
        changed = {"mtime_ns": self.mtime_ns} if self.etag is None else {"etag": self.etag}
        return {"path": self.path, "size": self.size, **changed}


def find_log_files(path: str | Sequence[str], date: str | None = None) -> list[LogFile]:
    """Returns the Parquet files of a log, sorted by name; a file found twice is listed once.

    Args:
        path: a file, a folder with or without hive partitions, or a list of these. In folders `*.parquet` counts, at any
            depth; names that begin with `.` or `_` are skipped, links are followed.
        date: the value of `{date}`, for messages.

    Raises:
        LogError: a path does not exist, or holds no Parquet file.
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
                raise LogError("log-missing", f"log.path {one}{when}: no such file or folder{_nearest_path(one)}")
            root, inside, content = _local_files(one)
        if not inside:
            raise LogError(
                "log-missing", f"log.path {one}{when}: no Parquet file (*.parquet) in this folder, {content}; name another"
            )
        for file in inside:
            named = replace(file, name=os.path.relpath(file.path, base or root))
            found.setdefault(os.path.realpath(file.path), named)
    return sorted(found.values(), key=lambda file: file.name)


def _s3_files(url: str) -> tuple[str, list[LogFile], str]:
    """Returns the folder to which names are relative, the log files, and a description of the content.

    A URL is a file if there is an object of this name, else a folder.
    """
    entry = object_at(url)
    root = (url.rpartition("/")[0] if entry else url).rstrip("/")
    entries = [entry] if entry else list(open_storage(root).list())
    wanted = [one for one in entries if entry or _is_log(one.key)]
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


def _is_log(key: str) -> bool:
    return key.endswith(".parquet") and all(part[:1] not in "._" for part in key.split("/"))


def _walk(folder: str) -> Iterator[str]:
    seen: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link to a parent folder
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if name[0] not in "._"]
        yield from (os.path.join(parent, name) for name in files if _is_log(name))


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
