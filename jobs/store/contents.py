"""The content of a store, by one listing of it, and its maintainer, the one process at a time that changes what lies in it.

That is by a lease, as one driver at a time works on a run. Jobs need none, to read or to put. Two maintainers at once, of which
one was taken for dead, harm nothing: rows stand twice then. The lease saves them the work.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cluster.errors import ClusterError, ConfigError, HeldError
from cluster.run.lease import Lease, holder
from cluster.storage import Entry, Storage, open_storage
from jobs.chain.store.files import Space
from jobs.chain.store.layout import APART, DIGITS, MAINTAINER, USED, VERSION, Merge, is_rows, range_of, read_merges, replaced


@dataclass(frozen=True)
class StoredSpace:
    """One space: name -> bytes of each file of rows (also of replaced ones), notes of merges, oldest first, and days of use."""

    space: Space
    files: Mapping[str, int]
    merges: Sequence[Merge]
    used: Sequence[str]

    @property
    def read(self) -> list[str]:
        """Returns the files that a job reads."""
        gone = replaced(self.files, self.merges)
        return [name for name in self.files if name not in gone]

    def holding(self, query_ids: Iterable[str]) -> list[str]:
        """Returns the files, replaced ones too, whose range of query_ids has one of these."""
        starts = [query_id[:DIGITS] for query_id in query_ids]
        ranges = {name: range_of(name) for name in self.files}
        return [name for name, (first, last) in ranges.items() if any(first <= start <= last for start in starts)]

    @property
    def most_together(self) -> int:
        """Returns in how many files that are read one query_id may lie at most."""
        borders = sorted(border for first, last in map(range_of, self.read) for border in ((first, 0), (last, 1)))
        together = most = 0
        for _, is_end in borders:  # of equal ids the beginnings come first: a range has both of its ends
            together += -1 if is_end else 1
            most = max(most, together)
        return most


def stored_spaces(storage: Storage) -> list[StoredSpace]:
    """Returns the spaces of a store that have files or notes, sorted by kind and name."""
    entries: dict[Space, list[Entry]] = {}
    used: dict[str, list[str]] = {}
    for entry in storage.list(VERSION):
        parts = entry.key.split("/")
        if len(parts) == 4 and parts[1] not in APART:
            entries.setdefault(Space(parts[1], parts[2]), []).append(entry)
        elif len(parts) == 4 and entry.key.startswith(f"{USED}/"):
            used.setdefault(parts[2], []).append(parts[3])
    spaces = []
    for space, listed in sorted(entries.items()):
        files = {entry.name: entry.size for entry in listed if is_rows(entry.name)}
        merges = read_merges(storage, [entry.key for entry in listed])
        spaces.append(StoredSpace(space, files, merges, sorted(used.get(space.name, []))))
    return spaces


def check_store(storage: Storage, given: str) -> None:
    """Raises ConfigError if no store lies there."""
    if VERSION not in storage.folders():
        problem = f"there is no store (no folder {VERSION}); give a config, or the folder that its `store` names"
        raise ConfigError("argument", f"{given}: {problem}")


Check = Callable[[], None]
"""Raises where the process maintains the store no longer."""


@contextmanager
def maintaining(store: Storage, *, dry_run: bool = False) -> Iterator[Check]:
    """Holds the lease of a store's maintainer, or raises HeldError; yields a check for between two steps of the work."""
    if dry_run:
        yield lambda: None
        return
    storage = open_storage(store.url(MAINTAINER))
    try:
        lease = Lease.acquire(storage)
    except HeldError as error:
        last = holder(storage, time.time())
        who = "" if last is None else f" ({last.pid} on {last.host})"
        raise HeldError("run-held", f"{store.root}: another process{who} maintains this store; wait for it") from error

    def check() -> None:
        if lease.lost():
            problem = "another process may have taken over the maintenance of this store; run the same command again"
            raise ClusterError("run-held", f"{store.root}: {problem}")

    try:
        earlier = (entry.key for entry in storage.list("lease") if entry.key < f"lease/{lease.number:06d}.json")
        storage.delete(*earlier)  # else there would be one more each night
        yield check
    finally:
        lease.release()
