"""The retrieval stage: searches once what the arms search, the original and the texts of their strategies.

The lists of the first arm are written to runs/ whole; only the hits that an arm fuses are passed on to the next stage.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.run.shards import write_table
from cluster.run.stage import heartbeat, shard_of, stopping
from cluster.storage import open_storage
from jobs.chain.arms.opened import digest
from jobs.chain.arms.shared_work import Reading, Search, SharedWork
from jobs.chain.counts import flag_counts, with_counts
from jobs.chain.drift import drifted, flagged
from jobs.chain.fill import fill
from jobs.chain.journal import OF_THE_WEB, JournalKeeper, ShardJournal
from jobs.chain.search_texts import Text, joined, query_texts
from jobs.chain.searches import IndexSearches, Searches, Wanted, WebSearches, charge, opened_retriever
from jobs.chain.stages.cosines import cosines_column, similarity
from jobs.chain.stages.gate import known_lists
from jobs.chain.stages.lists import Found, SearchedLists, passed_on, stored_rows
from jobs.chain.stages.web.web_hits import stored_pages, web_column, web_errors
from jobs.chain.store.facts import Searched, StoredVectors
from jobs.chain.store.files import Space, StoreFiles
from jobs.chain.tables import COSINES, HITS, RUN, WEB_HIT
from jobs.chain.users import search_counts
from jobs.tables import FILE, ORIGINAL, with_appended, with_columns, without_columns
from retrievers.hybrid.retriever import search_shares
from retrievers.joined import search_vectors
from retrievers.retriever import Embedder, RankedList, Retriever, SearchText, joined_lists
from retrievers.web.retriever import Web
from rewriters.strategy import searched_as_one


class Retrieve:
    """A worker of the retrieval stage.

    Equal texts of a shard are encoded and searched once; the list is that of every strategy and arm that has the text. A
    retriever with `together` searches all texts of a query as one.
    """

    NEEDS = ("shard", "query_id", "query", "rewrites", "counts")
    ADDS = pa.schema(
        [
            ("lists", pa.list_(HITS)),
            ("runs", pa.list_(RUN)),
            ("cosines", pa.list_(COSINES)),  # empty without a dense retriever
            ("web", pa.list_(WEB_HIT)),  # empty without a search engine of the web
            ("stored", pa.list_(FILE)),  # files written but not committed yet, in the block's first row
        ]
    )
    opened = staticmethod(opened_retriever)
    DROPS = ("gated", "known")  # where there is a gate

    def __init__(self, work: SharedWork, device: str, run: str, store: StoreFiles) -> None:
        """Opens the retrievers; raises RetrieverError where an index is missing or was replaced."""
        self._work, self._store = work, store
        opened: dict[str, Retriever] = {}  # one where only the depth differs: each may hold a model
        self._retrievers: dict[str, Retriever] = {}
        for key, one in work.retrievers.items():
            same = digest([one.settings.model_dump(), dict(one.identity)])
            if same not in opened:
                opened[same] = self.opened(one, device)
            self._retrievers[key] = opened[same]
        self._storage = open_storage(run)
        asks = any(isinstance(one, Web) for one in opened.values())
        self._keeper = JournalKeeper(self._storage, stopping(), OF_THE_WEB) if asks else None

    def close(self) -> None:
        """Ends what saves journals."""
        if self._keeper is not None:
            self._keeper.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the lists of every search, what is known of their texts, and costs."""
        if self._keeper is None:
            return self._retrieved(table, None)
        of_shard = ShardJournal(self._storage, shard_of(table), OF_THE_WEB, self._keeper)
        try:
            return self._retrieved(table, of_shard)
        finally:
            of_shard.merge()

    def _retrieved(self, table: pa.Table, of_shard: ShardJournal | None) -> pa.Table:
        work = self._work
        queries = table.column("query").to_pylist()
        rewrites = table.column("rewrites").to_pylist()
        texts = self._texts(rewrites, queries)
        query_ids = table.column("query_id").to_pylist()
        spent: list[list[dict[str, Any]]] = [[] for _ in query_ids]
        vectors = self._vectors(query_ids, texts)
        routed = [self._routed(search, texts[number]) for number, search in enumerate(work.searches)]
        counts: Counter[str] = Counter()
        alone: list[dict[tuple[str, int], SearchText]] = [{} for _ in routed]
        known = known_lists(table)
        searches = {key: self._searches(key, of_shard, known.get(key, {})) for key in work.retrievers}
        lists = self._lists(query_ids, routed, queries, alone, spent, counts, searches)
        found, cosines = [], []
        for number, search in enumerate(work.searches):
            reading, of = work.readings[search.reading], None
            if (dense := work.compared_by(number)) is not None:
                of = np.stack([vectors[dense][text.search] for text in texts[number]])
            cosines.append(similarity(table.num_rows, texts[number], of))
            far = drifted(texts[number], of, reading.rewriting.guards.drift)
            if work.only is None:
                for answer in (one for one in work.answers if one.search == number):
                    counts.update(flag_counts(rewrites, reading, answer, far))
            else:  # the counts of a run are those of its table
                table = flagged(table, far)
            found.append(_found(search, routed[number], alone[number], lists))
        stored = self._write(table, found[work.answers[0].search]) if work.keep_lists else []
        web = {key: one for key, one in searches.items() if isinstance(one, WebSearches)}
        for key, one in web.items():
            texts_of = [
                of[name]
                for search, of in zip(work.searches, routed, strict=True)
                for name, used in search.retrievers.items()
                if used == key
            ]
            table = with_appended(table, "errors", web_errors(table.num_rows, texts_of, one))
        if web and (pages := stored_pages(table.column("query_id").combine_chunks(), work, found, web)).num_rows:
            stored.append({"table": "web"} | write_table(self._storage, "web", shard_of(table), pages)._asdict())
        passed = passed_on(table.num_rows, work, found, {key: one.lists for key, one in lists.items()})
        rest: list[list[Any]] = [[]] * (table.num_rows - 1)
        table = without_columns(with_counts(with_appended(table, "costs", spent), counts), self.DROPS)
        columns = [
            *passed,
            cosines_column(table.num_rows, cosines),
            web_column(table.num_rows, work, found, web, passed[1]),
            pa.array([stored, *rest], pa.list_(FILE)),
        ]
        return with_columns(table, self.ADDS, columns)

    def _texts(self, rewrites: Sequence[Any], queries: Sequence[str]) -> list[list[Text]]:
        """Returns the texts of each search, row by row: the original, then the rewrites in order that an arm needs."""
        known: dict[tuple[int, frozenset[str]], list[Text]] = {}
        found = []
        for number, search in enumerate(self._work.searches):
            key = search.reading, self._work.strategies(number)
            if key not in known:
                reading = self._work.readings[search.reading]
                known[key] = _row_texts(queries, rewrites, reading, key[1])
            found.append(known[key])
        return found

    def _routed(self, search: Search, texts: Sequence[Text]) -> dict[str, list[Text]]:
        """Returns what each retriever of an arm is searched with, by its name in the arm."""
        found = {}
        for name in search.retrievers:
            of = [text for text in texts if name in search.route(text.strategy)]
            if name in search.together:
                known = search.joined or frozenset()
                of = joined([one for one in of if one.strategy == ORIGINAL or one.strategy in known], name, search.fuse)
            found[name] = of
        return found

    def _lists(
        self,
        query_ids: list[str],
        routed: Sequence[Mapping[str, list[Text]]],
        queries: Sequence[str],
        alone: list[dict[tuple[str, int], SearchText]],
        spent: list[list[dict[str, Any]]],
        counts: Counter[str],
        searches: Mapping[str, Searches],
    ) -> dict[str, SearchedLists]:
        """Returns the lists of every search by key of the retriever; adds what they cost, and the searches of each arm.

        Where texts that were searched together have no hit, the original is searched by itself, if it is routed there: it is
        added to `alone`, by search, name of the retriever and row.
        """
        found: dict[str, SearchedLists] = {}
        here: dict[str, set[Searched]] = {}  # by space: searches of this block; two retrievers may have one
        for key, opened in self._work.retrievers.items():
            began, of_key = time.perf_counter(), searches[key]
            wanted: dict[Wanted, list[str]] = {}
            for search, of in zip(self._work.searches, routed, strict=True):
                for name in (name for name, used in search.retrievers.items() if used == key):
                    for text in of[name]:
                        wanted.setdefault(text.search, []).append(query_ids[text.row])
            lists = of_key(wanted)
            place = {search: number for number, search in enumerate(wanted)}
            standing: dict[Wanted, list[str]] = {}
            stood_in: list[list[Wanted]] = [[] for _ in routed]  # by search
            vain: list[int] = []  # rows
            for number, (search, of) in enumerate(zip(self._work.searches, routed, strict=True)):
                for name in (name for name, used in search.retrievers.items() if used == key and name in search.together):
                    for text in (one for one in of[name] if one.number and not len(lists[place[one.search]].scores)):
                        if name in search.route(ORIGINAL):
                            original = SearchText(queries[text.row])
                            alone[number][name, text.row] = original
                            stood_in[number].append(original)
                            vain.append(text.row)
                            if original not in place:
                                standing.setdefault(original, []).append(query_ids[text.row])
            lists += of_key(standing)
            of_key.save()
            place |= {search: len(place) + number for number, search in enumerate(standing)}
            if self._work.only is None:
                counts.update(search_counts(self._work, key, routed, stood_in, place))
            known = here.setdefault(opened.space, set())
            firsts = [Searched(asking[0], one) for one, asking in (*wanted.items(), *standing.items())]
            firsts = [one for one in firsts if one not in of_key.alike and one.search not in of_key.known]
            asked = [one for one in firsts if one in of_key.made or one not in known]
            known.update(asked)
            texts: Counter[int] = Counter()  # that were to be searched
            if self._work.only is not None:
                (search,), (of,) = self._work.searches, routed
                routed_here = [text for name, used in search.retrievers.items() if used == key for text in of[name]
                               if text.number or text.search not in of_key.known]  # fmt: skip
                texts.update({text.row: 0 for text in routed_here})
                for text in routed_here:
                    texts[text.row] += text.texts
                texts.update(vain)
            seconds, shares = time.perf_counter() - began, search_shares(self._retrievers[key], opened.search_names)
            charge(opened, of_key, asked, query_ids, texts, seconds, shares, spent)
            found[key] = SearchedLists(place, joined_lists(lists))
            heartbeat()
        return found

    def _searches(self, key: str, of_shard: ShardJournal | None, known: Mapping[Wanted, RankedList]) -> Searches:
        """Returns the searches of a block by a retriever, of which the lists `known` are made already."""
        opened, retriever = self._work.retrievers[key], self._retrievers[key]
        if isinstance(retriever, Web):
            assert of_shard is not None
            return WebSearches(opened, retriever, self._store, of_shard)
        return IndexSearches(opened, retriever, self._store, known)

    def _vectors(self, query_ids: Sequence[str], texts: Sequence[Sequence[Text]]) -> dict[str, dict[Wanted, np.ndarray]]:
        """Returns the vectors of texts, shape (dim,), by key of the retriever, where an arm weighs lists by cosines."""
        wanted: dict[str, dict[Wanted, Searched]] = {}
        for number, of_search in enumerate(texts):
            if (dense := self._work.compared_by(number)) is not None:
                of = wanted.setdefault(dense, {})
                for text in of_search:
                    of.setdefault(text.search, Searched(query_ids[text.row], text.search))
        found = {}
        for key, of in wanted.items():
            retriever = self._retrievers[key]
            assert isinstance(retriever, Embedder)

            def compute(missing: list[Searched], encode: Embedder = retriever) -> list[list[tuple[Searched, np.ndarray]]]:
                return [list(zip(missing, search_vectors([one.search for one in missing], encode.embed), strict=True))]

            store = StoredVectors(self._store, Space("vectors", self._work.retrievers[key].encoder_space))
            found[key] = dict(zip(of, fill(store, list(of.values()), compute), strict=True))
            store.save()
        return found

    def _write(self, table: pa.Table, found: Mapping[str, Found]) -> list[dict[str, Any]]:
        """Writes the lists of the first arm; returns the file as an entry of `stored`, if there is any hit."""
        first = self._work.answers[0]
        hits = stored_rows(table.column("query_id").combine_chunks(), found, first.retrieved)
        if not hits.num_rows:
            return []
        return [{"table": "runs"} | write_table(self._storage, "runs", shard_of(table), hits)._asdict()]


def _found(
    search: Search,
    routed: Mapping[str, list[Text]],
    alone: Mapping[tuple[str, int], SearchText],
    lists: Mapping[str, SearchedLists],
) -> dict[str, Found]:
    """Returns the lists of a search; where texts were searched together in vain, those of the original alone."""
    found = {}
    for name, texts in routed.items():
        of = lists[search.retrievers[name]]
        used = [
            text if (original := alone.get((name, text.row))) is None else Text(text.row, 0, ORIGINAL, 1, 1.0, 1.0, original)
            for text in texts
        ]
        found[name] = Found(used, np.array([of.place[text.search] for text in used], dtype=np.int64), of.lists)
    return found


def _row_texts(queries: Sequence[str], rewrites: Sequence[Any], reading: Reading, strategies: frozenset[str]) -> list[Text]:
    """Returns the texts of these strategies in a reading, row by row; of one without engines the originals alone."""
    found = []
    for row, (query, of_row) in enumerate(zip(queries, rewrites, strict=True)):
        used = (one for one in of_row if reading.engines and one["arm"] == reading.name and one["strategy"] in strategies)
        found += query_texts(row, query, used, searched_as_one(reading.rewriting.pool))
    return found
