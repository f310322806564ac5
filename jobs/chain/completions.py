"""The run's own store of completions, written as soon as they are made."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from cluster.costs import TOKENS, Totals
from cluster.storage import Storage
from jobs.chain.fill import Portion
from jobs.chain.journal import (
    ENDING,
    JournalKeeper,
    Key,
    journal_folder,
    read_journal,
    read_rows,
    read_unsaved,
    row_key,
    shard_folder,
    stored_shards,
    write_rows,
)
from rewriters.engines import Completion, Request

REUSED = -1  # the start that made a completion of the store: none of this run
_ROW_ONLY = (*Key._fields, "lost")  # columns of a row that are no fields of a CompletionRecord


class CompletionRecord(NamedTuple):
    """A completion with its prompt and the start of the run that made it (0: this call, not yet stored; `REUSED`: none)."""

    completion: Completion
    prompt: str = ""
    start: int = 0
    device_seconds: float = 0.0


def key_of(request: Request) -> Key:
    """Returns the key of a request's completion."""
    return Key(request.query_id, request.name, request.prompt_hash, request.sample, request.variables)


class Completions:
    """The completions of one shard; a `jobs.chain.fill.Store`. Failed ones are not stored: the next start retries them.

    Each is written to a journal at once. `merge` puts all that lie in journals into one file of the shard's folder.
    """

    def __init__(self, storage: Storage, shard: int, start: int, gpus: float, keeper: JournalKeeper | None = None) -> None:
        """Opens the store; reads nothing.

        Without a keeper of journals, completions that cost nothing wait in memory for `merge`.
        """
        self._storage, self._shard, self._start, self._gpus = storage, shard, start, gpus
        self._keeper = keeper
        self._journal = keeper.open(shard) if keeper else None
        self._unmerged: dict[Key, dict[str, Any]] = {}
        self._read: list[str] = []  # journals of earlier attempts
        self._newly_lost: Counter[Key] = Counter()  # by those journals
        self._failed: Counter[Key] = Counter()  # sends of this attempt that no answer came of: lost, if the shard is done again
        self.spent: Totals = {}
        """What engines have cost for this attempt at the shard."""
        self.lost: Counter[Key] = Counter()
        """How often each request was sent, by attempts that were killed, without an answer that was kept."""

    def get(self, keys: Sequence[Key]) -> dict[Key, CompletionRecord]:
        """Returns the stored completions of these keys, of earlier attempts at the shard as well."""
        merged, found = self._known
        rows = found | merged
        return {key: record_of(rows[key]) for key in keys if key in rows and rows[key]["text"] is not None}

    def rows(self) -> list[dict[str, Any]]:
        """Returns all stored completions of the shard, as rows of COMPLETIONS."""
        merged, found = self._known
        return [row for row in (found | merged).values() if row["text"] is not None]

    def sent(self, key: Key) -> None:
        """Records that a request is about to be sent; any thread may call it."""
        if self._journal is not None:
            self._journal.sent(key)

    def put(self, portion: Portion[Key, CompletionRecord]) -> None:
        """Writes the successful completions of a portion to the journal."""
        for key, made in portion:
            if made.completion.error_reason is not None:
                self._failed[key] += made.completion.attempts
            else:
                row = self._row(key, made)
                self._unmerged[key] = row
                if self._journal is not None:
                    self._journal.completed(row)

    def keep(self, found: Mapping[Key, CompletionRecord]) -> None:
        """Takes completions of the store into the run's own, for `merge`: who reads a run sees all that it was answered."""
        known = self._known[1]
        for key, made in found.items():
            self._unmerged[key] = known[key] = self._row(key, made) | {"start": REUSED}

    def merge(self) -> None:
        """Puts the completions that lie in journals into the shard's folder as one file, and removes the journals."""
        lost = self._newly_lost + self._failed
        rows = [row | {"lost": lost[key]} for key, row in self._unmerged.items()]
        rows += [key._asdict() | {"lost": sends} for key, sends in lost.items() if key not in self._unmerged]
        if rows:
            write_rows(self._storage, f"{shard_folder(self._shard)}/{uuid.uuid4().hex}.parquet", rows)
        if self._journal is not None and self._keeper is not None:
            self._keeper.release(self._journal)
            self._journal = None
        folder = journal_folder(self._storage, self._shard)
        for name in self._read:
            (folder / name).unlink(missing_ok=True)

    @cached_property
    def _known(self) -> tuple[dict[Key, dict[str, Any]], dict[Key, dict[str, Any]]]:
        """Returns what `_stored` does, read once; rows of journals are merged with the others."""
        merged, found = self._stored()
        self._unmerged |= {key: row for key, row in found.items() if key not in merged}
        return merged, found

    def _stored(self) -> tuple[dict[Key, dict[str, Any]], dict[Key, dict[str, Any]]]:
        """Returns the rows of the shard's folder, and those of journals; counts what was lost."""
        merged: dict[Key, dict[str, Any]] = {}
        found: dict[Key, dict[str, Any]] = {}
        for entry in self._storage.list(shard_folder(self._shard)):
            if entry.key.endswith(".parquet"):
                for row in read_rows(self._storage, entry.key):
                    self.lost[row_key(row)] += row["lost"] or 0
                    merged |= {row_key(row): row} if row["text"] is not None else {}
        found |= {row_key(row): row for row in read_unsaved(self._storage, self._shard)}
        folder = journal_folder(self._storage, self._shard)
        sends: Counter[Key] = Counter()
        for path in sorted(folder.glob(f"*{ENDING}")):
            if self._journal is None or path != self._journal.path:
                self._read.append(path.name)
                rows, sent = read_journal(path)
                found |= rows
                sends += sent
        for key, count in sends.items():
            if key not in merged:
                answered = found[key]["attempts"] if key in found else 0
                self._newly_lost[key] += max(0, count - answered)
        self.lost += self._newly_lost
        return merged, found

    def _row(self, key: Key, made: CompletionRecord) -> dict[str, Any]:
        c = made.completion
        return {
            **key._asdict(), "prompt": made.prompt, "text": c.text, "finish_reason": c.finish_reason, "model": c.model,
            **{name: getattr(c, name) for name in TOKENS}, "usage": c.usage, "seconds": c.seconds,
            "device_seconds": c.seconds * self._gpus, "attempts": c.attempts, "start": self._start, "lost": 0,
            "latency": c.latency, "left_out": c.left_out, "tier": c.tier,
        }  # fmt: skip


def uncommitted(storage: Storage, committed: Container[int]) -> list[dict[str, Any]]:
    """Returns the rows of COMPLETIONS that earlier starts have paid for and that no committed shard accounts for."""
    rows: dict[Key, dict[str, Any]] = {}
    for shard in sorted(number for number in stored_shards(storage) if number not in committed):
        merged, found = Completions(storage, shard, 0, 0.0)._stored()
        rows |= found | merged
    return list(rows.values())


def record_of(row: Mapping[str, Any]) -> CompletionRecord:
    """Returns a row of COMPLETIONS."""
    values = {name: value for name, value in row.items() if name not in _ROW_ONLY}
    prompt, start, device_seconds = values.pop("prompt"), values.pop("start"), values.pop("device_seconds")
    return CompletionRecord(Completion(**values), prompt, start, device_seconds)
