"""The searches of a block: each text is searched once by a retriever, whichever arms need it, unless its list is known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.run.stage import bear, charge_failure, heartbeat, shard_of, stopping
from cluster.storage import open_storage
from jobs.chain.arms.resources import OpenedBy, digest
from jobs.chain.journal import OF_THE_WEB, JournalKeeper, ShardJournal
from jobs.chain.lists import Found
from jobs.chain.search_texts import Text
from jobs.chain.store.facts import Searched, StoredLists, search_digest
from jobs.chain.store.files import Space, StoreFiles
from jobs.chain.web.searches import WebSearches
from jobs.chain.worker import WorkerJob
from jobs.job.retrievers import open_retriever
from jobs.tables import LOST, ORIGINAL, failure_row, unnested, with_appended, with_first
from retrievers.hybrid.retriever import search_shares
from retrievers.lists import TOGETHER
from retrievers.retriever import JoinedText, RankedList, Retriever, SearchText, joined_lists, single_lists
from retrievers.web.hits import WebHit
from retrievers.web.retriever import Web

Wanted = SearchText | JoinedText


def opened_retriever(plan: OpenedBy, device: str) -> Retriever:
    """Returns an open retriever."""
    return open_retriever(plan.name, plan.settings, device=device, expect_identity=plan.identity)


class RoutedSearch(NamedTuple):
    """The texts that some arms search.

    Attributes:
        retrievers: Their names in the arms -> keys.
        texts: Name of a retriever -> what it is searched with.
        arms: Strategies -> the arms that need the lists of their texts.
        joining: Names that search all texts of a query as one; where one finds nothing, the original is searched by itself.
    """

    retrievers: Mapping[str, str]
    texts: Mapping[str, Sequence[Text]]
    arms: Mapping[frozenset[str], Sequence[str]]
    joining: Collection[str] = ()

    def texts_of(self, key: str) -> Iterator[tuple[str, Text]]:
        """Yields the texts that a retriever is searched with, by its key, with its name here."""
        return ((name, text) for name, used in self.retrievers.items() if used == key for text in self.texts[name])


class IndexSearches:
    """The searches of a block in an index.

    Attributes:
        known: Lists that an earlier stage has made, and charged.
        executed: Searches that were made, by the first query that asked each.
        alike: Those that needed none of their own: none.
    """

    def __init__(
        self,
        opened: OpenedBy,
        retriever: Retriever,
        files: StoreFiles,
        asking: str,
        known: Mapping[Wanted, RankedList] = MappingProxyType({}),
    ) -> None:
        """Searches nothing yet; `asking`: the stage, or the round; `known`: lists that an earlier stage has made."""
        self._retriever, self._depth, self.known = retriever, opened.depth, known
        self._store = StoredLists(files, Space("lists", opened.space))
        self.executed: set[Searched] = set()
        self.alike: set[Searched] = set()
        self._space, self._first = f"{asking}/{opened.space}", dict[Wanted, Searched]()

    def __call__(self, wanted: Mapping[Wanted, Sequence[str]]) -> list[RankedList]:
        """Returns the list of each search; those that are not stored are searched for."""

        def compute(missing: list[Searched]) -> Iterator[tuple[Searched, RankedList]]:
            self.executed.update(missing)
            lists = self._retriever.search([one.search for one in missing], self._depth, heartbeat)
            return zip(missing, single_lists(lists), strict=True)

        self._first |= {search: Searched(query_ids[0], search) for search, query_ids in wanted.items()}
        asked = [self._first[search] for search in wanted]
        self._store.in_hand |= {one: self.known[one.search] for one in asked if one.search in self.known}
        return self._store.fill(asked, compute)

    def key(self, search: Wanted) -> str:
        """Returns the key of a search in the column `needed`: a later stage makes it again."""
        return f"{self._space}/{self._first[search].query_id}/{search_digest(search)}"

    def save(self) -> None:
        """Stores the lists."""
        self._store.save()


class Retrieval:
    """The retrievers of a worker."""

    def __init__(
        self,
        job: WorkerJob,
        retrievers: Mapping[str, OpenedBy],
        opened: Callable[[OpenedBy, str], Retriever] = opened_retriever,
    ) -> None:
        """Opens them; raises RetrieverError where an index is missing or was replaced."""
        self.plans, self.storage, self._store = retrievers, open_storage(job.run), job.store
        self.several = job.work.only is None
        by_settings: dict[str, Retriever] = {}  # one where only the depth differs: each may hold a model
        self.opened: dict[str, Retriever] = {}
        for key, plan in retrievers.items():
            same = digest([plan.settings.model_dump(), dict(plan.identity)])
            if same not in by_settings:
                by_settings[same] = opened(plan, job.device)
            self.opened[key] = by_settings[same]
        asks = any(isinstance(one, Web) for one in by_settings.values())
        self._keeper = JournalKeeper(self.storage, stopping(), OF_THE_WEB) if asks else None

    def close(self) -> None:
        """Ends what saves journals."""
        if self._keeper is not None:
            self._keeper.close()

    @contextmanager
    def block(
        self,
        table: pa.Table,
        stage: str,
        asking: str = "",
        known: Mapping[str, Mapping[Wanted, RankedList]] = MappingProxyType({}),
    ) -> Iterator[BlockSearches]:
        """Opens the searches of a block; answers of the web are journaled until the body ends.

        Args:
            table: The block.
            stage: Value of `costs.stage`.
            asking: The round that asks; empty: the stage.
            known: Key of a retriever -> the lists that an earlier stage has made.
        """
        asking = asking or stage
        journal = None if self._keeper is None else ShardJournal(self.storage, shard_of(table), OF_THE_WEB, self._keeper)
        by_key: dict[str, IndexSearches | WebSearches] = {}
        for key, opened in self.plans.items():
            retriever = self.opened[key]
            if isinstance(retriever, Web):
                assert journal is not None
                by_key[key] = WebSearches(
                    opened, retriever, self._store, journal, f"{asking}/{key}", _noted_texts(table, opened)
                )
            else:
                by_key[key] = IndexSearches(opened, retriever, self._store, asking, known.get(key, {}))
        block = BlockSearches(self, table, by_key, stage)
        try:
            yield block
        except Exception as error:
            charge_failure(error, block.spent)
            raise
        finally:
            if journal is not None:
                journal.merge()


class BlockSearches:
    """The searches of a block.

    Attributes:
        query_ids: Of the block.
        spent: What the searches have cost, row by row.
        failed: Retrievers that failed on the query, the one of the block.
        errors: Theirs, row by row.
        stage: Value of `costs.stage`.
        needed: The searches that arms need, for the column `needed`.
    """

    def __init__(
        self, retrieval: Retrieval, table: pa.Table, searches: Mapping[str, IndexSearches | WebSearches], stage: str
    ) -> None:
        self.query_ids: list[str] = table.column("query_id").to_pylist()
        self._queries: list[str] = table.column("query").to_pylist()
        self._retrieval, self._searches, self.stage = retrieval, searches, stage
        self.spent, self.errors = ([list[dict[str, Any]]() for _ in self.query_ids] for _ in range(2))
        self.failed = set[str]()
        self.needed: list[dict[str, Any]] = []
        self._asked: dict[str, set[Searched]] = {}  # by space: searches of this block; two retrievers may have one

    def fail(self, key: str, error: Exception) -> None:
        """Goes on without a retriever that failed on the query; raises the error where it may not (`bear`)."""
        bear(error)
        self.failed.add(key)
        self.errors[0].append(failure_row(self.stage, error, self._retrieval.plans[key].name))

    @property
    def web(self) -> dict[str, WebSearches]:
        """Returns the searches of the web, by key of the retriever."""
        return {key: one for key, one in self._searches.items() if isinstance(one, WebSearches)}

    def pages(self, retrievers: Mapping[str, str], lists: Mapping[str, Found]) -> list[Sequence[WebHit] | None]:
        """Returns the pages of the web in each list of a search, in the order of `lists_of`; None: it is of an index."""
        web = self.web
        return [
            web[retrievers[name]].hits(text.search) if retrievers[name] in web else None
            for name, hits in lists.items()
            for text in hits.texts
        ]

    def closed(self, table: pa.Table) -> pa.Table:
        """Returns the block with errors of retrievers, the searches that arms need, and what the searches have cost."""
        table = with_appended(with_appended(table, "errors", self.errors), "costs", self.spent)
        return with_first(table, "needed", self.needed)

    def search(self, routed: Sequence[RoutedSearch]) -> list[dict[str, Found]]:
        """Returns the lists of each search by name of the retriever.

        Where texts that were searched together have no hit, the original is searched by itself, if it is routed there. A search
        of which a retriever fails on a query finds nothing.
        """
        found: dict[tuple[int, str], Found] = {}
        for key in (key for key in self._searches if key not in self.failed):
            try:
                found |= self._search_one(key, routed)
            except Exception as error:
                self.fail(key, error)
            heartbeat()
        nothing, every = Found([], np.zeros(0, dtype=np.int64), joined_lists([])), []
        for number, arm_search in enumerate(routed):
            has_failed = not self.failed.isdisjoint(arm_search.retrievers.values())
            every.append({name: nothing if has_failed else found[number, name] for name in arm_search.retrievers})
        return every

    def _search_one(self, key: str, routed: Sequence[RoutedSearch]) -> dict[tuple[int, str], Found]:
        """Returns the lists of a retriever by index of the search and its name there; adds costs and needs."""
        began, by, opened = time.perf_counter(), self._searches[key], self._retrieval.plans[key]
        wanted: dict[Wanted, list[str]] = {}
        for arm_search in routed:
            for _, text in arm_search.texts_of(key):
                wanted.setdefault(text.search, []).append(self.query_ids[text.row])
        lists = by(wanted)
        number_of = {search: number for number, search in enumerate(wanted)}
        used: dict[tuple[int, str], list[Text]] = {
            (number, name): [] for number, one in enumerate(routed) for name, own in one.retrievers.items() if own == key
        }
        standing: dict[Wanted, list[str]] = {}  # originals that stand in, by the query_ids that need them
        vain: list[list[Text]] = [[] for _ in routed]
        for number, arm_search in enumerate(routed):
            for name, text in arm_search.texts_of(key):
                own = text
                if text.number and name in arm_search.joining and not len(lists[number_of[text.search]].scores):
                    original = SearchText(self._queries[text.row])
                    own = Text(text.row, 0, ORIGINAL, 1, 1.0, 1.0, original)
                    vain[number].append(text._replace(strategy=TOGETHER, search=original))
                    if original not in number_of:
                        standing.setdefault(original, []).append(self.query_ids[text.row])
                used[number, name].append(own)
        lists += by(standing)
        by.save()
        number_of |= {search: len(number_of) + number for number, search in enumerate(standing)}
        users = _users(key, routed, vain) if self._retrieval.several else {}
        for part, (counted, model) in enumerate(opened.search_names.items()):
            need = {"quantity": "web_searches" if self.stage == "web" else "searches", "component": f"{counted}@{model or ''}"}
            self.needed += [need | {"key": f"{by.key(search)}/{part}", "arms": sorted(arms)} for search, arms in users.items()]
        known = self._asked.setdefault(opened.space, set())
        firsts = [Searched(asking[0], one) for one, asking in (*wanted.items(), *standing.items())]
        firsts = [one for one in firsts if one not in by.alike and one.search not in by.known]
        asked = [one for one in firsts if one in by.executed or one not in known]
        known.update(asked)
        texts: Counter[int] = Counter()  # of a job of one arm: texts that were to be searched, by row
        saves = not self._retrieval.several and self.stage != "web"
        for arm_search, standing_in in zip(routed, vain, strict=True) if saves else ():
            for _, text in arm_search.texts_of(key):
                if text.number or text.search not in by.known:
                    texts[text.row] += text.texts
            texts.update(text.row for text in standing_in)
        self._charge(key, asked, texts, time.perf_counter() - began)
        ranked = joined_lists(lists)
        return {
            place: Found(texts, np.array([number_of[text.search] for text in texts], dtype=np.int64), ranked)
            for place, texts in used.items()
        }

    def _charge(self, key: str, wanted: Sequence[Searched], texts: Mapping[int, int], seconds: float) -> None:
        """Adds an entry to `spent` for each query that searched: its searches, and the lists that were stored.

        `texts`: in a job of one arm, row -> what it was to be searched with; what of it needed no search is saved.
        """
        opened, by, web, stage = self._retrieval.plans[key], self._searches[key], self.web.get(key), self.stage
        host, lost = (None, 0) if web is None else (web.host, web.lost)
        rows = {query_id: row for row, query_id in enumerate(self.query_ids)}
        new = [one for one in wanted if one in by.executed]
        searches, reused = Counter(rows[one.query_id] for one in new), Counter(rows[one.query_id] for one in wanted)
        reused.subtract(searches)
        requests = Counter[int]()
        if web is not None:
            for searched in new:
                requests[rows[searched.query_id]] += web.requests(searched)
        shares = search_shares(self._retrieval.opened[key], opened.search_names)
        for (counted, model), share in zip(opened.search_names.items(), shares, strict=True):
            each = seconds * share / max(1, len(by.executed))
            for row in searches.keys() | reused.keys() | texts.keys():
                n, old = searches[row], reused[row]
                values: dict[str, Any] = {"searches": n, "saved": texts[row] - n - old if row in texts else 0, "reused": old}
                values |= {"requests": requests[row], "model": model, "provider": host}
                self.spent[row].append(costs.entry(stage, counted, each * n, **values))
            if lost:
                values = {"attempt": lost, "requests": lost, "error": LOST, "model": model, "provider": host}
                self.spent[0].append(costs.entry(stage, counted, **values))


def _noted_texts(table: pa.Table, opened: OpenedBy) -> set[str]:
    """Returns the texts that earlier stages have sent to a provider for a block, of those with an error or a note."""
    errors = unnested(table, "errors")[1]
    columns = (errors.field(name).to_pylist() for name in ("component", "raw"))
    return {raw for component, raw in zip(*columns, strict=True) if component == opened.name and raw is not None}


def _users(key: str, routed: Sequence[RoutedSearch], vain: Sequence[Sequence[Text]]) -> dict[Wanted, set[str]]:
    """Returns the distinct searches of a retriever in a block, with the arms that need each."""
    users: dict[Wanted, set[str]] = {}
    for arm_search, standing_in in zip(routed, vain, strict=True):
        texts = [*(text for _, text in arm_search.texts_of(key)), *standing_in]
        for strategies, arms in arm_search.arms.items():
            for text in texts:
                if text.strategy in (ORIGINAL, TOGETHER) or text.strategy in strategies:
                    users.setdefault(text.search, set()).update(arms)
    return users
