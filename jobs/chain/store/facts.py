"""Completions, lists, vectors and scores as rows of the store: looked up for a shard, put when the shard is done."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.completions import REUSED, CompletionRecord
from jobs.chain.fill import Portion
from jobs.chain.journal import Key
from jobs.chain.store.files import Space, StoreFiles
from jobs.tables import COMPLETIONS
from retrievers.retriever import JoinedText, RankedList, SearchText
from rewriters.engines import Completion

_COMPLETION = pa.schema([field for field in COMPLETIONS if field.name not in ("start", "lost")])
_FREE = {"seconds": 0.0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0, "attempts": 0}


class EngineRequest(NamedTuple):
    """One request: the engine's space in the store, the key of its completion, and the prompt, which must be the same."""

    space: str
    key: Key
    prompt: str


def completions_space(name: str) -> Space:
    """Returns the space of what an engine answers."""
    return Space("completions", name)


def stored_completions(files: StoreFiles, asked: Sequence[EngineRequest]) -> dict[Key, CompletionRecord]:
    """Returns the stored completions of these requests, without what they once cost."""
    by_space: dict[str, dict[Key, str]] = defaultdict(dict)
    for one in asked:
        by_space[one.space][one.key] = one.prompt
    found = {}
    for name, prompts in by_space.items():
        rows = files.rows(completions_space(name), _COMPLETION, [key.query_id for key in prompts])
        keys = [Key(*values) for values in zip(*(rows.column(name).to_pylist() for name in Key._fields), strict=True)]
        places = [place for place, key in enumerate(keys) if key in prompts]
        for place, row in zip(places, rows.take(pa.array(places, pa.int64())).to_pylist(), strict=True):
            key, prompt = keys[place], row.pop("prompt")
            if prompt == prompts[key]:
                values = {name: value for name, value in row.items() if name not in (*Key._fields, "device_seconds", "latency")}
                found[key] = CompletionRecord(Completion(**values | _FREE), prompt, REUSED)
    return found


def put_completions(files: StoreFiles, made: Mapping[EngineRequest, CompletionRecord]) -> None:
    """Stores the completions that are no failures, nor empty, and were not read from the store."""
    by_space = defaultdict(list)
    for asked, one in made.items():
        if (one.completion.text or "").strip() and one.start != REUSED:
            row = asdict(one.completion) | asked.key._asdict() | {"prompt": one.prompt, "device_seconds": one.device_seconds}
            by_space[asked.space].append(row)
    for name, rows in by_space.items():
        files.put(completions_space(name), pa.Table.from_pylist(rows, _COMPLETION))


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


_LIST = pa.schema(
    [("query_id", pa.string()), ("search", pa.string()), ("doc_ids", pa.list_(pa.string())), ("scores", pa.list_(pa.float64()))]
)


class StoredLists:
    """A `jobs.chain.fill.Store` of the lists of one retriever for a shard; equal searches of its queries are one."""

    def __init__(self, files: StoreFiles, name: str) -> None:
        """Reads nothing; `name`: of the retriever's space."""
        self._files, self._space = files, lists_space(name)
        self._made: list[tuple[Searched, RankedList]] = []

    def get(self, keys: Sequence[Searched]) -> dict[Searched, RankedList]:
        """Returns the lists of these searches."""
        if self._space not in self._files.names:
            return {}
        by_digest = {search_digest(key.search): key for key in keys}
        rows = self._files.rows(self._space, _LIST, [key.query_id for key in keys]).combine_chunks()
        found = {}
        doc_ids, scores = (rows.column(name).combine_chunks() for name in ("doc_ids", "scores"))
        for place, digest in enumerate(rows.column("search").to_pylist()):
            if digest in by_digest:
                values = scores[place].values
                found[by_digest[digest]] = RankedList(doc_ids[place].values, values.to_numpy(zero_copy_only=False))
        return found

    def put(self, portion: Portion[Searched, RankedList]) -> None:
        """Takes lists for `save`."""
        self._made += portion if self._space in self._files.names else ()

    def save(self) -> None:
        """Stores the lists that were put."""
        if not self._made:
            return
        offsets = pa.array(np.cumsum([0, *(len(one.scores) for _, one in self._made)]).astype(np.int32))
        doc_ids = pa.concat_arrays([one.doc_ids for _, one in self._made])
        scores = pa.array(np.concatenate([one.scores for _, one in self._made]))
        columns = [
            pa.array([key.query_id for key, _ in self._made], pa.string()),
            pa.array([search_digest(key.search) for key, _ in self._made], pa.string()),
            pa.ListArray.from_arrays(offsets, doc_ids),
            pa.ListArray.from_arrays(offsets, scores),
        ]
        self._files.put(self._space, pa.table(columns, schema=_LIST))


