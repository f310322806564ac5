"""The run's own store of completions, written as soon as they are made."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.storage import Storage
from jobs.stages.fill import Portion
from jobs.tables import COMPLETIONS
from rewriters.engines import Completion, Request


class Key(NamedTuple):
    """The key of a completion within a run."""

    query_id: str
    request: str
    prompt_hash: str


class CompletionRecord(NamedTuple):
    """A completion with its prompt and the start of the run that made it (0: this call, not yet stored)."""

    completion: Completion
    prompt: str = ""
    start: int = 0
    device_seconds: float = 0.0


def key_of(request: Request) -> Key:
    """Returns the key of a request's completion."""
    return Key(request.query_id, request.name, request.prompt_hash)


class Completions:
    """The completions of one shard; a `jobs.stages.fill.Store`. Failed ones are not stored: the next start retries them."""

    def __init__(self, storage: Storage, shard: int, start: int, gpus: float) -> None:
        """Opens the store; reads nothing.

        Args:
            storage: the run's folder; files are written to `completions/<shard>/`.
            shard: its number.
            start: the number of this start of the run, from 1.
            gpus: the number of accelerators of the worker.
        """
        self._storage, self._folder = storage, f"completions/{shard:06d}"
        self._start, self._gpus = start, gpus

    def get(self, keys: Sequence[Key]) -> Mapping[Key, CompletionRecord]:
        """Returns the completions with these keys that earlier attempts at the shard stored."""
        wanted, found = set(keys), {}
        for portion in self._storage.list(self._folder):
            if not portion.key.endswith(".parquet"):
                continue
            with self._storage.open(portion.key) as file:
                rows = pq.read_table(file, schema=COMPLETIONS).to_pylist()
            for row in rows:
                key = Key(row.pop("query_id"), row.pop("request"), row.pop("prompt_hash"))
                prompt, start, device_seconds = row.pop("prompt"), row.pop("start"), row.pop("device_seconds")
                if key in wanted:
                    found[key] = CompletionRecord(Completion(**row), prompt, start, device_seconds)
        return found

    def put(self, portion: Portion[Key, CompletionRecord]) -> None:
        """Writes the successful completions of a portion as one file."""
        rows = [
            {
                **key._asdict(), "prompt": made.prompt, "text": c.text, "finish_reason": c.finish_reason, "model": c.model,
                "prompt_tokens": c.prompt_tokens, "cached_tokens": c.cached_tokens,
                "completion_tokens": c.completion_tokens, "usage": c.usage, "seconds": c.seconds,
                "device_seconds": c.seconds * self._gpus, "attempts": c.attempts, "start": self._start,
            }
            for key, made in portion
            if (c := made.completion).error_reason is None
        ]  # fmt: skip
        if rows:
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, COMPLETIONS), sink, compression="zstd")
            self._storage.put(f"{self._folder}/{uuid.uuid4().hex}.parquet", sink.getvalue().to_pybytes())
