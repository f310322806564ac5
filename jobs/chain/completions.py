"""The run's own store of completions, written as soon as they are made."""

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.costs import Totals
from cluster.storage import Storage
from jobs.chain.journal import OF_MODELS, JournalKeeper, Key, ShardJournal, journal_folder
from rewriters.engines import Completion

REUSED = -1  # the start that made a completion of the store: none of this run
_ROW_ONLY = (*Key._fields, "lost")  # columns of a row that are no fields of a CompletionRecord


class CompletionRecord(NamedTuple):
    """A completion with its prompt and the start of the run that made it (0: this call, not yet stored; `REUSED`: none)."""

    completion: Completion
    prompt: str = ""
    start: int = 0
    device_seconds: float = 0.0


class Completions(ShardJournal):
    """The completions of one shard. Failed ones are not stored: the next start retries them."""

    def __init__(self, storage: Storage, shard: int, start: int, gpus: float, keeper: JournalKeeper | None = None) -> None:
        """Opens the store; reads nothing."""
        super().__init__(storage, shard, OF_MODELS, keeper)
        self._start, self._gpus = start, gpus
        self.spent: Totals = {}
        """The cost of engines for this attempt at the shard."""

    def get(self, keys: Sequence[Key]) -> dict[Key, CompletionRecord]:
        """Returns the stored completions of these keys, of earlier attempts at the shard as well."""
        return {key: record_of(self.known[key]) for key in keys if key in self.known}

    def rows(self) -> list[dict[str, Any]]:
        """Returns all stored completions of the shard, as rows of COMPLETIONS."""
        return list(self.known.values())

    def put(self, key: Key, record: CompletionRecord) -> None:
        """Writes a successful completion to the journal."""
        if record.completion.error_reason is not None:
            self.failed(key, record.completion.attempts)
        else:
            self.record(self._row(key, record))

    def keep(self, stored: Mapping[Key, CompletionRecord]) -> None:
        """Takes completions of the store into the run's own, for `merge`: who reads a run sees all that it was answered."""
        for key, record in stored.items():
            self.record(self._row(key, record) | {"start": REUSED}, journaled=False)

    def _row(self, key: Key, record: CompletionRecord) -> dict[str, Any]:
        return {
            **vars(record.completion), **key._asdict(), "prompt": record.prompt, "start": self._start, "lost": 0,
            "device_seconds": record.completion.seconds * self._gpus,
        }  # fmt: skip


def uncommitted(storage: Storage, committed: Container[int]) -> list[dict[str, Any]]:
    """Returns the rows of COMPLETIONS that earlier starts have paid for and that no committed shard accounts for."""
    local = journal_folder(storage, 0).parent
    names = {path.name for path in local.iterdir()} if local.is_dir() else set()
    names |= {entry.key.split("/")[1] for entry in storage.list(OF_MODELS.folder)}
    shards = sorted({int(name) for name in names if name.isdecimal()})
    return [row for shard in shards if shard not in committed for row in Completions(storage, shard, 0, 0.0).rows()]


def record_of(row: Mapping[str, Any]) -> CompletionRecord:
    """Returns a row of COMPLETIONS."""
    values = {name: value for name, value in row.items() if name not in _ROW_ONLY}
    prompt, start, device_seconds = values.pop("prompt"), values.pop("start"), values.pop("device_seconds")
    return CompletionRecord(Completion(**values), prompt, start, device_seconds)
