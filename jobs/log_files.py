"""The query log as files: which ones there are, here or on S3."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cluster.storage import object_at, open_storage, remote

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class LogError(Exception):
    """The log cannot be used; `str()` is one line for a person: what, where, what was found, what to do."""


@dataclass(frozen=True)
class LogFile:
    """One file of the log; `size` with `etag` or `mtime_ns` tells a later start whether it is still the same."""

    path: str  # absolute or as configured: how to open it
    name: str  # relative to the log's path, with "/": the same on every machine, the stem of a row's log_id
    size: int  # bytes
    mtime_ns: int | None  # None: an object of S3
    partitions: tuple[tuple[str, str | None], ...] = ()  # hive partitions in its path (date=2020-01-01), outer first
    etag: str | None = None  # the object's version

    @property
    def version(self) -> dict[str, Any]:
        """What a plan keeps of it."""
        changed = {"mtime_ns": self.mtime_ns} if self.etag is None else {"etag": self.etag}
        return {"path": self.path, "size": self.size, **changed}


def find_log_files(path: str | Sequence[str], date: str | None = None) -> list[LogFile]:
    """The Parquet files under `path` (a file, a folder with or without hive partitions, or a list of these), by name.

    In folders only `*.parquet` counts, at any depth; names starting with `.` or `_` are skipped, links are followed.
    A file reached twice is taken once. `date` is what `{date}` stood for; it only appears in messages.
    Raises LogError when something named is not there or holds no Parquet file; ClusterError or OSError as S3 does.
    """
    paths = [path] if isinstance(path, str) else list(path)
    if not paths:
        raise LogError("log.path is an empty list; name a file or folder")
    when = f" (date {date})" if date else ""
    if all(remote(one) for one in paths):
        return _find_objects(paths, when)
    for one in paths:
        if remote(one):
            raise LogError(f"log.path {one}{when}: stands beside files of this machine; name all in s3://, or none")
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", one):
            raise LogError(f"log.path {one}{when}: cannot be read; name s3://BUCKET/FOLDER, a local file or folder")
        if not os.path.exists(one):
            raise LogError(f"log.path {one}{when}: no such file or folder{_nearest_path(one)}; correct log.path")
    base = None if len(paths) == 1 else os.path.commonpath([os.path.dirname(os.path.abspath(one)) for one in paths])
    found: dict[str, LogFile] = {}
    for one in paths:
        before = len(found)
        inside = list(_walk(one)) if os.path.isdir(one) else [one]
        root = base or (one if os.path.isdir(one) else os.path.dirname(one) or ".")
        for file in inside:
            found.setdefault(os.path.realpath(file), _log_file(file, root))
        if not inside and len(found) == before:
            raise LogError(
                f"log.path {one}{when}: no Parquet file (*.parquet) in this folder, {_what_is_in(one)}; name another"
            )
    return sorted(found.values(), key=lambda file: file.name)


def _find_objects(paths: Sequence[str], when: str) -> list[LogFile]:
    """The same on S3: an object of this very name is a file, else the name is a folder."""
    above = [one.removeprefix("s3://").rstrip("/").rpartition("/")[0] for one in paths]
    base = None if len(paths) == 1 else f"s3://{os.path.commonpath(above)}".rstrip("/")
    found: dict[str, LogFile] = {}
    for one in paths:
        entry = object_at(one)
        if entry is not None:
            inside, root = [entry], one.rpartition("/")[0]
        else:
            root = one.rstrip("/")
            there = list(open_storage(root).list())
            inside = [entry for entry in there if _is_log(entry.key)]
            if not inside:
                what = f"found {_some([entry.key for entry in there])}" if there else "nothing lies there"
                raise LogError(f"log.path {one}{when}: no Parquet file (*.parquet) in this folder, {what}; name another")
        for entry in inside:
            url = f"{root}/{entry.key}"
            named = url.removeprefix(f"{base or root}/")
            found[url] = LogFile(url, named, entry.size, None, _partitions(url.split("/")[3:-1]), entry.etag)
    return sorted(found.values(), key=lambda file: file.name)


def _is_log(key: str) -> bool:
    return key.endswith(".parquet") and all(part[:1] not in "._" for part in key.split("/"))


def _walk(folder: str) -> Iterator[str]:
    seen: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if name[0] not in "._"]
        yield from (os.path.join(parent, name) for name in files if name[0] not in "._" and name.endswith(".parquet"))


def _log_file(path: str, root: str) -> LogFile:
    stat = os.stat(path)
    partitions = _partitions(Path(os.path.abspath(path)).parts[:-1])
    return LogFile(path, Path(os.path.relpath(path, root)).as_posix(), stat.st_size, stat.st_mtime_ns, partitions)


def _partitions(folders: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    pairs = [folder.split("=", 1) for folder in folders if re.fullmatch(r"[^=]+=.*", folder)]
    return tuple((key, None if value == HIVE_NULL else unquote(value)) for key, value in pairs)


def _nearest_path(path: str) -> str:
    parent, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(parent):
        return f"; {parent} is not there either"
    near = difflib.get_close_matches(name, os.listdir(parent), 1)
    return f"; nearest: {os.path.join(parent, near[0])}" if near else ""


def _what_is_in(folder: str) -> str:
    names = sorted(os.listdir(folder))
    return f"found {_some(names)}" if names else "it is empty"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
