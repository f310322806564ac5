"""The queries of a data set as a log: its files with their versions, and its rows."""

import pyarrow as pa

from cluster.errors import LogError
from cluster.storage import FoundFile, files_at
from jobs.log.sets import irds
from jobs.log.sets.beir import judged_queries, split_of
from jobs.log.sets.names import SetName
from jobs.log.sets.topics import topics

_WHERE = "log.path"


def query_files(name: SetName) -> list[FoundFile]:
    """Returns the files that decide which queries a set has, that of the queries first."""
    if name.kind == "irds":
        rows = irds.queries(name.rest, _WHERE)
        return [FoundFile(str(name), "", rows.nbytes, irds.content_hash(rows))]
    listed = []
    for path in split_of(name.rest, _WHERE) if name.kind == "beir" else (name.rest,):
        files = [file for file in files_at(path) if file.path == path]
        if not files:
            raise LogError("log-files", f"{_WHERE}: {path}: no such file; correct it")
        listed += files
    return listed


def set_queries(name: SetName) -> tuple[pa.Table, int]:
    """Returns the queries of a set as columns of text, and the number of those of other splits in the same file."""
    if name.kind == "irds":
        return irds.queries(name.rest, _WHERE), 0
    if name.kind == "topics":
        return topics(name.rest), 0
    return judged_queries(*split_of(name.rest, _WHERE))
