"""The searches of a block by one retriever: of an index, or of the web. What is known is not searched again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from cluster import costs
from cluster.run.stage import heartbeat
from jobs.chain.arms.opened import OpenedBy
from jobs.chain.fill import fill
from jobs.chain.journal import ShardJournal
from jobs.chain.store.facts import Searched, StoredLists
from jobs.chain.store.files import Space, StoreFiles
from jobs.chain.web.answers import WebAnswers
from jobs.chain.web.search import search_web
from jobs.job.opening import open_retriever
from jobs.tables import LOST
from retrievers.retriever import JoinedText, RankedList, Retriever, SearchText, single_lists
from retrievers.web.hits import WebHit
from retrievers.web.retriever import FailedSearch, PartialAnswer, Web, ranked_list

Wanted = SearchText | JoinedText


def opened_retriever(one: OpenedBy, device: str) -> Retriever:
    """Returns an open retriever."""
    return open_retriever(one.name, one.settings, device=device, expect_identity=one.identity)


class Searches(Protocol):
    """The searches of a block by one retriever.

    Attributes:
        made: Those that were made, by the first query that asked each.
        alike: Those that needed none of their own, since another one asks the same.
        known: Lists that an earlier stage has made, and charged.
    """

    made: set[Searched]
    alike: set[Searched]
    known: Mapping[Wanted, RankedList]

    @property
    def host(self) -> str | None:
        """Returns the host of the server; None: its searches are no requests that count."""

    @property
    def lost(self) -> int:
        """Returns how often texts were sent by attempts that were killed, without an answer that was kept."""

    def __call__(self, wanted: Mapping[Wanted, Sequence[str]]) -> list[RankedList]:
        """Returns the list of each search; `wanted` has the query_ids that ask it."""

    def requests(self, one: Searched) -> int:
        """Returns how often the text of a search was sent, where such requests count."""

    def save(self) -> None:
        """Stores what was found."""


class IndexSearches:
    """Searches of an index."""

    host, lost = None, 0

    def __init__(
        self,
        opened: OpenedBy,
        retriever: Retriever,
        files: StoreFiles,
        known: Mapping[Wanted, RankedList] = MappingProxyType({}),
    ) -> None:
        """Searches nothing yet; `known`: lists that an earlier stage has made."""
        self._retriever, self._depth, self.known = retriever, opened.depth, known
        self._store = StoredLists(files, Space("lists", opened.space))
        self.made: set[Searched] = set()
        self.alike: set[Searched] = set()

    def __call__(self, wanted: Mapping[Wanted, Sequence[str]]) -> list[RankedList]:
        """Returns the list of each search; those that are not stored are searched for."""

        def compute(missing: list[Searched]) -> list[list[tuple[Searched, RankedList]]]:
            self.made.update(missing)
            lists = single_lists(self._retriever.search([one.search for one in missing], self._depth, heartbeat))
            return [list(zip(missing, lists, strict=True))]

        asked = [Searched(query_ids[0], search) for search, query_ids in wanted.items()]
        self._store.in_hand |= {one: self.known[one.search] for one in asked if one.search in self.known}
        return fill(self._store, asked, compute)

    def requests(self, one: Searched) -> int:
        """Returns 0."""
        return 0

    def save(self) -> None:
        """Stores the lists."""
        self._store.save()


class WebSearches:
    """Searches of the web; texts that are sent alike are one."""

    def __init__(self, opened: OpenedBy, web: Web, files: StoreFiles, of_shard: ShardJournal) -> None:
        self.web, self.name, self.host = web, opened.name, web.host
        self.answers = WebAnswers(files, Space("web", opened.space), of_shard)
        self.made: set[Searched] = set()
        self.alike: set[Searched] = set()
        self.known: Mapping[Wanted, RankedList] = {}
        self.hits: dict[Wanted, tuple[WebHit, ...]] = {}
        """Of each search, best first; of a failed one none."""
        self.failed: dict[Wanted, FailedSearch] = {}
        self.silent: dict[Wanted, str] = {}
        """Search engines that did not answer, of partial lists."""
        self._first: dict[str, Searched] = {}  # text as it is sent -> the first search that sends it

    def __call__(self, wanted: Mapping[Wanted, Sequence[str]]) -> list[RankedList]:
        """Returns the list of each search, of a failed one an empty list; those that are not known are asked for."""
        asked: dict[str, list[str]] = {}
        for search, query_ids in wanted.items():
            text, one = self.web.sent(search), Searched(query_ids[0], search)
            asked.setdefault(text, []).extend(query_ids)
            if self._first.setdefault(text, one) != one:
                self.alike.add(one)
        found = search_web(self.web, self.answers, asked)
        self.made |= {self._first[text] for text in asked if text in self.answers.made}
        for search in wanted:
            answer = found[self.web.sent(search)]
            if isinstance(answer, FailedSearch):
                self.failed[search] = answer
            if isinstance(answer, PartialAnswer):
                self.silent[search] = answer.silent
            self.hits[search] = () if isinstance(answer, FailedSearch) else answer
        return [ranked_list(self.hits[search]) for search in wanted]

    def requests(self, one: Searched) -> int:
        """Returns how often the text of a search was sent."""
        return self.answers.requests[self.web.sent(one.search)]

    @property
    def lost(self) -> int:
        """Returns how often its texts were sent by attempts that were killed, without an answer that was kept."""
        return self.answers.lost(list(self._first))

    def save(self) -> None:
        """Stores the answers."""
        self.answers.save()


def charge(
    opened: OpenedBy,
    by: Searches,
    wanted: Sequence[Searched],
    query_ids: Sequence[str],
    texts: Mapping[int, int],
    seconds: float,
    shares: Sequence[float],
    spent: list[list[dict[str, Any]]],
    stage: str = "retrieve",
) -> None:
    """Appends an entry to each query that searched: its searches, and the lists that were stored.

    Args:
        opened: The retriever.
        by: Its searches.
        wanted: Those that are counted.
        query_ids: Of the block.
        texts: In a job of one arm: row -> what it was to be searched with. What of it needed no search is saved.
        seconds: Of all searches.
        shares: In them, of each name of `search_names`.
        spent: Costs of the block, row by row.
        stage: The value of `costs.stage`.
    """
    rows = {query_id: row for row, query_id in enumerate(query_ids)}
    made = [one for one in wanted if one in by.made]
    searches, reused = Counter(rows[one.query_id] for one in made), Counter(rows[one.query_id] for one in wanted)
    reused.subtract(searches)
    requests = Counter[int]()
    for one in made:
        requests[rows[one.query_id]] += by.requests(one)
    for (counted, model), share in zip(opened.search_names.items(), shares, strict=True):
        each = seconds * share / max(1, len(by.made))
        for row in searches.keys() | reused.keys() | texts.keys():
            n, old = searches[row], reused[row]
            values: dict[str, Any] = {"searches": n, "saved": texts[row] - n - old if row in texts else 0, "reused": old}
            values |= {"requests": requests[row], "model": model, "provider": by.host}
            spent[row].append(costs.entry(stage, counted, each * n, **values))
        if by.lost:
            values = {"attempt": by.lost, "requests": by.lost, "error": LOST, "model": model, "provider": by.host}
            spent[0].append(costs.entry(stage, counted, **values))
