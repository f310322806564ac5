"""`store gc`: spaces that no job has used for long go, and files whose rows are all too old to count.

A job notes that it uses its spaces today before it lists them, and a space is looked up once more before it goes. What a job
begins to use in just that moment it makes anew; nothing else can be lost.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

from cluster.storage import Storage, remote
from cluster.storage.files import left_behind
from jobs.chain.store.files import Space
from jobs.chain.store.layout import ABOUT, MADE, USED, day, milliseconds
from jobs.store.contents import StoredSpace, maintaining, stored_spaces

UNUSED, OLD = "unused", "too old"


class Collected(NamedTuple):
    """Removed part of a space: files, their rows and bytes."""

    space: Space
    why: str  # UNUSED or OLD
    used: str | None  # the last day on which a job has used the space; None: not known
    files: int
    rows: int
    size: int


def collect(storage: Storage, unused: float, *, oldest: int = 0, dry_run: bool = False) -> list[Collected]:
    """Removes spaces unused for `unused` seconds, and files whose rows are all older than `oldest`; returns these.

    Whole days of `unused` count: a job notes the day. `oldest` is in milliseconds since the epoch, 0: rows of any age count.
    Raises HeldError if another process maintains the store.
    """
    last_day, collected = day(time.time() - unused), list[Collected]()
    with maintaining(storage, dry_run=dry_run) as check:
        spaces = stored_spaces(storage)
        for stored in spaces:
            check()
            used = stored.used[-1] if stored.used else None
            why, names, rows = _due(storage, stored, used, last_day, oldest)
            if why and not dry_run and not _remove(storage, stored, why, names, last_day):
                continue
            if not dry_run and why != UNUSED:
                storage.delete(*(f"{USED}/{stored.space.name}/{name}" for name in stored.used[:-1]))
            if why:
                collected.append(
                    Collected(stored.space, why, used, len(names), rows, sum(stored.files[name] for name in names))
                )
        if not dry_run and not remote(storage.root):
            storage.delete(*left_behind(storage.root, [one.space.folder for one in spaces]))
    return collected


def _due(
    storage: Storage, stored: StoredSpace, used: str | None, last_day: str, oldest: int
) -> tuple[str | None, list[str], int]:
    """Returns the reason why files of a space go, if any do, their names, and the rows in them."""
    unused = used is not None and used < last_day
    if not unused and not oldest:
        return None, [], 0
    footers = {name: _footer(storage, f"{stored.space.folder}/{name}") for name in stored.files}
    names = [name for name, (_, newest) in footers.items() if unused or newest < oldest]
    return UNUSED if unused else OLD if names else None, names, sum(footers[name][0] for name in names)


def _remove(storage: Storage, stored: StoredSpace, why: str, names: Sequence[str], last_day: str) -> bool:
    """Removes files that are too old, or a space, of which goes last what says what it is; returns whether no job uses it."""
    folder, uses = stored.space.folder, f"{USED}/{stored.space.name}"
    if why == OLD:
        storage.delete(*(f"{folder}/{name}" for name in names))
        return True
    if max((entry.name for entry in storage.list(uses)), default="") >= last_day:  # a job began meanwhile
        return False
    about = f"{folder}/{ABOUT}"
    storage.delete(*(entry.key for entry in storage.list(folder) if entry.key != about))
    storage.delete(about)
    storage.delete(*(entry.key for entry in storage.list(uses)))
    return True


def _footer(storage: Storage, key: str) -> tuple[int, int]:
    """Returns the rows of a file, and when the newest was made, in milliseconds since the epoch."""
    try:
        with storage.open(key) as file:
            metadata = pq.ParquetFile(file).metadata
    except FileNotFoundError:  # merged with others since, and removed
        return 0, 0
    newest = 0
    column = metadata.schema.names.index(MADE) if MADE in metadata.schema.names else -1
    for number in range(metadata.num_row_groups if column >= 0 else 0):
        statistics = metadata.row_group(number).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            return metadata.num_rows, milliseconds(time.time())  # nobody knows how old they are: they stay
        newest = max(newest, milliseconds(statistics.max.timestamp()))
    return metadata.num_rows, newest
