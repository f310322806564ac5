"""What the web has answered: in journals as it comes, in the run's folder, and in the store.

An answer is known by what is asked of the provider and by the text as it was sent. In the store it lies under the query_id of
each query that asked it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.chain.fill import Portion
from jobs.chain.journal import ShardJournal
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


class WebAnswers:
    """The answers to the texts of a shard by one provider; a `jobs.chain.fill.Store` of texts as they are sent."""

    def __init__(self, files: StoreFiles, space: Space, of_shard: ShardJournal) -> None:
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
            row = self._of_shard.known.get((self._space.name, text))
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
        self._of_shard.sent((self._space.name, text))

    def put(self, portion: Portion[str, WebAnswer]) -> None:
        """Writes answers to the journal; failed searches are none."""
        for text, answer in portion:
            if not text:
                continue
            self.made.add(text)
            if not isinstance(answer, FailedSearch):
                hits = [hit._asdict() for hit in answer]
                row = {"space": self._space.name, "text": text, "hits": hits, "requests": self.requests[text], "lost": 0}
                self._rows[text] = row
                self._of_shard.put(row)
            if isinstance(answer, PartialAnswer):
                self._partial.add(text)

    def lost(self, texts: Sequence[str]) -> int:
        """Returns how often these texts were sent by attempts that were killed, without an answer that was kept."""
        return sum(self._of_shard.lost[self._space.name, text] for text in texts)

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


def _hits(row: Mapping[str, Any]) -> tuple[WebHit, ...]:
    return tuple(WebHit(**hit) for hit in row["hits"])
