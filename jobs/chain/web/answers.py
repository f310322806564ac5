"""What the web has answered: in journals as it comes, in the run's folder, and in the store.

An answer is known by what is asked of the provider and by the text as it was sent. In the store it lies under the query_id of
each query that asked it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.storage import Storage
from jobs.chain.fill import Portion
from jobs.chain.journal import (
    ENDING,
    OF_THE_WEB,
    JournalKeeper,
    journal_folder,
    read_entries,
    read_rows,
    read_unsaved,
    shard_folder,
    write_rows,
)
from jobs.chain.store.files import Space, StoreFiles
from jobs.tables import WEB_ANSWERS
from retrievers.web.hits import WebHit
from retrievers.web.retriever import FailedSearch, PartialAnswer, WebAnswer

SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("search", pa.string()),  # digest of `text`
        ("text", pa.string()),
        WEB_ANSWERS.field("hits"),
    ]
)


class WebKey(NamedTuple):
    """An answer: the space of what is asked of the provider, and the text as it is sent."""

    space: str
    text: str


class WebJournal:
    """What a run has asked the web for one shard, in all attempts at it. Failed searches are not kept: they are asked again."""

    def __init__(self, storage: Storage, shard: int, keeper: JournalKeeper) -> None:
        self._storage, self._shard, self._keeper = storage, shard, keeper
        self._journal = keeper.open(shard)
        self._unmerged: dict[WebKey, dict[str, Any]] = {}
        self._read: list[str] = []  # journals of earlier attempts
        self.lost: Counter[WebKey] = Counter()
        """How often each text was sent, by attempts that were killed, without an answer that was kept."""

    @cached_property
    def known(self) -> dict[WebKey, dict[str, Any]]:
        """The answers of earlier attempts, read once: rows of WEB_ANSWERS."""
        found: dict[WebKey, dict[str, Any]] = {}
        for entry in self._storage.list(shard_folder(self._shard, OF_THE_WEB)):
            for row in read_rows(self._storage, entry.key, WEB_ANSWERS) if entry.key.endswith(".parquet") else ():
                self.lost[_key(row)] += row["lost"]
                found |= {_key(row): row} if row["hits"] is not None else {}
        merged, folder, sends = set(found), journal_folder(self._storage, self._shard, OF_THE_WEB), Counter[WebKey]()
        rows = read_unsaved(self._storage, self._shard, OF_THE_WEB)
        for path in sorted(folder.glob(f"*{ENDING}")):
            if path != self._journal.path:
                self._read.append(path.name)
                answered, sent = read_entries(path)
                rows += answered
                for key, count in sent.items():
                    sends[WebKey(*key)] += count
        found |= {_key(row): row for row in rows}
        for key, count in sends.items():
            lost = max(0, count - (found[key]["requests"] if key in found else 0)) if key not in merged else 0
            self.lost[key] += lost
            if lost and key not in found:
                self._unmerged[key] = key._asdict() | {"hits": None, "requests": 0, "lost": lost}
        self._unmerged |= {key: row | {"lost": self.lost[key]} for key, row in found.items() if key not in merged}
        return found

    def sent(self, key: WebKey) -> None:
        """Records that a text is about to be sent; any thread may call it."""
        self._journal.sent(key)

    def put(self, row: dict[str, Any]) -> None:
        """Records an answer."""
        self.known[_key(row)] = row
        self._unmerged[_key(row)] = row | {"lost": self.lost[_key(row)]}
        self._journal.completed(row)

    def merge(self) -> None:
        """Puts what lies in journals into the shard's folder as one file, and removes the journals."""
        if self._unmerged:
            key = f"{shard_folder(self._shard, OF_THE_WEB)}/{uuid.uuid4().hex}.parquet"
            write_rows(self._storage, key, list(self._unmerged.values()), WEB_ANSWERS)
        self._keeper.release(self._journal)
        folder = journal_folder(self._storage, self._shard, OF_THE_WEB)
        for name in self._read:
            (folder / name).unlink(missing_ok=True)


