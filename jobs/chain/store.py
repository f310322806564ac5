"""What ablations gather, kept below `<output>/<name>/gathered/` for later ones: completions, vectors, lists and scores.

Each kind has a folder for each model or index that made its rows. A file holds rows of a range of query_ids and is named by it,
so that a shard reads the files of its range. Files are never changed; a row may stand in several.
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ClusterError
from cluster.storage import open_storage
from jobs.chain.completions import CompletionRecord
from jobs.chain.fill import Portion
from jobs.chain.journal import Key
from jobs.tables import COMPLETIONS
from retrievers.retriever import JoinedText, RankedList, SearchText
from rewriters.engines import Completion

FOLDER = "gathered"
_RANGE = 12  # hex digits of a query_id in a file's name


class Gathered:
    """Rows of one kind, made by one model or index."""

    def __init__(self, root: str, kind: str, space: str, schema: pa.Schema) -> None:
        """Reads nothing.

        Args:
            root: The folder `gathered`.
            kind: Of the rows.
            space: Of the model or index: rows of another one have another.
            schema: With a column query_id.
        """
        self._storage, self._folder, self._schema = open_storage(root), f"{kind}/{space}", schema

    def rows(self, query_ids: Sequence[str]) -> pa.Table:
        """Returns the rows of these queries.

        Raises:
            ClusterError: A file is damaged.
        """
        first, last = min(query_ids)[:_RANGE], max(query_ids)[:_RANGE]
        wanted = pa.array(sorted(set(query_ids)), pa.string())
        found = [self._schema.empty_table()]
        for entry in self._storage.list(self._folder):
            begin, _, rest = entry.key.rpartition("/")[2].partition("-")
            if not entry.key.endswith(".parquet") or begin > last or rest[:_RANGE] < first:
                continue
            try:
                with self._storage.open(entry.key) as file:
                    rows = pq.read_table(file, schema=self._schema)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                where = self._storage.url(entry.key)
                raise ClusterError(
                    "run-damaged", f"{where}: is damaged ({error}); remove it, what it held is gathered anew"
                ) from error
            found.append(rows.filter(pc.is_in(rows.column("query_id"), wanted)))
        return pa.concat_tables(found)

    def add(self, rows: pa.Table) -> None:
        """Stores rows; they are durable when it returns."""
        if not rows.num_rows:
            return
        ends = pc.min_max(rows.column("query_id")).as_py()
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd")
        name = f"{ends['min'][:_RANGE]}-{ends['max'][:_RANGE]}-{uuid.uuid4().hex[:12]}.parquet"
        self._storage.put(f"{self._folder}/{name}", sink.getvalue())


_COMPLETIONS = pa.schema([field for field in COMPLETIONS if field.name not in ("start", "lost")])


_BY_ENGINE = "by_engine"  # in `all`, of before, a strategy's own engine is no part of the keys: what other models said


class GatheredCompletions:
    """A `jobs.chain.fill.Store` of the completions of a block."""

    def __init__(self, root: str) -> None:
        """Reads nothing."""
        self._gathered = Gathered(root, "completions", _BY_ENGINE, _COMPLETIONS)
        self.reused: set[Key] = set()

    def get(self, keys: Sequence[Key]) -> dict[Key, CompletionRecord]:
        """Returns the completions of these keys, without what they once cost."""
        wanted, found = set(keys), {}
        for row in self._gathered.rows([key.query_id for key in keys]).to_pylist():
            key = Key(**{name: row.pop(name) for name in Key._fields})
            if key in wanted:
                prompt = row.pop("prompt")
                del row["device_seconds"], row["latency"]
                free = {"seconds": 0.0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0, "attempts": 0}
                found[key] = CompletionRecord(Completion(**row | free), prompt, -1)
        self.reused |= found.keys()
        return found

    def put(self, portion: Portion[Key, CompletionRecord]) -> None:
        """Stores the completions that did not fail."""
        rows = []
        for key, made in portion:
            if made.completion.error_reason is None:
                values = asdict(made.completion) | key._asdict()
                rows.append(values | {"prompt": made.prompt, "device_seconds": made.device_seconds})
        self._gathered.add(pa.Table.from_pylist(rows, _COMPLETIONS))


class Searched(NamedTuple):
    """One search of one query."""

    query_id: str
    search: SearchText | JoinedText


def search_digest(search: SearchText | JoinedText) -> str:
    """Returns what a search is known by: 32 hex digits of its texts, what each is searched as, and filters."""
    parts = (search,) if isinstance(search, SearchText) else (search.original, *search.rewrites)
    words = [type(search).__name__, *("" if one is None else f"{one.kind}\x1f{one.text}" for one in parts)]
    words += [json.dumps(search.only)] if search.only else []
    return hashlib.sha256("\x1e".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:32]


_LISTS = pa.schema(
    [("query_id", pa.string()), ("search", pa.string()), ("doc_ids", pa.list_(pa.string())), ("scores", pa.list_(pa.float64()))]
)


class GatheredLists:
    """A `jobs.chain.fill.Store` of the lists of one retriever; equal searches of a block's queries are one."""

    def __init__(self, root: str, space: str) -> None:
        """Reads nothing."""
        self._gathered = Gathered(root, "lists", space, _LISTS)

    def get(self, keys: Sequence[Searched]) -> dict[Searched, RankedList]:
        """Returns the lists of these searches."""
        by_digest = {search_digest(key.search): key for key in keys}
        rows = self._gathered.rows([key.query_id for key in keys]).combine_chunks()
        found = {}
        doc_ids, scores = (rows.column(name).combine_chunks() for name in ("doc_ids", "scores"))
        for place, digest in enumerate(rows.column("search").to_pylist()):
            if digest in by_digest:
                values = scores[place].values
                found[by_digest[digest]] = RankedList(doc_ids[place].values, values.to_numpy(zero_copy_only=False))
        return found

    def put(self, portion: Portion[Searched, RankedList]) -> None:
        """Stores lists."""
        if not portion:
            return
        offsets = np.cumsum([0, *(len(one.scores) for _, one in portion)]).astype(np.int32)
        doc_ids = pa.concat_arrays([one.doc_ids for _, one in portion])
        scores = pa.array(np.concatenate([one.scores for _, one in portion]))
        columns = [
            pa.array([key.query_id for key, _ in portion], pa.string()),
            pa.array([search_digest(key.search) for key, _ in portion], pa.string()),
            pa.ListArray.from_arrays(pa.array(offsets), doc_ids),
            pa.ListArray.from_arrays(pa.array(offsets), scores),
        ]
        self._gathered.add(pa.table(columns, schema=_LISTS))


