"""Files of a store without the rows of queries that were forgotten: they are written anew, at once, and the old ones go.

Also files that others replace, which only stay for jobs that have listed them: such a job finds them gone, and lists again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from cluster.storage import Storage
from jobs.chain.store.files import Space, put_rows, read_range
from jobs.chain.store.forgotten import counting
from jobs.chain.store.layout import DIGITS, MADE, range_of
from jobs.chain.store.merges import Merge, put_merge
from jobs.store.contents import StoredSpace
from jobs.store.maintainer import Check


def drop_forgotten(
    storage: Storage, one: StoredSpace, forgotten: Mapping[str, int], check: Check = lambda: None
) -> tuple[int, int]:
    """Drops the rows of `forgotten_queries` that were made before; returns the files written anew, and the rows that went."""
    ids, merges = sorted(name[:DIGITS] for name in forgotten), list(one.merges)
    files = rows = 0
    for name in one.files:
        first, last = range_of(name)
        place = bisect_left(ids, first)
        if place == len(ids) or ids[place] > last:
            continue
        check()
        dropped = _drop_of_file(storage, one.space, name, merges, forgotten)
        files, rows = files + bool(dropped), rows + dropped
    return files, rows


def _drop_of_file(storage: Storage, space: Space, name: str, merges: list[Merge], forgotten: Mapping[str, int]) -> int:
    """Returns how many rows of a file went; the notes that name it name the new one."""
    key = f"{space.folder}/{name}"
    try:
        known = read_range(storage, key, columns=["query_id", MADE])
        dropped: int = known.num_rows - counting(known, forgotten).num_rows
        if not dropped:
            return 0
        kept = counting(read_range(storage, key), forgotten)
    except FileNotFoundError:  # it was merged with others, and is removed
        return 0
    new = put_rows(storage, space, kept, name)
    for place, merge in enumerate(merges):
        if name in merge.by or name in merge.files:  # else what it replaces, or what is left of it, would be read again
            by, files = ([new if other == name else other for other in of] for of in (merge.by, merge.files))
            merges[place] = Merge(merge.key, merge.at, frozenset(filter(None, files)), tuple(filter(None, by)))
            put_merge(storage, merges[place])
    storage.delete(key)
    return dropped
