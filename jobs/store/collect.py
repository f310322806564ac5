"""`store gc`: spaces that no job has used for long go, and files whose rows are all too old to count.

A job notes that it uses its spaces today before it lists them, and a space is looked up once more before it goes. What a job
begins to use in just that moment it makes anew; nothing else can be lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

from cluster.storage import Storage, remote
from cluster.storage.files import left_behind
from jobs.chain.store.files import Space
from jobs.chain.store.layout import ABOUT, MADE, USED, day, milliseconds
from jobs.store.compact import GRACE_SECONDS, remove_replaced
from jobs.store.contents import StoredSpace, abouts, stored_spaces
from jobs.store.maintainer import maintaining

UNUSED, OLD = "unused", "too old"


class Collected(NamedTuple):
    """What goes of a space.

    Attributes:
        space: Its kind and name.
        why: `UNUSED` or `OLD`.
        used: The last day on which a job has used the space; None: not known.
        files: Their number.
        rows: In them.
        size: Their bytes.
    """

    space: Space
    why: str
    used: str | None
    files: int
    rows: int
    size: int


class _Footer(NamedTuple):
    rows: int
    newest: int
    """When the newest was made, in milliseconds since the epoch."""


def collect(
    storage: Storage,
    unused: float,
    *,
    oldest: int = 0,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> list[Collected]:
    """Removes spaces that no job has used for so many seconds, and files with rows of before `oldest` alone; returns what goes.

    Args:
        storage: Of the store.
        unused: Seconds, of which whole days count: a job notes the day.
        oldest: In milliseconds since the epoch; 0: rows of any age count.
        dry_run: Only say what would go.
        now: Returns seconds since the epoch.

    Raises:
        HeldError: Another process maintains the store.
    """
    last_day = day(now() - unused)
    if dry_run:
        spaces = stored_spaces(storage)
        days = _last_used(storage, spaces)
        return [one for space in spaces for one in _due(storage, space, days[space.space], last_day, oldest)[0]]
    found = []
    with maintaining(storage) as check:
        spaces = stored_spaces(storage)
        days = _last_used(storage, spaces)
        for space in spaces:
            check()
            due, keys = _due(storage, space, days[space.space], last_day, oldest)
            if any(one.why == UNUSED for one in due):
                used = [entry.name for entry in storage.list(f"{USED}/{space.space.name}")]
                if max(used, default="") >= last_day:  # a job began meanwhile
                    continue
                _remove_space(storage, space.space)
            else:
                storage.delete(*keys)
                remove_replaced(storage, space, milliseconds(now() - GRACE_SECONDS))
                storage.delete(*(f"{USED}/{space.space.name}/{one}" for one in space.used[:-1]))
            found += due
        if not remote(storage.root):
            storage.delete(*left_behind(storage.root, [space.space.folder for space in spaces]))
    return found


def _last_used(storage: Storage, spaces: Sequence[StoredSpace]) -> dict[Space, str | None]:
    """Returns the last day on which each space was used: by its notes, else the day on which it was begun."""
    unknown = abouts(storage, [one.space for one in spaces if not one.used])
    return {one.space: one.last_used(unknown.get(one.space, {})) for one in spaces}


def _due(storage: Storage, one: StoredSpace, used: str | None, last_day: str, oldest: int) -> tuple[list[Collected], list[str]]:
    """Returns what goes of a space, and the keys of its files that are too old."""
    unused = used is not None and used < last_day
    if not unused and not oldest:
        return [], []
    footers = {name: _footer(storage, f"{one.space.folder}/{name}") for name in one.files}
    names = list(footers) if unused else [name for name, footer in footers.items() if footer.newest < oldest]
    if not names and not unused:
        return [], []
    rows, size = sum(footers[name].rows for name in names), sum(one.files[name] for name in names)
    told = Collected(one.space, UNUSED if unused else OLD, used, len(names), rows, size)
    return [told], [f"{one.space.folder}/{name}" for name in names]


def _footer(storage: Storage, key: str) -> _Footer:
    try:
        with storage.open(key) as file:
            metadata = pq.ParquetFile(file).metadata
    except FileNotFoundError:  # merged with others since, and removed
        return _Footer(0, 0)
    newest = 0
    place = metadata.schema.names.index(MADE) if MADE in metadata.schema.names else -1
    for number in range(metadata.num_row_groups if place >= 0 else 0):
        statistics = metadata.row_group(number).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            return _Footer(metadata.num_rows, milliseconds(time.time()))  # nobody knows how old they are: they stay
        newest = max(newest, milliseconds(statistics.max.timestamp()))
    return _Footer(metadata.num_rows, newest)


def _remove_space(storage: Storage, space: Space) -> None:
    """Removes a space; what says what it is and when it was used goes last."""
    keys = [entry.key for entry in storage.list(space.folder)]
    about = f"{space.folder}/{ABOUT}"
    storage.delete(*(key for key in keys if key != about))
    storage.delete(about)
    storage.delete(*(entry.key for entry in storage.list(f"{USED}/{space.name}")))
