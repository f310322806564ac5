"""Completions, lists, vectors and scores as rows of the store: looked up for a shard, put when the shard is done."""

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from cluster.costs import TOKENS
from jobs.chain.completions import REUSED, CompletionRecord
from jobs.chain.journal import Key
from jobs.chain.store.files import Space, StoreFiles
from jobs.tables import COMPLETIONS
from retrievers.retriever import JoinedText, RankedList, SearchText
from rewriters.engines import Completion
from rewriters.normalise import normalise

_OF_THE_JOB = ("start", "lost", "tier")  # columns that are no facts about an answer
_COMPLETION = pa.schema([field for field in COMPLETIONS if field.name not in _OF_THE_JOB])
_NO_FIELDS = (*Key._fields, "prompt", "device_seconds", "latency")  # columns that are no fields of a Completion
_FREE = {"seconds": 0.0, "attempts": 0} | dict.fromkeys(TOKENS, 0)


class EngineRequest(NamedTuple):
    """One request: the engine's space in the store, the key of its completion, and the prompt, which must be alike."""

    space: str
    key: Key
    prompt: str


def stored_completions(files: StoreFiles, asked: Sequence[EngineRequest]) -> dict[Key, CompletionRecord]:
    """Returns the stored completions of these requests by their keys, without what they once cost."""
    by_space: dict[str, dict[Key, str]] = defaultdict(dict)
    for request in asked:
        by_space[request.space][request.key] = request.prompt
    records: dict[Key, CompletionRecord] = {}
    for name, prompts in by_space.items():
        rows = files.rows(Space("completions", name), _COMPLETION, [key.query_id for key in prompts])
        keys = [Key(*values) for values in zip(*(rows.column(name).to_pylist() for name in Key._fields), strict=True)]
        places = [place for place, key in enumerate(keys) if key in prompts]
        for at, row in zip(places, rows.take(pa.array(places, pa.int64())).to_pylist(), strict=True):
            asked_prompt = prompts[keys[at]]  # alike, but for the form in which its query is shown
            if row["prompt"] == asked_prompt or normalise(row["prompt"]) == normalise(asked_prompt):
                values = {name: value for name, value in row.items() if name not in _NO_FIELDS}
                records[keys[at]] = CompletionRecord(Completion(**values | _FREE), row["prompt"], REUSED)
    return records


def put_completions(files: StoreFiles, records: Mapping[EngineRequest, CompletionRecord]) -> None:
    """Stores the completions that are no failures, nor empty, and were not read from the store."""
    by_space = defaultdict(list)
    for asked, record in records.items():
        if (record.completion.text or "").strip() and record.start != REUSED:
            spent = {"prompt": record.prompt, "device_seconds": record.device_seconds}
            by_space[asked.space].append(asdict(record.completion) | asked.key._asdict() | spent)
    for name, rows in by_space.items():
        files.put(Space("completions", name), pa.Table.from_pylist(rows, _COMPLETION))


class Searched(NamedTuple):
    """One search of one query."""

    query_id: str
    search: SearchText | JoinedText


