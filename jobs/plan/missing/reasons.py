"""Why something is missing: by what the store holds of the same queries, in the spaces of the job and in others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.storage import open_storage
from jobs.chain.store.files import Space, StoreFiles, read_range
from jobs.store.contents import abouts, stored_spaces

NEW, NO_STORE = "new queries", "there is no store"
PROMPT, REQUEST, DECODING, MODEL = "another prompt", "another strategy", "other decoding or values", "another model"
TEXTS, INDEX, DEPTH, RETRIEVER = "other texts", "another index", "another depth", "another retriever"
DOCUMENTS, RERANKER = "other documents", "another reranker"
TOO_OLD, FORGOTTEN = "too old (store_ttl)", "forgotten"
UNKNOWN = (NEW, NO_STORE, TOO_OLD, FORGOTTEN)  # of queries of which nothing that counts is stored

_AS_ASKED = (DECODING, TEXTS, DOCUMENTS)  # reasons of rows that are stored as this job would ask for them

_IDS = pa.schema([("query_id", pa.string())])
_REQUESTS = pa.schema([("query_id", pa.string()), ("request", pa.string()), ("prompt_hash", pa.string())])


class _Known(NamedTuple):
    """A space that the store holds, with what made its rows, and the files that are read."""

    space: Space
    about: Mapping[str, Any]
    names: Sequence[str]


class StoredQueries:
    """What the store holds of queries."""

    def __init__(self, files: StoreFiles, own: Mapping[Space, Mapping[str, Any]]) -> None:
        """Reads nothing yet; `files` are those of the job, `own` its spaces with what they are about."""
        self._files, self._own = files, own
        self._is_there = bool(files.root)
        self._known: dict[str, list[_Known]] = {}

    def keeps(self, space: Space) -> bool:
        """Returns whether the job keeps a space."""
        return self._is_there and space in self._own

    def spaces(self, kind: str) -> list[_Known]:
        """Returns the spaces of a kind, those of the job first."""
        if not self._known and self._is_there:
            storage = open_storage(self._files.root)
            found = stored_spaces(storage)
            about = abouts(storage, [one.space for one in found])
            for one in sorted(found, key=lambda one: one.space not in self._own):
                self._known.setdefault(one.space.kind, []).append(_Known(one.space, about[one.space], one.read))
        return self._known.get(kind, [])

    def rows(self, known: _Known, schema: pa.Schema, ids: Sequence[str]) -> pa.Table:
        """Returns the rows of queries in a space that count."""
        return replace(self._files, names={known.space: known.names}).rows(known.space, schema, ids)

    def of_file(self, known: _Known, name: str, schema: pa.Schema) -> pa.Table:
        """Returns columns of one file of a space."""
        return read_range(open_storage(self._files.root), f"{known.space.folder}/{name}", schema=schema)

    def answers(self, ids: Collection[str], prompts: Collection[tuple[str, str]]) -> Counter[str]:
        """Returns why queries miss answers; `prompts` are names and hashes of prompts of the requests that are missing."""

        def of_own(stored: StoredQueries, known: _Known, left: Sequence[str]) -> dict[str, str]:
            found: dict[str, str] = {}
            names = {name for name, _ in prompts}
            for row in stored.rows(known, _REQUESTS, left).to_pylist():
                same = (row["request"], row["prompt_hash"]) in prompts
                why = DECODING if same else PROMPT if row["request"] in names else REQUEST
                order = [REQUEST, DECODING, PROMPT]
                before = found.get(row["query_id"], REQUEST)
                found[row["query_id"]] = max(before, why, key=order.index)
            return found

        return self._why("completions", ids, of_own, lambda _: MODEL)

    def lists(self, ids: Collection[str]) -> Counter[str]:
        """Returns why queries miss lists."""
        own = [about for space, about in self._own.items() if space.kind == "lists"]

        def other(known: _Known) -> str:
            same = [one for one in own if one.get("retriever") == known.about.get("retriever")]
            if not same:
                return RETRIEVER
            return DEPTH if any(one.get("index") == known.about.get("index") for one in same) else INDEX

        return self._why("lists", ids, self._all_of(TEXTS), other)

    def scores(self, ids: Collection[str]) -> Counter[str]:
        """Returns why queries miss scores."""
        return self._why("scores", ids, self._all_of(DOCUMENTS), lambda _: RERANKER)

    def _all_of(self, why: str) -> Any:
        return lambda stored, known, left: dict.fromkeys(stored.rows(known, _IDS, left).column("query_id").to_pylist(), why)

    def _why(self, kind: str, ids: Collection[str], of_own: Any, other: Any) -> Counter[str]:
        if not self._is_there:
            return Counter({NO_STORE: len(ids)} if ids else {})
        found = self._told(kind, ids, of_own, other)
        if found.keys() != set(ids) and (self._files.oldest or self._files.forgotten):
            forgotten, left = self._files.forgotten, set(ids) - found.keys()
            found |= dict.fromkeys(left & forgotten.keys(), FORGOTTEN)
            whole = StoredQueries(replace(self._files, oldest=0, forgotten={}), self._own)
            for one, why in whole._told(kind, left - forgotten.keys(), of_own, other).items():
                found[one] = TOO_OLD if why in _AS_ASKED else why  # others would be missing, too, if they were young
        return Counter(found.get(one, NEW) for one in ids)

    def _told(self, kind: str, ids: Collection[str], of_own: Any, other: Any) -> dict[str, str]:
        """Returns query_id -> why it misses what is asked for, of those of which the store has something that counts."""
        found: dict[str, str] = {}
        for known in self.spaces(kind):
            if left := sorted(set(ids) - found.keys()):
                in_space = of_own if known.space in self._own else self._all_of(other(known))
                found |= in_space(self, known, left)
        return found
