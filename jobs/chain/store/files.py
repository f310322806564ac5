"""The files of the store, which nights, ablations and trials share.

    v1/<kind>/<space>/<first>-<last>-<uuid>.parquet  rows of a shard, sorted by query_id; the first 12 hex digits of both ends
    v1/<kind>/<space>/about.json                     what made the rows: a model, an index, a reranker
    v1/used/<space>/<yyyy-mm-dd>                     empty; put by every job that uses the space

Rows are facts: where two have one key, either is good. So files are never changed, a put is atomic, and neither a lock nor a
manifest is needed (the blocks of Thanos are kept so). A job lists its spaces once, when it starts its workers: what other jobs
put later it makes itself.
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ClusterError, UnavailableError
from cluster.storage import Storage, open_storage
from cluster.storage.prefetch import prefetch

VERSION = "v1"  # in the path: an older program does not see a newer layout
ABOUT = "about.json"
ENDING = ".parquet"
CONCURRENT_READS = 8
_MADE = "made_at"
_MADE_AT = pa.field(_MADE, pa.timestamp("ms", "UTC"))  # when the row was put: the oldest of one key counts
_RANGE = 12  # hex digits of a query_id in a file's name


class Space(NamedTuple):
    """Rows of one kind that one model or index made.

    Attributes:
        kind: completions, vectors, lists, scores or web.
        name: A hash of all that decides a row beside its key.
    """

    kind: str
    name: str

    @property
    def folder(self) -> str:
        """Returns the folder of its files in the store."""
        return f"{VERSION}/{self.kind}/{self.name}"


@dataclass(frozen=True)
class StoreFiles:
    """The files of the spaces that a job keeps there, as they were when it started; workers get it with their settings."""

    root: str
    names: Mapping[Space, Sequence[str]]

    def rows(self, space: Space, schema: pa.Schema, query_ids: Sequence[str]) -> pa.Table:
        """Returns the stored rows of these queries, newest first: who keeps the last of one key has that made first.

        Where a file is gone, the space is listed once more: it may have been merged with others.

        Raises:
            ClusterError: A file is damaged.
        """
        storage, stored = open_storage(self.root), schema.append(_MADE_AT)
        ends = min(query_ids)[:_RANGE], max(query_ids)[:_RANGE]
        wanted = pa.array(sorted(set(query_ids)), pa.string())

        def read(name: str) -> pa.Table:
            rows = _read(storage, f"{space.folder}/{name}", stored)
            return rows.filter(pc.is_in(rows.column("query_id"), wanted))

        try:
            found = list(prefetch(read, _within(self.names.get(space, ()), *ends), CONCURRENT_READS))
        except FileNotFoundError:
            found = list(prefetch(read, _within(_listed(storage, space), *ends), CONCURRENT_READS))
        return pa.concat_tables([stored.empty_table(), *found]).sort_by([(_MADE, "descending")]).drop_columns(_MADE)

    def put(self, space: Space, rows: pa.Table) -> None:
        """Stores rows as one file; they are durable when it returns."""
        if not rows.num_rows:
            return
        now = pa.repeat(pa.scalar(int(time.time() * 1000), _MADE_AT.type), rows.num_rows)
        rows, sink = rows.sort_by("query_id").append_column(_MADE_AT, now), io.BytesIO()
        first, last = (rows.column("query_id")[place].as_py()[:_RANGE] for place in (0, rows.num_rows - 1))
        pq.write_table(rows, sink, compression="zstd")
        open_storage(self.root).put(f"{space.folder}/{first}-{last}-{uuid.uuid4().hex[:12]}{ENDING}", sink.getvalue())


NO_STORE = StoreFiles("", {})


def open_store(root: str, spaces: Mapping[Space, Mapping[str, Any]]) -> StoreFiles:
    """Returns the store's files of the spaces of a job; notes that they are used today.

    `spaces` says what each is about, as JSON-able values.

    Raises:
        ClusterError: The store cannot be written.
    """
    storage, today = open_storage(root), time.strftime("%Y-%m-%d", time.gmtime())

    def opened(space: Space) -> Sequence[str]:
        names = list(_listed(storage, space))
        storage.put(f"{VERSION}/used/{space.name}/{today}", b"")
        if not names:
            about = json.dumps({"kind": space.kind, "made": today, **spaces[space]}, sort_keys=True, ensure_ascii=False)
            storage.put(f"{space.folder}/{ABOUT}", about.encode())
        return names

    try:
        # workers have another current folder: the path is absolute
        return StoreFiles(storage.root, dict(zip(spaces, prefetch(opened, spaces, CONCURRENT_READS), strict=True)))
    except UnavailableError:
        raise
    except OSError as error:
        words = f"store: cannot write to {root}: {error.strerror or error}; name another folder, or null to do without"
        raise ClusterError("storage-unwritable", words) from error


def _listed(storage: Storage, space: Space) -> Iterator[str]:
    for entry in storage.list(space.folder):
        name = entry.key.rpartition("/")[2]
        if name.endswith(ENDING) and not name.startswith("."):
            yield name


def _within(names: Iterator[str] | Sequence[str], first: str, last: str) -> Iterator[str]:
    """Yields the files whose range of query_ids meets another."""
    for name in names:
        begin, end = name[:_RANGE], name[_RANGE + 1 : 2 * _RANGE + 1]
        if begin <= last and end >= first:
            yield name


def _read(storage: Storage, key: str, schema: pa.Schema) -> pa.Table:
    try:
        with storage.open(key) as file:
            return pq.read_table(file, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the storage; without a number: of the bytes
            raise
        where = storage.url(key)
        raise ClusterError("run-damaged", f"{where}: is damaged ({error}); remove it, what it held is made anew") from error
