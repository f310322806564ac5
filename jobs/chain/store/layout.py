"""The layout of the store.

    v1/<kind>/<space>/<first>-<last>-<uuid>.parquet  rows of a shard, sorted by query_id; the first 12 hex digits of both ends
    v1/<kind>/<space>/about.json                     what made the rows: a model, an index, a reranker
    v1/<kind>/<space>/merged-<uuid>.json             files that others replace, since when: they are read no more, and go later
    v1/used/<space>/<yyyy-mm-dd>                     empty; put by every job that uses the space
    v1/forgotten/<query_id>/<milliseconds>           empty; the query was forgotten then: earlier rows do not count
    v1/maintainer/lease/                             the lease of the one process that compacts, forgets and collects

A file of rows is never changed, and no name is given twice. Who merges files puts the merged ones first, then a note that names
both. The files that were merged stay for a while, for jobs that have listed them. A note counts while the files that it names
in their place are there; without it rows stand twice, which harms nobody.
"""

import json
import time
import uuid
from collections.abc import Collection, Iterable
from typing import NamedTuple

from cluster.storage import Storage
from cluster.storage.prefetch import prefetch

VERSION = "v1"  # in the path: an older program does not see a newer layout
USED, FORGOTTEN, MAINTAINER = f"{VERSION}/used", f"{VERSION}/forgotten", f"{VERSION}/maintainer"
APART = {"used", "forgotten", "maintainer"}  # folders beside those of the kinds
ABOUT = "about.json"
MERGED = "merged-"  # begins the name of a note of what was merged
ENDING = ".parquet"
DIGITS = 12  # hex digits of a query_id in a file's name
MADE = "made_at"
_UNIQUE = 12  # hex digits that tell files of one range apart
_CONCURRENT = 8


def file_name(first: str, last: str) -> str:
    """Returns a new name for a file of rows; `first` and `last` are the query_ids of its ends."""
    return f"{first[:DIGITS]}-{last[:DIGITS]}-{uuid.uuid4().hex[:_UNIQUE]}{ENDING}"


def name_after(name: str) -> str:
    """Returns a new name for what is left of a file of rows; it has the same range.

    It comes after the old name in a listing. So who lists page by page while one takes the place of the other finds either.
    """
    number = int(name.removesuffix(ENDING)[-_UNIQUE:], 16) + 1 + int(uuid.uuid4().hex[:5], 16)
    return f"{name[: -_UNIQUE - len(ENDING)]}{number:0{_UNIQUE}x}{ENDING}"


def merge_name() -> str:
    """Returns a new name for a note of what was merged."""
    return f"{MERGED}{uuid.uuid4().hex[:12]}.json"


def range_of(name: str) -> tuple[str, str]:
    """Returns the first digits of the query_ids of both ends of a file."""
    return name[:DIGITS], name[DIGITS + 1 : 2 * DIGITS + 1]


def is_rows(name: str) -> bool:
    """Returns True if a name is that of a file of rows, and not of a temporary one."""
    return name.endswith(ENDING) and not name.startswith(".")


def day(seconds: float) -> str:
    """Returns the date, UTC, of seconds since the epoch."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def milliseconds(seconds: float) -> int:
    """Returns seconds since the epoch in milliseconds, as rows and marks are dated."""
    return round(1000 * seconds)


class Merge(NamedTuple):
    """Files that others replace.

    Attributes:
        key: Of its note.
        at: Since when, in milliseconds since the epoch.
        files: Names of the files that are replaced.
        by: Those in their place; empty where none of their rows counted any more.
    """

    key: str
    at: int
    files: frozenset[str]
    by: tuple[str, ...]


def put_merge(storage: Storage, merge: Merge) -> None:
    """Notes a merge; it is durable when it returns."""
    body = {"at": merge.at, "files": sorted(merge.files), "by": list(merge.by)}
    storage.put(merge.key, json.dumps(body).encode())


def read_merges(storage: Storage, keys: Iterable[str]) -> list[Merge]:
    """Returns the notes among the objects of a space, oldest first; one that was removed meanwhile is none."""
    named = [key for key in keys if key.rpartition("/")[2].startswith(MERGED)]
    merges = []
    for key, data in zip(named, prefetch(storage.get, named, _CONCURRENT), strict=True):
        if data is not None:
            body = json.loads(data)
            merges.append(Merge(key, body["at"], frozenset(body["files"]), tuple(body["by"])))
    return sorted(merges, key=lambda one: (one.at, one.key))


def replaced(names: Collection[str], merges: Iterable[Merge]) -> set[str]:
    """Returns the files of a space that others replace which are there."""
    there = set(names)
    return {name for merge in merges if there.issuperset(merge.by) for name in merge.files & there}
