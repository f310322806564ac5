"""`store forget`: no row of a query stays, nor one with its words; none comes back by a job that works meanwhile.

Queries are marked first; then the files that hold them are written anew without them, at once: also files that others replace,
which otherwise stay for a while. Jobs put files and look for marks then, so that of two who meet here the later sees the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage
from jobs.chain.store.files import read_range
from jobs.chain.store.forgotten import forgotten_queries, mark_forgotten, remove_earlier_marks
from jobs.chain.store.kinds import TEXTS
from jobs.chain.store.layout import milliseconds
from jobs.runs.folder import find_runs, sample_logs
from jobs.store.compact import drop_forgotten
from jobs.store.contents import stored_spaces
from jobs.store.maintainer import Check, maintaining
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
    """What was forgotten, or would be."""

    query_id: str
    others: set[str] = field(default_factory=set)  # query_ids of others with rows that have its words
    rows: Counter[str] = field(default_factory=Counter)  # by kind
    files: int = 0  # that are written anew
    runs: list[str] | None = None
    """Folders of runs, and logs of stopped samples, which still hold one of these queries; None: not known."""

    @property
    def query_ids(self) -> set[str]:
        """Returns the query_ids that are forgotten."""
        return {self.query_id, *self.others}


def forget(
    storage: Storage, what: WhatToForget, output: Storage | None, *, dry_run: bool = False, now: Callable[[], float] = time.time
) -> Forgotten:
    """Forgets a query, or with `dry_run` tells what would go; `output` is where runs are that may hold it.

    Raises:
        ConfigError: The query has no word, or many other queries have its words.
        HeldError: Another process maintains the store.
    """
    words = QueryWords(what.query)
    if not words.normal:
        raise ConfigError("argument", "QUERY: has no word; give the query that shall be forgotten, in quotes")
    gone = Forgotten(query_id(what.query, what.context))
    with maintaining(storage, dry_run=dry_run) as check:
        look = partial(_others, storage, what, words, set[str](), check)
        gone.others = look() - {gone.query_id}
        marks = dict.fromkeys(gone.query_ids, milliseconds(now())) if dry_run else _marked(storage, what, gone, look, now)
        for one in stored_spaces(storage):
            files, rows = drop_forgotten(storage, one, marks, check, dry_run=dry_run)
            gone.files += files
            gone.rows[one.space.kind] += rows
        if not dry_run:
            remove_earlier_marks(storage)
    if output is not None:
        gone.runs = list(runs_with(output, gone.query_ids, words))
    return gone


def _marked(
    storage: Storage, what: WhatToForget, gone: Forgotten, look: Callable[[], set[str]], now: Callable[[], float]
) -> dict[str, int]:
    """Marks the queries as forgotten, with those of files that jobs put meanwhile; returns query_id -> when."""
    if what.others == "some" and len(gone.others) > MOST_OTHERS:
        raise ConfigError(
            "argument",
            f"QUERY: rows of {len(gone.others):,} other queries have these words, too; give --own to leave those, or "
            "--all to forget them all",
        )
    marked: set[str] = set()
    while marked != gone.query_ids:
        mark_forgotten(storage, gone.query_ids - marked, milliseconds(now()))
        marked = gone.query_ids
        gone.others |= look() - {gone.query_id}
    return {name: at for name, at in forgotten_queries(storage).items() if name in marked}


def _others(storage: Storage, what: WhatToForget, words: QueryWords, seen: set[str], check: Check) -> set[str]:
    """Returns the queries of which files that were not `seen` yet hold the words; adds the files to those."""
    query_ids: set[str] = set()
    for one in stored_spaces(storage) if what.others != "none" else ():
        texts = TEXTS.get(one.space.kind, ())
        for key in (f"{one.space.folder}/{name}" for name in one.files if texts):
            if key not in seen:
                check()
                seen.add(key)
                with suppress(FileNotFoundError):  # merged with others since, and removed
                    rows = read_range(storage, key, columns=["query_id", *texts])
                    held = words.held_by(rows, list(texts))
                    query_ids.update(rows.column("query_id").filter(pa.array(held)).to_pylist())
    return query_ids


def runs_with(output: Storage, query_ids: Collection[str], words: QueryWords) -> Iterable[str]:
    """Yields the folders of the runs below an output whose queries are among these, or have the words; also logs of samples."""
    wanted = pa.array(sorted(query_ids), pa.string())
    for folder, _ in find_runs(output):
        storage = open_storage(output.url(folder))
        keys = (
            entry.key for entry in storage.list("queries") if entry.key.endswith(".parquet")
        )  # with a plan or without
        if any(_has_queries(storage, key, wanted, words) for key in keys):
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