class GatheredVectors:
    """A `jobs.chain.fill.Store` of the vectors of texts by one encoder."""

    def __init__(self, root: str, space: str) -> None:
        """Reads nothing."""
        schema = pa.schema([("query_id", pa.string()), ("search", pa.string()), ("vector", pa.list_(pa.float32()))])
        self._gathered, self._schema = Gathered(root, "vectors", space, schema), schema

    def get(self, keys: Sequence[Searched]) -> dict[Searched, np.ndarray]:
        """Returns the vectors of these texts, shape (dim,), float32."""
        by_digest = {search_digest(key.search): key for key in keys}
        rows = self._gathered.rows([key.query_id for key in keys]).combine_chunks()
        vectors = rows.column("vector").combine_chunks()
        return {
            by_digest[digest]: vectors[place].values.to_numpy()
            for place, digest in enumerate(rows.column("search").to_pylist())
            if digest in by_digest
        }

    def put(self, portion: Portion[Searched, np.ndarray]) -> None:
        """Stores vectors."""
        columns = [
            pa.array([key.query_id for key, _ in portion], pa.string()),
            pa.array([search_digest(key.search) for key, _ in portion], pa.string()),
            pa.array([vector for _, vector in portion], pa.list_(pa.float32())),
        ]
        self._gathered.add(pa.table(columns, schema=self._schema))


class Scored(NamedTuple):
    """One pair of a query's text, as it was scored, and a document."""

    query_id: str
    text: str
    doc_id: str


_SCORES = pa.schema([("query_id", pa.string()), ("text", pa.string()), ("doc_id", pa.string()), ("score", pa.float64())])


class GatheredScores:
    """A `jobs.chain.fill.Store` of the scores of one reranker."""

    def __init__(self, root: str, space: str) -> None:
        """Reads nothing."""
        self._gathered = Gathered(root, "scores", space, _SCORES)

    def get(self, keys: Sequence[Scored]) -> dict[Scored, float]:
        """Returns the scores of these pairs."""
        wanted = set(keys)
        rows = self._gathered.rows([key.query_id for key in keys])
        of = (Scored(*key) for key in zip(*(rows.column(n).to_pylist() for n in ("query_id", "text", "doc_id")), strict=True))
        return {key: score for key, score in zip(of, rows.column("score").to_pylist(), strict=True) if key in wanted}

    def put(self, portion: Portion[Scored, float]) -> None:
        """Stores scores."""
        columns = [pa.array([key[place] for key, _ in portion], pa.string()) for place in range(3)]
        self._gathered.add(pa.table([*columns, pa.array([score for _, score in portion], pa.float64())], schema=_SCORES))
