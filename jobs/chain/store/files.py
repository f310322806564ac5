"""The files of the store, which nights, ablations and trials share; where they lie: layout.py.

Rows are facts: where two have one key, either is good. So files are never changed, a put is atomic, and neither a lock nor a
manifest is needed (the blocks of Thanos are kept so). A job lists its spaces once, when it starts its workers: what other jobs
put later it makes itself.
"""

import io
import json
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ClusterError, UnavailableError
from cluster.run.shards import parquet_options
from cluster.storage import Storage, open_storage
from cluster.storage.prefetch import prefetch
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.store.layout import (
    ABOUT,
    DIGITS,
    MADE,
    USED,
    VERSION,
    day,
    file_name,
    is_rows,
    milliseconds,
    name_after,
    range_of,
    read_merges,
    replaced,
)
from jobs.chain.store.tombstones import counting, forgotten_queries
from jobs.config.config import Config

CONCURRENT_READS = 8
LISTINGS = 8  # of a space, while its files go: each of them shows what is in their place
ROW_GROUP = 4096  # rows: who wants few queries of a large file reads few of its groups
MADE_AT = pa.field(MADE, pa.timestamp("ms", "UTC"))  # when the job that made the row began: the oldest of one key counts
_WHOLE_TEXTS = ("scores", "web")  # kinds whose column `text` is a text as it was scored or sent


class Space(NamedTuple):
    """Rows of one kind that one model or index made.

    Attributes:
        kind: completions, vectors, lists, scores or web.
        name: A hash of what decides a row beside its key.
    """

    kind: str
    name: str

    @property
    def folder(self) -> str:
        """Returns the folder of its files in the store."""
        return f"{VERSION}/{self.kind}/{self.name}"


@dataclass(frozen=True)
class StoreFiles:
    """The files of the spaces that a job keeps there, as they were when it started; workers get it with their settings.

    Attributes:
        root: Of the store.
        names: The files that each space has; a space whose files have gone is listed again.
        began: When the job began, in milliseconds since the epoch: the date of the rows that it puts.
        forgotten: The queries that were forgotten before it started, as `forgotten_queries` returns them.
        oldest: Earlier rows do not count, in milliseconds since the epoch.
        read_only: Whether nothing is put: a plan only looks.
    """

    root: str
    names: MutableMapping[Space, Sequence[str]]
    began: int = 0
    forgotten: Mapping[str, int] = field(default_factory=dict)
    oldest: int = 0
    read_only: bool = False

    def rows(self, space: Space, schema: pa.Schema, query_ids: Sequence[str]) -> pa.Table:
        """Returns the stored rows of these queries, newest first: who keeps the last of one key has that made first.

        Where a file is gone, the space is listed once more: it was merged with others, or a query of it forgotten.

        Raises:
            ClusterError: A file is damaged.
        """
        storage, stored = open_storage(self.root), schema.append(MADE_AT)
        wanted = pa.array(sorted(set(query_ids)), pa.string())
        ends = min(query_ids), max(query_ids)

        def read(name: str) -> pa.Table:
            rows = read_range(storage, f"{space.folder}/{name}", *ends, schema=stored)
            return rows.filter(pc.is_in(rows.column("query_id"), wanted))

        tables: list[pa.Table] = []
        for listing in range(LISTINGS + 1):
            if listing:
                self.names[space] = listed(storage, space)
            named = sorted(within(self.names.get(space, ()), *ends), reverse=True)  # of one date the first by name counts
            try:
                tables = list(prefetch(read, named, CONCURRENT_READS))
                break
            except FileNotFoundError:
                if listing == LISTINGS:
                    raise
        rows = counting(pa.concat_tables([stored.empty_table(), *tables]), self.forgotten, self.oldest)
        return rows.sort_by([(MADE, "descending")]).drop_columns(MADE)  # a stable sort

    def put(self, space: Space, rows: pa.Table) -> None:
        """Stores rows as one file; they are durable when it returns. Those of queries that were forgotten are left out."""
        if not rows.num_rows or self.read_only:
            return
        dated = pa.repeat(pa.scalar(self.began or milliseconds(time.time()), MADE_AT.type), rows.num_rows)
        rows = counting(rows.append_column(MADE_AT, dated), self.forgotten, texts=space.kind in _WHOLE_TEXTS)
        put_rows(open_storage(self.root), space, rows)


NO_STORE = StoreFiles("", {})


def kept_spaces(config: Config, work: SharedWork) -> dict[Space, Mapping[str, Any]]:
    """Returns the spaces that a job keeps in the store, with what each is about; answers that are recorded cost nothing."""
    spaces: dict[Space, Mapping[str, Any]] = {}
    engines = [one for reading in work.readings for one in reading.engines.values()]
    engines += [task.engine for arm in work.answers for task in arm.tasks.values()]
    for engine in engines:
        if not engine.settings.is_recorded:
            spaces[Space("completions", engine.space)] = {"engine": engine.identity}
    comparing = {work.compared_by(number) for number in range(len(work.searches))}
    for key, retriever in work.retrievers.items():
        if retriever.settings.originals_only:  # its lists are read from a file each time
            continue
        if retriever.of_pages:  # of the web, whose answers are paid for
            if config.retrieve.store is not False:
                spaces[Space("web", retriever.space)] = {"retriever": retriever.name, "web": dict(retriever.identity)}
            continue
        if any("unknown" in state for state in retriever.states.values()):  # nobody could tell that a list is still right
            continue
        is_kept = config.retrieve.store
        if is_kept is None:  # all but those of a local BM25 index
            is_kept = not all(one.is_lexical for one in retriever.settings.indexed(retriever.name).values())
        if not is_kept:
            continue
        about = {"retriever": retriever.name, "index": dict(retriever.identity), "depth": retriever.depth}
        spaces[Space("lists", retriever.space)] = about
        if key in comparing:
            spaces[Space("vectors", retriever.encoder_space)] = {"encoder": retriever.identity.get("encoder")}
    for search in (one.web_search for one in work.answers if one.web_search is not None):
        spaces[Space("web", search.space)] = {"retriever": search.name, "web": dict(search.identity)}
    for reranker in work.rerankers:
        spaces[Space("scores", reranker.space)] = {"reranker": dict(reranker.identity)}
    return spaces