def search_digest(search: SearchText | JoinedText) -> str:
    """Returns the digest of a search: 32 hex digits of its texts, and of what each is searched as."""
    parts = (search,) if isinstance(search, SearchText) else (search.original, *search.rewrites)
    texts = [type(search).__name__, *("" if one is None else f"{one.kind}\x1f{one.text}" for one in parts)]
    return hashlib.sha256("\x1e".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Scored(NamedTuple):
    """One pair: a query, its text as it was scored, and the digest of the document's text (`text_digest`)."""

    query_id: str
    text: str
    document: bytes


def text_digest(text: str) -> bytes:
    """Returns 16 bytes that a document's text is known by: a score outlives the index that the text was read from."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


FactKey = TypeVar("FactKey", Searched, Scored)
Value = TypeVar("Value")


class _Stored(ABC, Generic[FactKey, Value]):
    """Facts of a shard that one model or index makes; those of a space that the job does not keep are not stored."""

    SCHEMA: ClassVar[pa.Schema]
    KNOWN_BY: ClassVar[tuple[str, ...]]  # the columns by which rows of its queries are told apart

    def __init__(self, files: StoreFiles, space: Space) -> None:
        self._files, self._space, self._kept = files, space, space in files.names
        self.in_hand: dict[FactKey, Value] = {}
        """Values that were read and computed."""
        self._made: list[FactKey] = []

    def fill(self, keys: Sequence[FactKey], compute: Callable[[list[FactKey]], Iterable[tuple[FactKey, Value]]]) -> list[Value]:
        """Returns the values of the keys, in order: those in hand, then those in the store; the others are computed.

        Args:
            keys: May repeat; each is computed once.
            compute: Called with the missing keys, if there are any; yields keys with their values in any order. Where it
                raises, `save` stores what it has yielded before.
        """
        missing = [key for key in dict.fromkeys(keys) if key not in self.in_hand]
        if missing and self._kept:
            rows = self._files.rows(self._space, self.SCHEMA, [key.query_id for key in missing]).combine_chunks()
            keys_of = {self._known_by(key): key for key in missing}
            known = zip(*(rows.column(name).to_pylist() for name in self.KNOWN_BY), strict=True)
            places = [(at, keys_of[row]) for at, row in enumerate(known) if row in keys_of]
            self.in_hand |= zip((key for _, key in places), self._values(rows, [at for at, _ in places]), strict=True)
            missing = [key for key in missing if key not in self.in_hand]
        for key, value in compute(missing) if missing else ():
            self.in_hand[key] = value
            self._made.append(key)
        return [self.in_hand[key] for key in keys]

    def save(self) -> None:
        """Stores the values that were computed."""
        if self._made and self._kept:
            known = zip(*map(self._known_by, self._made), strict=True)
            columns = {"query_id": [key.query_id for key in self._made], **dict(zip(self.KNOWN_BY, known, strict=True))}
            columns |= self._columns([self.in_hand[key] for key in self._made])
            self._files.put(self._space, pa.table(columns, schema=self.SCHEMA))

    @abstractmethod
    def _known_by(self, key: FactKey) -> tuple[Any, ...]:
        """Returns the values of `KNOWN_BY` in the row of a key."""

    @abstractmethod
    def _values(self, rows: pa.Table, places: Sequence[int]) -> Iterable[Value]:
        """Returns the values of rows, by their places."""

    @abstractmethod
    def _columns(self, values: Sequence[Value]) -> dict[str, Any]:
        """Returns the columns of values."""


class _StoredSearches(_Stored[Searched, Value]):
    KNOWN_BY = ("search",)  # equal searches of a shard's queries are one

    def _known_by(self, key: Searched) -> tuple[Any, ...]:
        return (search_digest(key.search),)


class StoredLists(_StoredSearches[RankedList]):
    """The lists of one retriever."""

    SCHEMA = pa.schema(
        [
            ("query_id", pa.string()),
            ("search", pa.string()),
            ("doc_ids", pa.list_(pa.string())),
            ("scores", pa.list_(pa.float64())),
        ]
    )

    def _values(self, rows: pa.Table, places: Sequence[int]) -> Iterable[RankedList]:
        doc_ids, scores = (rows.column(name).combine_chunks() for name in ("doc_ids", "scores"))
        return [RankedList(doc_ids[at].values, scores[at].values.to_numpy(zero_copy_only=False)) for at in places]

    def _columns(self, values: Sequence[RankedList]) -> dict[str, Any]:
        offsets = pa.array(np.cumsum([0, *(len(one.scores) for one in values)]).astype(np.int32))
        doc_ids = pa.concat_arrays([one.doc_ids for one in values])
        scores = pa.array(np.concatenate([one.scores for one in values]))
        flat = {"doc_ids": doc_ids, "scores": scores}
        return {name: pa.ListArray.from_arrays(offsets, of) for name, of in flat.items()}


class StoredVectors(_StoredSearches[np.ndarray]):
    """The vectors of texts by one encoder, each of shape (dim,), float32."""

    SCHEMA = pa.schema([("query_id", pa.string()), ("search", pa.string()), ("vector", pa.list_(pa.float32()))])

    def _values(self, rows: pa.Table, places: Sequence[int]) -> Iterable[np.ndarray]:
        vectors = rows.column("vector").combine_chunks()
        return [vectors[at].values.to_numpy() for at in places]

    def _columns(self, values: Sequence[np.ndarray]) -> dict[str, Any]:
        return {"vector": pa.array(values, pa.list_(pa.float32()))}


class StoredScores(_Stored[Scored, float]):
    """The scores of one reranker."""

    SCHEMA = pa.schema([("query_id", pa.string()), ("text", pa.string()), ("document", pa.binary(16)), ("score", pa.float64())])
    KNOWN_BY = Scored._fields

    def _known_by(self, key: Scored) -> tuple[Any, ...]:
        return key

    def _values(self, rows: pa.Table, places: Sequence[int]) -> Iterable[float]:
        scores: list[float] = rows.column("score").take(pa.array(places, pa.int64())).to_pylist()
        return scores

    def _columns(self, values: Sequence[float]) -> dict[str, Any]:
        return {"score": values}
