"""Journals: files on this machine that hear of each send before it is made, and of each answer at once.

What was written to a file survives the kill of its process, so a kill loses what was in flight and no more. To survive the
loss of the machine, a `JournalKeeper` saves the journals of a worker now and then: those on a file system are synced, and to
the folder of a shard on object storage goes a file with what is new in its journal.
"""

import hashlib
import json
import logging
import os
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.http import encodable
from cluster.storage import Storage, remote
from cluster.storage.copies import KEPT_DAYS, cache_folder, usable
from jobs.tables import COMPLETIONS, WEB_ANSWERS

_log = logging.getLogger(f"dmqr.{__name__}")
Row = dict[str, Any]


class Journaled(NamedTuple):
    """A kind of answers that is journaled.

    Attributes:
        folder: In a run's.
        schema: Of its rows.
        key: The columns by which an answer is known.
        answer: The column that is null where no answer came.
        sends: That counts how often an answer was asked for.
    """

    folder: str
    schema: pa.Schema
    key: tuple[str, ...]
    answer: str
    sends: str


UNSAVED_SECONDS = 30.0  # longest time that an answer lies on the worker's machine alone
ENDING = ".jsonl"
_STOPPING_SECONDS = 2.0  # between two times while the run stops


class Key(NamedTuple):
    """The key of a completion within a run."""

    query_id: str
    request: str
    prompt_hash: str
    sample: int = 0
    variables: str = ""


OF_MODELS = Journaled("completions", COMPLETIONS, Key._fields, "text", "attempts")
OF_THE_WEB = Journaled("web_answers", WEB_ANSWERS, ("space", "text"), "hits", "requests")


class Journal:
    """One attempt at a shard. Threads may share it."""

    def __init__(self, path: Path, shard: int) -> None:
        self.path, self.shard = path, shard
        self.saved = 0  # bytes whose rows are in `files`
        self.files: list[str] = []  # in the shard's folder on object storage, until the answers are merged
        self.saving = threading.Lock()
        self._file = os.open(
            path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o666
        )  # as the umask has it, like all files of a run
        self._lock, self._cut_off = threading.Lock(), False

    def sent(self, key: tuple[Any, ...]) -> None:
        """Records that a request is about to be sent."""
        self._append({"sent": key})

    def completed(self, row: dict[str, Any]) -> None:
        """Records an answer: a row of `Journaled.schema`."""
        self._append({"row": row})

    def sync(self) -> None:
        """Makes what was written durable on its disk."""
        os.fsync(self._file)

    def unsaved(self) -> tuple[list[dict[str, Any]], int]:
        """Returns the rows after the first `saved` bytes, and the number of bytes that are saved with them."""
        data = os.pread(self._file, os.fstat(self._file).st_size - self.saved, self.saved)
        whole = data[: data.rfind(b"\n") + 1]
        return [entry["row"] for entry in _entries(whole) if "row" in entry], self.saved + len(whole)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _append(self, entry: dict[str, Any]) -> None:
        data = json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        with self._lock:
            left = memoryview(b"\n" + data if self._cut_off else data)  # a line that a full disk cut off is one of its own
            while left:
                written = os.write(self._file, left)
                self._cut_off = written < len(left)
                left = left[written:]


def read_journal(path: Path) -> tuple[list[dict[str, Any]], Counter[tuple[Any, ...]]]:
    """Returns the answers of a journal, and how often each key was sent; a line that a kill cut off is left out."""
    rows: list[dict[str, Any]] = []
    sends: Counter[tuple[Any, ...]] = Counter()
    for entry in _entries(path.read_bytes()):
        if "row" in entry:
            rows.append(entry["row"])
        elif "sent" in entry:
            sends[tuple(entry["sent"])] += 1
    return rows, sends


def write_rows(storage: Storage, key: str, rows: list[dict[str, Any]], schema: pa.Schema = COMPLETIONS) -> None:
    """Stores rows as one Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
    storage.put(key, sink.getvalue().to_pybytes())


def read_rows(storage: Storage, key: str, schema: pa.Schema = COMPLETIONS) -> list[dict[str, Any]]:
    """Returns the rows of a file of COMPLETIONS."""
    with storage.open(key) as file:
        rows: list[dict[str, Any]] = pq.read_table(file, schema=schema).to_pylist()
    return rows


def shard_folder(shard: int, kind: Journaled = OF_MODELS) -> str:
    """Returns the folder of a shard's answers."""
    return f"{kind.folder}/{shard:06d}"