class WebAnswers:
    """The answers to the texts of a shard by one provider; a `jobs.chain.fill.Store` of texts as they are sent."""

    def __init__(self, files: StoreFiles, space: Space, of_shard: WebJournal) -> None:
        self._files, self._space, self._of_shard = files, space, of_shard
        self._asked_by: dict[str, dict[str, None]] = {}
        self._stored: set[tuple[str, str]] = set()  # query_id and text of rows in the store
        self._rows: dict[str, dict[str, Any]] = {}  # text -> its answer
        self._partial: set[str] = set()
        self.made: set[str] = set()
        """Texts that this run has asked, whether they were answered or not."""
        self.requests: Counter[str] = Counter()
        """Sends of each text, without those that a kill has lost."""

    def asked_by(self, asked: Mapping[str, Sequence[str]]) -> None:
        """Notes which queries ask for texts (text -> query_ids): in the store an answer is looked for, and lies, under each."""
        for text, query_ids in asked.items():
            self._asked_by.setdefault(text, {}).update(dict.fromkeys(query_ids))

    def get(self, keys: Sequence[str]) -> dict[str, WebAnswer]:
        """Returns the answers of these texts: those that this run has asked for first."""
        for text in keys:
            row = self._of_shard.known.get(WebKey(self._space.name, text))
            if row is not None and text not in self._rows:
                self._rows[text] = row
                self.made.add(text)
                self.requests[text] = row["requests"]
        wanted = {text for text in keys if text not in self._rows}
        query_ids = [query_id for text in wanted for query_id in self._asked_by.get(text, ())]
        if query_ids and self._space in self._files.names:
            for row in self._files.rows(self._space, SCHEMA, query_ids).to_pylist():
                text = row["text"]
                if text in wanted:
                    self._stored.add((row["query_id"], text))
                    self._rows.setdefault(text, row)
        return {text: _hits(self._rows[text]) for text in keys if text in self._rows}

    def sent(self, text: str) -> None:
        """Records that a text is about to be sent; any thread may call it."""
        self.requests[text] += 1
        self._of_shard.sent(WebKey(self._space.name, text))

    def put(self, portion: Portion[str, WebAnswer]) -> None:
        """Writes answers to the journal; failed searches are none."""
        for text, answer in portion:
            if not text:
                continue
            self.made.add(text)
            if not isinstance(answer, FailedSearch):
                hits = [hit._asdict() for hit in answer]
                row = WebKey(self._space.name, text)._asdict()
                row |= {"hits": hits, "requests": self.requests[text], "lost": 0}
                self._rows[text] = row
                self._of_shard.put(row)
            if isinstance(answer, PartialAnswer):
                self._partial.add(text)

    def lost(self, texts: Sequence[str]) -> int:
        """Returns how often these texts were sent by attempts that were killed, without an answer that was kept."""
        return sum(self._of_shard.lost[WebKey(self._space.name, text)] for text in texts)

    def save(self) -> None:
        """Puts the answers into the store, under each query that asked them and has none there; partial ones stay out."""
        if self._space not in self._files.names:
            return
        rows = [
            {"query_id": query_id, "search": text_key(text), "text": text, "hits": row["hits"]}
            for text, row in self._rows.items()
            if text not in self._partial
            for query_id in self._asked_by.get(text, ())
            if (query_id, text) not in self._stored
        ]
        self._files.put(self._space, pa.Table.from_pylist(rows, SCHEMA))


def text_key(text: str) -> str:
    """Returns 32 hex digits of a text as it is sent."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _key(row: Mapping[str, Any]) -> WebKey:
    return WebKey(row["space"], row["text"])


def _hits(row: Mapping[str, Any]) -> tuple[WebHit, ...]:
    return tuple(WebHit(**hit) for hit in row["hits"])
