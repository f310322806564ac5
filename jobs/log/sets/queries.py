"""The queries of a data set as a log: its files with their versions, and its rows."""

from __future__ import annotations

import os
from typing import NamedTuple

from cluster.errors import LogError
from cluster.storage import object_at, remote
from jobs.log.sets import irds
from jobs.log.sets.beir import judged_queries, split_of
from jobs.log.sets.names import SetName
from jobs.log.sets.rows import SetQueries
from jobs.log.sets.topics import topics

_WHERE = "log.path"


class SetFile(NamedTuple):
    """What queries are read from: a file with its size and what changes when it is replaced.

    Attributes:
        path: Of the file; of a set of ir_datasets its name.
        size: Bytes.
        mtime_ns: Of a local file.
        etag: Of an object on S3; of a set of ir_datasets the hash of its queries.
    """

    path: str
    size: int
    mtime_ns: int | None
    etag: str | None


def query_files(name: SetName) -> list[SetFile]:
    """Returns the files that decide which queries a set has, that of the queries first.

    Raises:
        ConfigError, LogError: There is no such set, or it cannot be fetched.
        ClusterError, OSError: Errors of S3.
    """
    if name.kind == "irds":
        rows = irds.queries(name.rest, _WHERE)
        return [SetFile(str(name), rows.nbytes, None, irds.content_hash(rows))]
    return [_file(path) for path in (split_of(name.rest, _WHERE) if name.kind == "beir" else (name.rest,))]


def _file(path: str) -> SetFile:
    if remote(path):
        entry = object_at(path)
        if entry is None:
            raise LogError("log-missing", f"{_WHERE}: {path}: no such object; correct it")
        return SetFile(path, entry.size, None, entry.etag)
    if not os.path.isfile(path):
        raise LogError("log-missing", f"{_WHERE}: {path}: no such file; correct it")
    stat = os.stat(path)
    return SetFile(path, stat.st_size, stat.st_mtime_ns, None)


def set_queries(name: SetName) -> SetQueries:
    """Returns the queries of a set; errors are those of `query_files`, and LogError if a file is damaged."""
    if name.kind == "irds":
        return SetQueries(irds.queries(name.rest, _WHERE), 0)
    if name.kind == "topics":
        return SetQueries(topics(name.rest), 0)
    return judged_queries(split_of(name.rest, _WHERE))
