"""Reasons why something is missing: by what the store holds of the same queries, in the spaces of the job and in others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from cluster.storage import open_storage
from jobs.chain.store.files import Space, StoreFiles, read_range
from jobs.store.contents import StoredSpace, abouts, stored_spaces

NEW, NO_STORE = "new queries", "there is no store"
PROMPT, REQUEST, DECODING, MODEL = "another prompt", "another strategy", "other decoding or values", "another model"
TEXTS, INDEX, DEPTH, RETRIEVER = "other texts", "another index", "another depth", "another retriever"
DOCUMENTS, RERANKER = "other documents", "another reranker"
TOO_OLD, FORGOTTEN = "too old (store_ttl)", "forgotten"

_AS_ASKED = (DECODING, TEXTS, DOCUMENTS)  # reasons of rows that are stored as this job would ask for them
_WORST_FIRST = (REQUEST, DECODING, PROMPT)
_IDS = pa.schema([("query_id", pa.string())])
_REQUESTS = pa.schema([("query_id", pa.string()), ("request", pa.string()), ("prompt_hash", pa.string())])


class StoredQueries:
    """Content of the store about queries."""

    def __init__(self, files: StoreFiles, own: Mapping[Space, Mapping[str, Any]]) -> None:
        """Reads nothing yet; `files` are those of the job, `own` its spaces with what they are about."""
        self._files, self._own = files, own

    def keeps(self, kind: str) -> bool:
        """Returns True if the job keeps spaces of a kind."""
        return bool(self._files.root) and any(space.kind == kind for space in self._own)

    @cached_property
    def spaces(self) -> list[StoredSpace]:
        """The spaces of the store, those of the job first."""
        spaces = stored_spaces(open_storage(self._files.root)) if self._files.root else []
        return sorted(spaces, key=lambda stored: stored.space not in self._own)

    @cached_property
    def _abouts(self) -> dict[Space, dict[str, Any]]:
        return abouts(open_storage(self._files.root), [stored.space for stored in self.spaces])

    def of_file(self, space: Space, name: str, schema: pa.Schema) -> pa.Table:
        """Returns columns of one file of a space."""
        return read_range(open_storage(self._files.root), f"{space.folder}/{name}", schema=schema)

    def why(self, kind: str, ids: Collection[str], prompts: Collection[tuple[str, str]] = ()) -> Counter[str]:
        """Returns the reason why queries miss something of a kind of space; of completions, requests of these `prompts`."""
        if not self._files.root:
            return Counter({NO_STORE: len(ids)} if ids else {})
        reasons = self._reasons(self._files, kind, ids, prompts)
        if (left := set(ids) - reasons.keys()) and (self._files.oldest or self._files.forgotten):
            reasons |= dict.fromkeys(left & self._files.forgotten.keys(), FORGOTTEN)
            whole = replace(self._files, oldest=0, forgotten={})
            for query_id, reason in self._reasons(whole, kind, left - reasons.keys(), prompts).items():
                # others would be missing, too, if they were young
                reasons[query_id] = TOO_OLD if reason in _AS_ASKED else reason
        return Counter(reasons.get(query_id, NEW) for query_id in ids)

    def _reasons(
        self, files: StoreFiles, kind: str, ids: Collection[str], prompts: Collection[tuple[str, str]]
    ) -> dict[str, str]:
        """Returns query_id -> why something is missing, of those of which the store has something that counts."""
        reasons: dict[str, str] = {}
        names = {name for name, _ in prompts}
        for stored in (stored for stored in self.spaces if stored.space.kind == kind):
            if not (left := sorted(set(ids) - reasons.keys())):
                break
            is_own = stored.space in self._own
            schema = _REQUESTS if is_own and kind == "completions" else _IDS
            for row in replace(files, names={stored.space: stored.read}).rows(stored.space, schema, left).to_pylist():
                reason = self._other(stored.space)
                if is_own and kind == "completions":
                    same = (row["request"], row["prompt_hash"]) in prompts
                    reason = DECODING if same else PROMPT if row["request"] in names else REQUEST
                    reason = max(reasons.get(row["query_id"], REQUEST), reason, key=_WORST_FIRST.index)
                elif is_own:
                    reason = TEXTS if kind == "lists" else DOCUMENTS
                reasons[row["query_id"]] = reason
        return reasons

    def _other(self, space: Space) -> str:
        """Returns the difference between a space that is not the job's and its own."""
        if space.kind != "lists":
            return MODEL if space.kind == "completions" else RERANKER
        own = [about for known, about in self._own.items() if known.kind == "lists"]
        same = [about for about in own if about.get("retriever") == self._abouts[space].get("retriever")]
        if not same:
            return RETRIEVER
        return DEPTH if any(about.get("index") == self._abouts[space].get("index") for about in same) else INDEX