def open_store(
    root: str,
    spaces: Mapping[Space, Mapping[str, Any]],
    began: float | None = None,
    lifetime: float | None = None,
    *,
    read_only: bool = False,
) -> StoreFiles:
    """Returns the store's files of the spaces of a job; notes that they are used today, unless they are only looked at.

    Args:
        root: Of the store.
        spaces: With what each is about, as JSON-able values.
        began: When the job was begun, in seconds since the epoch; None: now.
        lifetime: Seconds for which rows count; None: for ever.
        read_only: Whether nothing is put there.

    Raises:
        ClusterError: The store cannot be written.
    """
    storage, now = open_storage(root), time.time()

    def opened(space: Space) -> Sequence[str]:
        if read_only:
            return listed(storage, space)
        storage.put(f"{USED}/{space.name}/{day(now)}", b"")  # before it is listed: who collects unused spaces looks for it
        names = listed(storage, space)
        if not names:
            about = json.dumps({"kind": space.kind, "made": day(now), **spaces[space]}, sort_keys=True, ensure_ascii=False)
            storage.put(f"{space.folder}/{ABOUT}", about.encode())
        return names

    try:
        known = forgotten_queries(storage)
        opened_spaces = dict(zip(spaces, prefetch(opened, spaces, CONCURRENT_READS), strict=True))
    except UnavailableError:
        raise
    except OSError as error:
        problem = f"store: cannot write to {root}: {error.strerror or error}; name another folder, or set store: null"
        raise ClusterError("storage-refused", problem) from error
    began_at = milliseconds(now if began is None else began)
    # workers have another current folder: the path is absolute
    return StoreFiles(storage.root, opened_spaces, began_at, known, oldest_of(lifetime, now), read_only)


def oldest_of(lifetime: float | None, now: float) -> int:
    """Returns the time at which the oldest rows were made that count, in milliseconds since the epoch; 0: all do.

    Args:
        lifetime: Seconds for which rows count; None: for ever.
        now: Seconds since the epoch.
    """
    return 0 if lifetime is None else milliseconds(now - lifetime)


def put_rows(storage: Storage, space: Space, rows: pa.Table, in_place_of: str | None = None) -> str | None:
    """Stores dated rows as one file; returns its name, None where none is left.

    `in_place_of`: the file that the rows are left of, which goes then.

    Who forgets a query marks it first and looks through the files then; who puts a file looks for marks then. So whichever
    comes later sees the other, and no row of the query stays.
    """
    before: list[str] = []
    while rows.num_rows:
        rows, sink = rows.sort_by("query_id"), io.BytesIO()  # a stable sort
        first, last = (rows.column("query_id")[place].as_py() for place in (0, rows.num_rows - 1))
        pq.write_table(rows, sink, row_group_size=ROW_GROUP, **parquet_options(rows.schema))
        name = file_name(first, last) if in_place_of is None else name_after(in_place_of)
        storage.put(f"{space.folder}/{name}", sink.getvalue())
        storage.delete(*before)
        kept = counting(rows, forgotten_queries(storage), texts=space.kind in _WHOLE_TEXTS)
        if kept.num_rows == rows.num_rows:
            return name
        before, rows, in_place_of = [f"{space.folder}/{name}"], kept, in_place_of and name
    storage.delete(*before)
    return None


def listed(storage: Storage, space: Space) -> list[str]:
    """Returns the names of the files of a space that no others replace."""
    entries = list(storage.list(space.folder))
    names = [entry.name for entry in entries if is_rows(entry.name)]
    gone = replaced(names, read_merges(storage, (entry.key for entry in entries)))
    return [name for name in names if name not in gone]


def within(names: Sequence[str], first: str, last: str) -> Iterator[str]:
    """Yields the files whose range of query_ids meets another."""
    for name in names:
        begin, end = range_of(name)
        if begin <= last[:DIGITS] and end >= first[:DIGITS]:
            yield name


def read_range(
    storage: Storage,
    key: str,
    first: str = "",
    last: str = "~",
    schema: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Returns the rows of a file whose query_ids lie between two, both included; without a schema as they were put.

    By default all of its rows and columns.

    Raises:
        FileNotFoundError: It is gone.
        ClusterError: It is damaged.
    """
    between = (pc.field("query_id") >= first) & (pc.field("query_id") <= last)
    names = columns if schema is None else schema.names
    try:
        with storage.open(key) as file:  # columns of a later version than the file are null
            # without threads, since other files are read beside it
            return pq.read_table(file, schema=schema, columns=names, filters=between, use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        of_storage = isinstance(error, OSError) and error.errno is not None  # without a number: of the bytes
        if of_storage or isinstance(error, UnavailableError):
            raise
        where = storage.url(key)
        raise ClusterError("run-damaged", f"{where}: is damaged ({error}); remove it, its rows are made again") from error
