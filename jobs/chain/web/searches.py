"""Searches of the web: answers in journals as they come, in the run's folder, and in the store.

An answer is known by what is asked of the provider and by the text as it was sent. In the store it lies under the query_id of
each query that asked it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cluster.run.stage import heartbeat
from jobs.chain.arms.resources import OpenedBy
from jobs.chain.journal import ShardJournal
from jobs.chain.store.facts import Searched, text_digest
from jobs.chain.store.files import Space, StoreFiles
from jobs.tables import WEB_ANSWERS
from retrievers.retriever import JoinedText, RankedList, SearchText
from retrievers.web.hits import WebHit
from retrievers.web.retriever import FailedSearch, PartialAnswer, Web, WebAnswer, ranked_list

SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("search", pa.string()),  # digest of `text`
        ("text", pa.string()),
        WEB_ANSWERS.field("hits"),
    ]
)


class WebSearches:
    """The searches of a block by one provider; texts that are sent alike are one.

    Attributes:
        web: The search engine.
        name: Of the retriever, in messages.
        host: Of the server.
        known: Lists that an earlier stage has made: none.
        executed: Searches that this run has made, by the first query that asked each.
        alike: Those that needed none of their own: others send the same, in this block or before it.
        asked: Texts that this run has sent, whether they were answered or not.
        sends: Of each text, without those that a kill has lost.
    """

    def __init__(
        self,
        opened: OpenedBy,
        web: Web,
        files: StoreFiles,
        journal: ShardJournal,
        asking: str,
        charged: Collection[str] = (),
    ) -> None:
        """Asks nothing yet.

        Args:
            opened: The retriever.
            web: Open.
            files: Of the store.
            journal: Of the shard.
            asking: The stage, or the round, and the retriever.
            charged: Texts that an earlier stage has sent, with what was lost of them.
        """
        self.web, self.name, self.host, self._opened, self._asking = web, opened.name, web.host, opened, asking
        self._files, self._space, self._journal, self._charged = files, Space("web", opened.space), journal, charged
        self.known: Mapping[SearchText | JoinedText, RankedList] = {}
        self.executed, self.alike = set[Searched](), set[Searched]()
        self.asked, self.sends = set[str](), Counter[str]()
        self._first: dict[str, Searched] = {}  # text as it is sent -> the first search that sends it
        self._query_ids: dict[str, dict[str, None]] = {}  # text -> query_ids that search it
        self._answers: dict[str, WebAnswer] = {}
        self._stored: set[tuple[str, str]] = set()  # query_id and text of rows in the store

    def __call__(self, wanted: Mapping[SearchText | JoinedText, Sequence[str]]) -> list[RankedList]:
        """Returns the list of each search, of a failed one an empty list; those that are not known are asked for.

        Each different text is sent once. What is answered is journaled as it comes.

        Raises:
            RetrieverError: No search succeeds: the key or the address.
        """
        for search, query_ids in wanted.items():
            text, searched = self.web.sent(search), Searched(query_ids[0], search)
            self._query_ids.setdefault(text, {}).update(dict.fromkeys(query_ids))
            if self._first.setdefault(text, searched) != searched:
                self.alike.add(searched)
        self._look_up([text for text in map(self.web.sent, wanted) if text not in self._answers])
        missing = list(dict.fromkeys(text for text in map(self.web.sent, wanted) if text not in self._answers))
        for number, (text, answer) in enumerate(self.web.find(missing, self._sending) if missing else (), start=1):
            self._answers[text] = answer
            if text:
                self.asked.add(text)
                self._record(text, answer)
            heartbeat(number / len(missing))
        self.executed |= {self._first[text] for text in map(self.web.sent, wanted) if text in self.asked}
        return [ranked_list(self.hits(search)) for search in wanted]

    def answer(self, search: SearchText | JoinedText) -> WebAnswer | None:
        """Returns the answer to a search; None: its text was not asked, as that of another has failed on the query."""
        return self._answers.get(self.web.sent(search))

    def hits(self, search: SearchText | JoinedText) -> tuple[WebHit, ...]:
        """Returns the hits of a search, best first; of a failed one none."""
        answer = self._answers[self.web.sent(search)]
        return () if isinstance(answer, FailedSearch) else answer

    def requests(self, searched: Searched) -> int:
        """Counts the times that the text of a search was sent."""
        return self.sends[self.web.sent(searched.search)]

    @property
    def lost(self) -> int:
        """Counts the times that its texts were sent by attempts that were killed, without an answer that was kept."""
        own = (text for text, one in self._first.items() if one not in self.alike and text not in self._charged)
        return sum(self._journal.lost[self._space.name, text] for text in own)

    def key(self, search: SearchText | JoinedText) -> str:
        """Returns the key of a search in the column `needed`: the text as it is sent."""
        return f"{self._space.name}/{self.web.sent(search)}"

    def save(self) -> None:
        """Puts the answers into the store, under each query that asked them and has none there; partial ones stay out."""
        if self._space not in self._files.names:
            return
        rows = [
            {"query_id": query_id, "search": text_digest(text).hex(), "text": text, "hits": [hit._asdict() for hit in answer]}
            for text, answer in self._answers.items()
            if text and not isinstance(answer, FailedSearch | PartialAnswer)
            for query_id in self._query_ids.get(text, ())
            if (query_id, text) not in self._stored
        ]
        self._files.put(self._space, pa.Table.from_pylist(rows, SCHEMA))

    def _look_up(self, texts: Sequence[str]) -> None:
        """Takes the answers to texts that this run was given before, and then those of the store."""
        for text in texts:
            if (row := self._journal.known.get((self._space.name, text))) is not None:
                self._answers[text] = _hits(row)
                if row["asked_by"] == self._asked_by(text):
                    self.asked.add(text)
                    self.sends[text] = row["requests"]
                else:  # it is the cost of another stage, round or part of the block
                    self.alike.add(self._first[text])
        wanted = {text for text in texts if text not in self._answers}
        query_ids = [query_id for text in wanted for query_id in self._query_ids[text]]
        if query_ids and self._space in self._files.names:
            for row in self._files.rows(self._space, SCHEMA, query_ids).to_pylist():
                if row["text"] in wanted:
                    self._stored.add((row["query_id"], row["text"]))
                    self._answers.setdefault(row["text"], _hits(row))

    def _sending(self, text: str) -> None:
        """Records that a text is about to be sent; any thread may call it."""
        self.sends[text] += 1
        self._journal.sent((self._space.name, text))

    def _record(self, text: str, answer: WebAnswer) -> None:
        """Journals an answer; failed searches and partial lists are none: who does the shard again asks again."""
        if isinstance(answer, FailedSearch | PartialAnswer):
            self._journal.failed((self._space.name, text), self.sends[text])
        else:
            hits = [hit._asdict() for hit in answer]
            row = {"space": self._space.name, "text": text, "hits": hits, "requests": self.sends[text], "lost": 0}
            self._journal.record(row | {"asked_by": self._asked_by(text)})

    def _asked_by(self, text: str) -> str:
        return f"{self._asking}/{self._first[text].query_id}"


def _hits(row: Mapping[str, Any]) -> tuple[WebHit, ...]:
    return tuple(WebHit(**hit) for hit in row["hits"])