def journal_folder(storage: Storage, shard: int, kind: Journaled = OF_MODELS) -> Path:
    """Returns the folder of a shard's journals: in the run's folder, or on this machine where that is on object storage."""
    if not remote(storage.root):
        return Path(storage.url(shard_folder(shard, kind)))
    run = hashlib.sha256(storage.root.encode()).hexdigest()[:32]
    return _local_journals() / run / ("" if kind is OF_MODELS else kind.folder) / f"{shard:06d}"


def remove_journals(storage: Storage) -> None:
    """Removes a finished run's journals from this machine, and those of runs that nobody went on with."""
    if not remote(storage.root):
        return
    shutil.rmtree(journal_folder(storage, 0).parent, ignore_errors=True)
    for run in _local_journals().glob("*"):
        if time.time() - run.stat().st_mtime > KEPT_DAYS * 86_400:
            shutil.rmtree(run, ignore_errors=True)


def _local_journals() -> Path:
    return cache_folder() / "journals"


class JournalKeeper:
    """Opens the journals of one worker, and saves them at intervals."""

    def __init__(
        self,
        storage: Storage,
        stopping: Callable[[], bool] = lambda: False,
        kind: Journaled = OF_MODELS,
        seconds: float = UNSAVED_SECONDS,
    ) -> None:
        """Starts the thread that saves.

        Args:
            storage: the run's folder.
            stopping: returns whether the run stops, so that this process may end soon.
            kind: what the journals hold.
            seconds: between two times; the loss of a machine loses no more than this, apart from what was in flight.
        """
        self._of = kind
        self._storage, self._seconds, self._stopping = storage, seconds, stopping
        self._lock = threading.Lock()
        self._open: dict[Path, Journal] = {}
        self._ended = threading.Event()
        threading.Thread(target=self._save_periodically, name="journals", daemon=True).start()

    def open(self, shard: int) -> Journal:
        """Returns a new journal."""
        folder = journal_folder(self._storage, shard, self._of)
        if remote(self._storage.root):
            with usable(folder):
                pass
        else:
            folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(folder / f"{uuid.uuid4().hex}{ENDING}", shard)
        with self._lock:
            self._open[journal.path] = journal
        return journal

    def release(self, journal: Journal) -> None:
        """Removes a journal whose answers are in the shard's folder now, and the files that have a part of them."""
        with journal.saving:
            with self._lock:
                del self._open[journal.path]
            journal.close()
        journal.path.unlink(missing_ok=True)
        self._storage.delete(*journal.files)

    def close(self) -> None:
        """Stops the thread; open journals stay."""
        self._ended.set()

    def save(self) -> None:
        """Saves what is new in the open journals."""
        with self._lock:
            journals = [*self._open.values()]
        for journal in journals:
            with journal.saving:
                if journal.path in self._open and journal.path.exists():  # neither released nor merged by a later attempt
                    self._save(journal)

    def _save(self, journal: Journal) -> None:
        if not remote(self._storage.root):
            journal.sync()
            return
        rows, size = journal.unsaved()
        if rows:
            key = f"{shard_folder(journal.shard, self._of)}/{uuid.uuid4().hex}.parquet"
            write_rows(self._storage, key, [row | {"lost": None} for row in rows], self._of.schema)
            journal.files.append(key)
            journal.saved = size

    def _save_periodically(self) -> None:
        saved, failing = time.monotonic(), None
        while not self._ended.wait(min(self._seconds, _STOPPING_SECONDS)):
            if time.monotonic() - saved < self._seconds and not self._stopping():
                continue
            saved = time.monotonic()
            try:
                self.save()
            except Exception as error:  # whatever it is: the next save may succeed, and without a thread none would
                if failing is None:
                    self._say_unsaved(error)
                failing = failing or saved
            else:
                if failing is not None:
                    _log.warning("%s are saved again, after %.0f s", self._of.folder, saved - failing)
                failing = None

    def _say_unsaved(self, error: Exception) -> None:
        where = self._storage.root if remote(self._storage.root) else "the disk"
        reason = encodable(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        _log.warning("%s cannot be saved to %s (%s): the loss of this machine would lose them", self._of.folder, where, reason)


class ShardJournal:
    """The answers of one shard, of all attempts at it, and how often each request was sent without an answer.

    An answer is written to a journal at once. `merge` puts all that lie in journals into one file of the shard's folder.
    """

    def __init__(self, storage: Storage, shard: int, kind: Journaled, keeper: JournalKeeper | None) -> None:
        """Reads nothing; without a keeper answers, which cost nothing, wait in memory for `merge`."""
        self._storage, self._shard, self._of, self._keeper = storage, shard, kind, keeper
        self._journal = None if keeper is None else keeper.open(shard)
        self._unmerged: dict[tuple[Any, ...], Row] = {}
        self._read: list[str] = []  # journals of earlier attempts
        self._saved: list[str] = []  # files of answers of attempts that did not end, in the shard's folder
        self._newly_lost: Counter[tuple[Any, ...]] = Counter()  # by those journals, and by this attempt
        self.lost: Counter[tuple[Any, ...]] = Counter()
        """Request -> its sends by attempts that were killed, without an answer that was kept."""

    @cached_property
    def known(self) -> dict[tuple[Any, ...], Row]:
        """The answers by their keys: those of earlier attempts, read once, and those that were put since."""
        merged: dict[tuple[Any, ...], Row] = {}
        unmerged: dict[tuple[Any, ...], Row] = {}
        for entry in self._storage.list(shard_folder(self._shard, self._of)):
            rows = read_rows(self._storage, entry.key, self._of.schema) if entry.key.endswith(".parquet") else []
            for row in rows:
                self.lost[self._key(row)] += row["lost"] or 0
                if row[self._of.answer] is not None:
                    (unmerged if row["lost"] is None else merged)[self._key(row)] = row
            if rows and rows[0]["lost"] is None:
                self._saved.append(entry.key)
        sends: Counter[tuple[Any, ...]] = Counter()
        for path in sorted(journal_folder(self._storage, self._shard, self._of).glob(f"*{ENDING}")):
            if self._journal is None or path != self._journal.path:
                self._read.append(path.name)
                rows, sent = read_journal(path)
                unmerged |= {self._key(row): row for row in rows}
                sends += sent
        for key, count in sends.items():
            answered = unmerged[key][self._of.sends] if key in unmerged else 0
            self._newly_lost[key] += 0 if key in merged else max(0, count - answered)
        self.lost += self._newly_lost
        self._unmerged |= {key: row for key, row in unmerged.items() if key not in merged}
        return {key: row for key, row in (unmerged | merged).items() if row[self._of.answer] is not None}

    def sent(self, key: tuple[Any, ...]) -> None:
        """Records that a request is about to be sent; any thread may call it."""
        if self._journal is not None:
            self._journal.sent(key)

    def record(self, row: Row, journaled: bool = True) -> None:
        """Records an answer; one that need not survive a kill is not journaled."""
        self.known[self._key(row)] = self._unmerged[self._key(row)] = row
        if self._journal is not None and journaled:
            self._journal.completed(row)

    def failed(self, key: tuple[Any, ...], sends: int) -> None:
        """Records that this attempt has sent a request without an answer: it is lost if the shard is repeated."""
        self._newly_lost[key] += sends

    def merge(self) -> None:
        """Puts what lies in journals into the shard's folder as one file, and removes the journals."""
        lost = self._newly_lost
        rows = [row | {"lost": lost[key]} for key, row in self._unmerged.items()]
        rows += [
            dict.fromkeys(self._of.schema.names) | dict(zip(self._of.key, key, strict=True)) | {"lost": sends}
            for key, sends in lost.items() if sends and key not in self._unmerged
        ]  # fmt: skip
        if rows:
            key = f"{shard_folder(self._shard, self._of)}/{uuid.uuid4().hex}.parquet"
            write_rows(self._storage, key, rows, self._of.schema)
        if self._journal is not None and self._keeper is not None:
            self._keeper.release(self._journal)
            self._journal = None
        folder = journal_folder(self._storage, self._shard, self._of)
        for name in self._read:
            (folder / name).unlink(missing_ok=True)
        self._storage.delete(*self._saved)

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._of.key)


def _entries(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        with suppress(ValueError):
            entry = json.loads(line.decode("utf-8", "surrogatepass"))
            if isinstance(entry, dict):
                yield entry
