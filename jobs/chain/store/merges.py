"""The files of a space that are read: those that no file has replaced.

Who merges files puts the merged ones first, then a note that names both. The files that were merged stay for a while, for jobs
that have listed them. A note counts while the files that it names in their place are there; without it rows stand twice,
which harms nobody.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import NamedTuple

from cluster.storage import Storage
from cluster.storage.prefetch import prefetch
from jobs.chain.store.layout import MERGED

_CONCURRENT = 8


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
