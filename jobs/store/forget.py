"""`store forget`: no row of a query stays, nor one with its words; none comes back by a job that works meanwhile.

Queries are marked first; then the files that hold them are written anew without them, at once: also files that others replace,
which otherwise stay for a while. Jobs put files and look for marks then, so that of two who meet here the later sees the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage
from jobs.chain.store.files import read_range
from jobs.chain.store.forgotten import forgotten_queries, mark_forgotten, remove_earlier_marks
from jobs.chain.store.kinds import TEXTS
from jobs.chain.store.layout import DIGITS, milliseconds, range_of
from jobs.runs.folder import find_runs, query_files
from jobs.runs.samples import sample_logs
from jobs.store.contents import StoredSpace, stored_spaces
from jobs.store.maintainer import Check, maintaining
from jobs.store.rewriting import drop_forgotten
from jobs.store.words import QueryWords
from rewriters.normalise import query_id

MOST_OTHERS = 100  # other queries that may go with one, unless it is said that all may


class WhatToForget(NamedTuple):
    """A query, in any form, after earlier turns (`context`), and how much goes with it.

    `others`: "some": other queries whose rows have its words go with it if they are few; "all": whatever they are; "none".
    """

    query: str
    context: str | None = None
    others: str = "some"


@dataclass
class Forgotten:
    """What was forgotten, or would be.

    Attributes:
        query_id: Of the query itself.
        others: The query_ids of others with rows that have its words.
        rows: Rows that go, by kind.
        files: Files that are written anew.
        runs: Folders of runs, and logs of stopped samples, which still hold one of these queries; None: not known.
    """

    query_id: str
    others: set[str] = field(default_factory=set)
    rows: Counter[str] = field(default_factory=Counter)
    files: int = 0
    runs: list[str] | None = None

    @property
    def query_ids(self) -> set[str]:
        """Returns the query_ids that are forgotten."""
        return {self.query_id, *self.others}


def forget(
    storage: Storage,
    what: WhatToForget,
    output: Storage | None,
    *,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> Forgotten:
    """Forgets a query, or with `dry_run` tells what would go; `output` is where runs are that may hold it.

    Raises:
        ConfigError: The query has no word, or many other queries have its words.
        HeldError: Another process maintains the store.
    """
    words = QueryWords(what.query)
    if not words.normal:
        raise ConfigError("argument", "QUERY: has no word; give the query that shall be forgotten, in quotes")
    if dry_run:
        found = _found(storage, what, words, set())
        found.rows, found.files = _counted(storage, found.query_ids)
    else:
        with maintaining(storage) as check:
            found = _forgotten(storage, what, words, now, check)
    if output is not None:
        found.runs = list(runs_with(output, found.query_ids, words))
    return found


def _forgotten(storage: Storage, what: WhatToForget, words: QueryWords, now: Callable[[], float], check: Check) -> Forgotten:
    seen: set[str] = set()
    found = _found(storage, what, words, seen, check)
    if what.others == "some" and len(found.others) > MOST_OTHERS:
        raise ConfigError(
            "argument",
            f"QUERY: rows of {len(found.others):,} other queries have these words, too; give --own to leave those, or "
            "--all to forget them all",
        )
    marked: set[str] = set()
    while marked != found.query_ids:  # what jobs have put since the files were looked through is looked through, too
        mark_forgotten(storage, found.query_ids - marked, milliseconds(now()))
        marked = found.query_ids
        found.others |= _found(storage, what, words, seen, check).others
    forgotten = {name: at for name, at in forgotten_queries(storage).items() if name in marked}
    for one in stored_spaces(storage):
        files, rows = drop_forgotten(storage, one, forgotten, check)
        found.files += files
        found.rows[one.space.kind] += rows
    remove_earlier_marks(storage)
    return found


def _found(
    storage: Storage,
    what: WhatToForget,
    words: QueryWords,
    seen: set[str],
    check: Check = lambda: None,
) -> Forgotten:
    """Returns the queries of which files that were not `seen` yet hold the words; adds the files to those."""
    found = Forgotten(query_id(what.query, what.context))
    for one in stored_spaces(storage) if what.others != "none" else ():
        texts = TEXTS.get(one.space.kind, ())
        for name in one.files if texts else ():
            key = f"{one.space.folder}/{name}"
            if key in seen:
                continue
            check()
            seen.add(key)
            found.others |= _with_words(storage, key, words, texts)
    found.others -= {found.query_id}
    return found


def _with_words(storage: Storage, key: str, words: QueryWords, texts: Collection[str]) -> set[str]:
    try:
        rows = read_range(storage, key, columns=["query_id", *texts])
    except FileNotFoundError:  # merged with others since, and removed
        return set()
    return set(rows.column("query_id").filter(pa.array(words.held_by(rows, list(texts)))).to_pylist())


def _counted(storage: Storage, query_ids: Collection[str]) -> tuple[Counter[str], int]:
    """Returns how many rows queries have, by kind, and in how many files."""
    rows: Counter[str] = Counter()
    files = 0
    for one in stored_spaces(storage):
        for name in _with_range(one, query_ids):
            ids = read_range(storage, f"{one.space.folder}/{name}", columns=["query_id"]).column("query_id")
            count = pc.sum(pc.is_in(ids, pa.array(sorted(query_ids), pa.string()))).as_py() or 0
            rows[one.space.kind] += count
            files += bool(count)
    return rows, files


def _with_range(one: StoredSpace, query_ids: Iterable[str]) -> list[str]:
    starts = [query_id[:DIGITS] for query_id in query_ids]
    return [name for name in one.files if any(range_of(name)[0] <= start <= range_of(name)[1] for start in starts)]


def runs_with(output: Storage, query_ids: Collection[str], words: QueryWords) -> Iterable[str]:
    """Yields the folders of the runs below an output whose queries are among these, or have the words; also logs of samples."""
    wanted = pa.array(sorted(query_ids), pa.string())
    for folder, _ in find_runs(output):
        storage = open_storage(output.url(folder))
        if any(_has_queries(storage, key, wanted, words) for key in query_files(storage)):
            yield storage.root
    for key in sample_logs(output):
        with output.open(key) as file:
            rows = pq.read_table(file)
        if words.held_by(rows, rows.column_names).any():
            yield output.url(key)


def _has_queries(storage: Storage, key: str, wanted: pa.Array, words: QueryWords) -> bool:
    with storage.open(key) as file:
        queries = pq.ParquetFile(file)
        names = [name for name in ("query_id", "normalised", "context") if name in queries.schema_arrow.names]
        for batch in queries.iter_batches(columns=names):
            rows = pa.Table.from_batches([batch])
            if pc.any(pc.is_in(rows.column("query_id"), wanted)).as_py() or words.held_by(rows, names[1:]).any():
                return True
    return False
