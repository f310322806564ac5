"""Compaction of the store: many files that hold one range of query_ids become one, without rows that do not count.

Each night puts a file per shard, so that a shard of a later night reads one file of every night before. Merged files are put
first, then a note that names them and what they replace; what is replaced stays for `GRACE_SECONDS`, for jobs that have listed
it, and goes when the store is maintained next. A crash leaves rows that stand twice, or nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cluster.errors import HeldError
from cluster.storage import Storage
from cluster.storage.prefetch import prefetch
from jobs.chain.store.files import CONCURRENT_READS, Space, put_rows, read_range, within
from jobs.chain.store.layout import MADE, Merge, merge_name, milliseconds, put_merge, replaced
from jobs.chain.store.tombstones import counting, forgotten_queries
from jobs.store.contents import Check, StoredSpace, maintaining, stored_spaces

GRACE_SECONDS = 48 * 3600.0  # longer than a night: a job reads the files that it listed when it started
MERGED_BYTES = 4 << 20  # of a merged file; while it is made its rows take some fifty times as much, mostly prompts
MOST_TOGETHER = 32  # files of one range; where there are more, a run compacts the store when it is finished
_IDS = 32  # hex digits of a query_id
KEYS: Mapping[str, Sequence[str]] = {
    # a completion is taken for an equal prompt only: the form in which a query is shown moves between nights
    "completions": ("query_id", "request", "prompt_hash", "sample", "variables", "prompt"),
    "lists": ("query_id", "search"),
    "vectors": ("query_id", "search"),
    "scores": ("query_id", "text", "document"),
    "web": ("query_id", "search"),
}
"""Kind of rows -> the columns of the key of each within its space."""


class Compacted(NamedTuple):
    """Result of compacting a space: files and bytes before and now, and rows now.

    `dropped` are rows between the first and the newest of their key, and those that were too old or forgotten.
    """

    space: Space
    files: tuple[int, int]
    size: tuple[int, int]
    rows: int
    dropped: int


def compact(
    storage: Storage,
    *,
    oldest: int = 0,
    most_together: int = 1,
    grace: float = GRACE_SECONDS,
    now: Callable[[], float] = time.time,
) -> list[Compacted]:
    """Compacts the spaces of a store; returns what became of those that were not compact.

    Rows made before `oldest` (milliseconds since the epoch) go; spaces with at most `most_together` files of one range stay as
    they are; files that others replace stay for `grace` seconds.

    Raises HeldError if another process maintains the store, and ClusterError if a file is damaged.
    """
    done = []
    with maintaining(storage) as check:
        for stored in stored_spaces(storage):
            remove_replaced(storage, stored, milliseconds(now() - grace))
            if stored.most_together > most_together:
                done.append(compact_space(storage, stored, oldest, milliseconds(now()), check))
        forgotten = forgotten_queries(storage)
        for stored in stored_spaces(storage) if forgotten or not grace else ():
            drop_forgotten(storage, stored, forgotten, check)  # of a job that was killed before it had looked for marks
            if not grace:
                remove_replaced(storage, stored, milliseconds(now()))
    return done


def compact_crowded(storage: Storage) -> list[Compacted]:
    """Compacts the spaces that need it after a run: those with more than `MOST_TOGETHER` files of one range.

    No row goes by its age: jobs of other configs, to which rows count for longer, have the same store. Files that others have
    replaced for long enough are removed. Where another process maintains the store nothing is done.
    """
    due, spaces = milliseconds(time.time() - GRACE_SECONDS), stored_spaces(storage)
    needed = any(one.most_together > MOST_TOGETHER or any(merge.at <= due for merge in one.merges) for one in spaces)
    with suppress(HeldError):
        return compact(storage, most_together=MOST_TOGETHER) if needed else []
    return []


def compact_space(storage: Storage, stored: StoredSpace, oldest: int, at: int, check: Check = lambda: None) -> Compacted:
    """Merges the files of a space; `at` is now, in milliseconds since the epoch."""
    names = sorted(stored.read)
    before = sum(stored.files[name] for name in names)
    merged: list[str] = []
    rows = dropped = 0
    for first, last in _parts(before):
        check()
        keys = [f"{stored.space.folder}/{name}" for name in within(names, first, last)]
        read = partial(read_range, storage, first=first, last=last)
        tables = list(prefetch(read, keys, CONCURRENT_READS))
        if tables:
            table = pa.concat_tables(tables, promote_options="default")
            kept = ends_of_keys(stored.space.kind, counting(table, forgotten_queries(storage), oldest))  # marked until now
            name = put_rows(storage, stored.space, kept)
            rows, dropped = rows + kept.num_rows, dropped + table.num_rows - kept.num_rows
            merged += [] if name is None else [name]
    check()
    put_merge(storage, Merge(f"{stored.space.folder}/{merge_name()}", at, frozenset(names), tuple(merged)))
    sizes = {entry.name: entry.size for entry in storage.list(stored.space.folder)}
    after = sum(sizes.get(name, 0) for name in merged)
    return Compacted(stored.space, (len(names), len(merged)), (before, after), rows, dropped)


def remove_replaced(storage: Storage, stored: StoredSpace, before: int) -> None:
    """Removes the files of a space that others have replaced before a time, in milliseconds.

    Of a note whose own files are gone only the note goes: what it names is read again.
    """
    for merge in stored.merges:
        if merge.at <= before:
            storage.delete(*(f"{stored.space.folder}/{name}" for name in sorted(replaced(stored.files, [merge]))))
            storage.delete(merge.key)  # last: until then nobody reads what is left of them


def ends_of_keys(kind: str, rows: pa.Table) -> pa.Table:
    """Returns the rows sorted by query_id, of each key that which counts, and that made last: of equal ones the first.

    That made last counts for jobs to which the other is too old, now or later. Rows of a kind that this version does not know
    all stay.
    """
    order = [("query_id", "ascending"), (MADE, "ascending")]
    rows = rows.sort_by(order)  # a stable sort
    if kind not in KEYS:
        return rows
    keyed = rows.select([*KEYS[kind], MADE]).append_column("place", pa.array(np.arange(rows.num_rows)))
    newest = keyed.sort_by([(MADE, "descending"), ("place", "ascending")])
    groups = [table.group_by(KEYS[kind], use_threads=False).aggregate([("place", "first")]) for table in (keyed, newest)]
    return rows.take(pa.array(np.union1d(*(group["place_first"] for group in groups))))


def _parts(size: int) -> Iterator[tuple[str, str]]:
    """Yields the first and the last query_id of each range that is merged into one file: query_ids are spread evenly."""
    count, whole = max(1, round(size / MERGED_BYTES)), 16**12
    borders = [whole * number // count for number in range(count + 1)]
    for first, following in pairwise(borders):
        yield f"{first:012x}".ljust(_IDS, "0"), f"{following - 1:012x}".ljust(_IDS, "f")


def drop_forgotten(
    storage: Storage, stored: StoredSpace, forgotten: Mapping[str, int], check: Check = lambda: None, *, dry_run: bool = False
) -> tuple[int, int]:
    """Drops the rows of `forgotten_queries` that were made before; returns the files written anew, and the rows that went.

    Files that others replace are written anew, too; a job that has listed them finds them gone, and lists again.
    """
    merges, files, rows = list(stored.merges), 0, 0
    for name in stored.holding(forgotten):
        check()
        dropped = _drop_of_file(storage, stored.space, name, merges, forgotten, dry_run)
        files, rows = files + bool(dropped), rows + dropped
    return files, rows


def _drop_of_file(
    storage: Storage, space: Space, name: str, merges: list[Merge], forgotten: Mapping[str, int], dry_run: bool
) -> int:
    """Returns the number of rows that went from a file; the notes that name it name the new one."""
    key = f"{space.folder}/{name}"
    try:
        known = read_range(storage, key, columns=["query_id", MADE])
        dropped: int = known.num_rows - counting(known, forgotten).num_rows
        if not dropped or dry_run:
            return dropped
        kept = counting(read_range(storage, key), forgotten)
    except FileNotFoundError:  # it was merged with others, and is removed
        return 0
    new = put_rows(storage, space, kept, name)
    for number, merge in enumerate(merges):
        if name in merge.by or name in merge.files:  # else what it replaces, or what is left of it, would be read again
            by, files = ([new if other == name else other for other in of] for of in (merge.by, merge.files))
            merges[number] = Merge(merge.key, merge.at, frozenset(filter(None, files)), tuple(filter(None, by)))
            put_merge(storage, merges[number])
    storage.delete(key)
    return dropped