def lists_space(name: str) -> Space:
    """Returns the space of the lists of a retriever."""
    return Space("lists", name)


_VECTOR = pa.schema([("query_id", pa.string()), ("search", pa.string()), ("vector", pa.list_(pa.float32()))])


class StoredVectors:
    """A `jobs.chain.fill.Store` of the vectors of texts by one encoder."""

    def __init__(self, files: StoreFiles, name: str) -> None:
        """Reads nothing; `name`: of the encoder's space."""
        self._files, self._space = files, vectors_space(name)

    def get(self, keys: Sequence[Searched]) -> dict[Searched, np.ndarray]:
        """Returns the vectors of these texts, shape (dim,), float32."""
        if self._space not in self._files.names:
            return {}
        by_digest = {search_digest(key.search): key for key in keys}
        rows = self._files.rows(self._space, _VECTOR, [key.query_id for key in keys]).combine_chunks()
        vectors = rows.column("vector").combine_chunks()
        return {
            by_digest[digest]: vectors[place].values.to_numpy()
            for place, digest in enumerate(rows.column("search").to_pylist())
            if digest in by_digest
        }

    def put(self, portion: Portion[Searched, np.ndarray]) -> None:
        """Stores vectors."""
        if self._space not in self._files.names:
            return
        columns = [
            pa.array([key.query_id for key, _ in portion], pa.string()),
            pa.array([search_digest(key.search) for key, _ in portion], pa.string()),
            pa.array([vector for _, vector in portion], pa.list_(pa.float32())),
        ]
        self._files.put(self._space, pa.table(columns, schema=_VECTOR))


def vectors_space(name: str) -> Space:
    """Returns the space of the vectors of an encoder."""
    return Space("vectors", name)


class Scored(NamedTuple):
    """One pair: a query, its text as it was scored, and the digest of the document's text (`text_digest`)."""

    query_id: str
    text: str
    document: bytes


def text_digest(text: str) -> bytes:
    """Returns 16 bytes that a document's text is known by: a score outlives the index that the text was read from."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


_SCORE = pa.schema([("query_id", pa.string()), ("text", pa.string()), ("document", pa.binary(16)), ("score", pa.float64())])


class StoredScores:
    """A `jobs.chain.fill.Store` of the scores of one reranker for a shard."""

    def __init__(self, files: StoreFiles, name: str) -> None:
        """Reads nothing; `name`: of the reranker's space."""
        self._files, self._space = files, scores_space(name)
        self._made: list[tuple[Scored, float]] = []

    def get(self, keys: Sequence[Scored]) -> dict[Scored, float]:
        """Returns the scores of these pairs."""
        if self._space not in self._files.names:
            return {}
        wanted = set(keys)
        rows = self._files.rows(self._space, _SCORE, [key.query_id for key in keys])
        of = (Scored(*key) for key in zip(*(rows.column(name).to_pylist() for name in Scored._fields), strict=True))
        return {key: score for key, score in zip(of, rows.column("score").to_pylist(), strict=True) if key in wanted}

    def put(self, portion: Portion[Scored, float]) -> None:
        """Takes scores for `save`."""
        self._made += portion if self._space in self._files.names else ()

    def save(self) -> None:
        """Stores the scores that were put."""
        if self._made:
            columns: list[list[Any]] = [[key[place] for key, _ in self._made] for place in range(len(Scored._fields))]
            columns.append([score for _, score in self._made])
            self._files.put(self._space, pa.table(columns, schema=_SCORE))


def scores_space(name: str) -> Space:
    """Returns the space of the scores of a reranker."""
    return Space("scores", name)
