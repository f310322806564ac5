"""The retrieval stage of an ablation: searches once what several arms search, and fuses the lists of each arm."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.run.shards import write_table
from cluster.run.stage import heartbeat, shard_of
from cluster.storage import open_storage
from jobs.chain.ablate.gathered import GatheredLists, GatheredVectors, Searched
from jobs.chain.ablate.shared_work import Answer, Reading, Search, SharedWork, digest
from jobs.chain.ablate.stages.answers import Fusing
from jobs.chain.ablate.stages.choices import Choices
from jobs.chain.ablate.stages.flags import flag_counts
from jobs.chain.ablate.stages.users import search_counts
from jobs.chain.ablate.tables import DOCUMENT, FUSED
from jobs.chain.drift import drifted
from jobs.chain.fill import fill
from jobs.chain.list_columns import FlatLists, Found, flat_lists, fusion_lists, stored_rows
from jobs.chain.search_texts import Text, filters_of, joined, originals, query_texts
from jobs.chain.stages.retrieve import similarity
from jobs.job.opening import open_documents, open_retriever
from jobs.tables import FILE, ORIGINAL, with_appended, with_failure
from retrievers.hybrid.retriever import search_shares
from retrievers.joined import search_vectors
from retrievers.retriever import (
    Embedder,
    JoinedText,
    Only,
    RankedList,
    RankedLists,
    Retriever,
    SearchText,
    joined_lists,
    single_lists,
)
from retrievers.settings import TypoSettings
from rewriters.strategy import searched_as_one

Wanted = SearchText | JoinedText


class _SearchedLists(NamedTuple):
    """The lists of one retriever in a block: that of a search is number ``place[search]``."""

    place: dict[Wanted, int]
    lists: RankedLists

    def is_empty(self, search: Wanted) -> bool:
        """Returns whether a search has no hit."""
        place = self.place[search]
        return bool(self.lists.offsets[place] == self.lists.offsets[place + 1])


class RetrieveArms:
    """A worker of the retrieval stage."""

    NEEDS = ("shard", "query_id", "query", "rewrites", "counts")
    ADDS = pa.schema(
        [
            ("documents", pa.list_(DOCUMENT)),
            ("fused", pa.list_(FUSED)),
            ("stored", pa.list_(FILE)),
        ]
    )
    DROPS = ("context", "values")

    def __init__(self, work: SharedWork, full: int, device: str, run: str, gathered: str) -> None:
        """Opens the retrievers.

        Args:
            work: of all arms.
            full: index of the answer whose lists are written to runs/.
            device: the torch device of encoders.
            run: the ablation's folder.
            gathered: the folder of what ablations gather.

        Raises:
            RetrieverError: an index is missing or was replaced.
        """
        self._work, self._full, self._gathered = work, full, gathered
        opened: dict[str, Retriever] = {}  # one where only the depth differs: each may hold a model
        self._retrievers: dict[str, Retriever] = {}
        for key, one in work.retrievers.items():
            same = digest([one.settings.model_dump(), dict(one.identity)])
            if same not in opened:
                opened[same] = open_retriever(one.name, one.settings, device=device, expect_identity=one.identity)
            self._retrievers[key] = opened[same]
        self._storage = open_storage(run)
        dropping = {one.documents: work.retrievers[one.documents] for one in work.answers if one.fuse.duplicates == "drop"}
        self._documents = {key: open_documents(one.name, one.settings, patient=True) for key, one in dropping.items()}

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the candidates of every arm, `documents` and `fused`, and costs."""
        queries = {search.typos: originals(table, search.typos) for search in self._work.searches}
        rewrites = table.column("rewrites").to_pylist()
        texts = self._texts(table, rewrites, queries)
        query_ids = table.column("query_id").to_pylist()
        spent: list[list[dict[str, Any]]] = [[] for _ in query_ids]
        vectors = self._vectors(query_ids, texts)
        choices = Choices(self._work, self._retrievers, texts, table.num_rows)
        routed = [self._routed(search, choices.needed(number)) for number, search in enumerate(self._work.searches)]
        counts: Counter[str] = Counter()
        lists = self._lists(query_ids, routed, queries, spent, counts, choices)
        began = time.perf_counter()
        fusing = Fusing(self._work, table.num_rows, self._documents)
        stored: list[dict[str, Any]] = []
        for number, search in enumerate(self._work.searches):
            flat = self._flat(search, routed[number], queries[search.typos], lists)
            answers = [(at, one) for at, one in enumerate(self._work.answers) if one.search == number]
            reading, of = self._work.readings[search.reading], None
            if search.dense is not None and any(one.fuse.redundancy == "cosine" for _, one in answers):
                of = np.stack([vectors[self._dense(search)][text.search] for text in texts[number]])
            cosines = similarity(table.num_rows, texts[number], of)
            far = drifted(texts[number], of, reading.rewriting.guards.settings.drift)
            for at, answer in answers:
                counts.update(flag_counts(rewrites, reading, answer, far, choices.texts(at)))
                if at == self._full and len(flat.take):
                    stored.append(self._write(table, flat, answer))
            strategies = {text.strategy for text in texts[number]} - {ORIGINAL}
            fusing.add(answers, fusion_lists(flat, search.depth, search.cuts), cosines, strategies, choices.numbers)
            heartbeat()
        columns = fusing.columns()
        counts.update(fusing.counts)
        for of_query in spent:
            of_query.append(costs.entry("fuse", "arms", (time.perf_counter() - began) / max(1, len(spent))))
        table = with_appended(table, "costs", spent).drop_columns(list(self.DROPS))
        rest: list[list[Any]] = [[]] * (table.num_rows - 1)
        table = with_appended(table, "counts", [[{"name": name, "count": n} for name, n in counts.items()], *rest])
        more = [*columns, pa.array([stored, *rest], pa.list_(FILE))]
        for field, column in zip(self.ADDS, more, strict=True):
            table = table.append_column(field, column)
        return table

    def _texts(
        self, table: pa.Table, rewrites: Sequence[Any], queries: Mapping[TypoSettings | None, list[str]]
    ) -> list[list[Text]]:
        """Returns the texts of each search, row by row: the original, then the rewrites in order that an arm needs."""
        only = filters_of(table, self._work.filters)
        known: dict[tuple[int, TypoSettings | None, frozenset[str]], list[Text]] = {}
        found = []
        for number, search in enumerate(self._work.searches):
            key = search.reading, search.typos, self._work.strategies(number)
            if key not in known:
                reading = self._work.readings[search.reading]
                known[key] = _row_texts(queries[search.typos], rewrites, only, reading, key[2])
            found.append(known[key])
        return found

    def _routed(self, search: Search, texts: Sequence[Text]) -> dict[str, list[Text]]:
        """Returns what each retriever of an arm is searched with, by its name in the arm."""
        found = {}
        for name in search.retrievers:
            of = [text for text in texts if name in search.routes.get(text.strategy, search.retrievers)]
            if name in search.together:
                known = search.joined or frozenset()
                of = joined([one for one in of if one.strategy == ORIGINAL or one.strategy in known], name, search.fuse)
            found[name] = of
        return found

    def _lists(
        self,
        query_ids: list[str],
        routed: Sequence[Mapping[str, list[Text]]],
        queries: Mapping[TypoSettings | None, list[str]],
        spent: list[list[dict[str, Any]]],
        counts: Counter[str],
        choices: Choices,
    ) -> dict[str, _SearchedLists]:
        """Returns the lists of every search by key of the retriever; adds what they cost, and the searches of each arm."""
        found: dict[str, _SearchedLists] = {}
        here: dict[str, set[Searched]] = {}  # by space: searches of this block; two retrievers may have one
        for key, opened in self._work.retrievers.items():
            began = time.perf_counter()
            wanted: dict[Wanted, Searched] = {}
            for search, of in zip(self._work.searches, routed, strict=True):
                for name in (name for name, used in search.retrievers.items() if used == key):
                    for text in of[name]:
                        wanted.setdefault(text.search, Searched(query_ids[text.row], text.search))
            made: set[Searched] = set()
            store = GatheredLists(self._gathered, opened.space)
            lists = self._search(key, store, list(wanted.values()), made)
            place = {search: number for number, search in enumerate(wanted)}
            standing: dict[Wanted, Searched] = {}
            stood_in: list[list[Wanted]] = [[] for _ in routed]  # by search
            for number, (search, of) in enumerate(zip(self._work.searches, routed, strict=True)):
                for name in (name for name, used in search.retrievers.items() if used == key and name in search.together):
                    for text in (one for one in of[name] if one.number and not len(lists[place[one.search]].scores)):
                        original = self._original(search, name, queries[search.typos], text)
                        if original is not None:
                            stood_in[number].append(original)
                            if original not in place:
                                standing.setdefault(original, Searched(query_ids[text.row], original))
            lists += self._search(key, store, list(standing.values()), made)
            place |= {search: len(place) + number for number, search in enumerate(standing)}
            counts.update(search_counts(self._work, key, routed, stood_in, place, choices.numbers))
            known = here.setdefault(opened.space, set())
            asked = [one for one in (*wanted.values(), *standing.values()) if one in made or one not in known]
            known.update(asked)
            self._charge(key, asked, made, query_ids, time.perf_counter() - began, spent)
            found[key] = _SearchedLists(place, joined_lists(lists))
            heartbeat()
        return found

    def _search(self, key: str, store: GatheredLists, wanted: list[Searched], made: set[Searched]) -> list[RankedList]:
        """Returns the list of each search; those that are not gathered are searched for and noted in `made`."""
        depth = self._work.retrievers[key].depth

        def compute(missing: list[Searched]) -> list[list[tuple[Searched, RankedList]]]:
            made.update(missing)
            lists = single_lists(self._retrievers[key].search([one.search for one in missing], depth, heartbeat))
            return [list(zip(missing, lists, strict=True))]

        return fill(store, wanted, compute)

    def _charge(
        self,
        key: str,
        wanted: Sequence[Searched],
        made: set[Searched],
        query_ids: Sequence[str],
        seconds: float,
        spent: list[list[dict[str, Any]]],
    ) -> None:
        """Appends an entry to each query that searched: its searches, and the lists that were gathered before."""
        opened = self._work.retrievers[key]
        rows = {query_id: row for row, query_id in enumerate(query_ids)}
        searches = Counter(rows[one.query_id] for one in wanted if one in made)
        reused = Counter(rows[one.query_id] for one in wanted if one not in made)
        shares = search_shares(self._retrievers[key])
        for (counted, model), share in zip(opened.search_names.items(), shares, strict=True):
            each = seconds * share / max(1, len(made))
            for row in searches.keys() | reused.keys():
                n, old = searches[row], reused[row]
                spent[row].append(costs.entry("retrieve", counted, each * n, model=model, searches=n, reused=old))

    def _vectors(self, query_ids: Sequence[str], texts: Sequence[Sequence[Text]]) -> dict[str, dict[Wanted, np.ndarray]]:
        """Returns the vectors of texts, shape (dim,), by key of the retriever, where an arm weighs lists by cosines."""
        wanted: dict[str, dict[Wanted, Searched]] = {}
        for number, search in enumerate(self._work.searches):
            by_cosine = any(one.search == number and one.fuse.redundancy == "cosine" for one in self._work.answers)
            for text in texts[number] if by_cosine and search.dense is not None else ():
                of = wanted.setdefault(self._dense(search), {})
                of.setdefault(text.search, Searched(query_ids[text.row], text.search))
        found = {}
        for key, of in wanted.items():
            retriever = self._retrievers[key]
            assert isinstance(retriever, Embedder)

            def compute(missing: list[Searched], encode: Embedder = retriever) -> list[list[tuple[Searched, np.ndarray]]]:
                return [list(zip(missing, search_vectors([one.search for one in missing], encode.embed), strict=True))]

            store = GatheredVectors(self._gathered, self._work.retrievers[key].encoder_space)
            found[key] = dict(zip(of, fill(store, list(of.values()), compute), strict=True))
        return found

    def _dense(self, search: Search) -> str:
        assert search.dense is not None
        return search.retrievers[search.dense]

    def _original(self, search: Search, name: str, queries: Sequence[str], text: Text) -> SearchText | None:
        """Returns the original by itself, which is searched where texts that were searched together have no hit."""
        original = SearchText(queries[text.row], "query", text.search.only)
        return original if name in search.routes.get(ORIGINAL, search.retrievers) else None

    def _flat(
        self, search: Search, routed: Mapping[str, list[Text]], queries: Sequence[str], lists: Mapping[str, _SearchedLists]
    ) -> FlatLists:
        """Returns the lists of an arm's search; where texts were searched together in vain, those of the original alone."""
        found = {}
        for name, texts in routed.items():
            of, used = lists[search.retrievers[name]], []
            for text in texts:
                in_vain = name in search.together and text.number and of.is_empty(text.search)
                original = self._original(search, name, queries, text) if in_vain else None
                used.append(text if original is None else Text(text.row, 0, ORIGINAL, 1, 1.0, 1.0, original))
            place = np.array([of.place[text.search] for text in used], dtype=np.int64)
            found[name] = Found(used, place, of.lists)
        return flat_lists(found)

    def _write(self, table: pa.Table, flat: FlatLists, answer: Answer) -> dict[str, Any]:
        """Writes the lists of the full arm; returns the file as an entry of `stored`."""
        of_queries = stored_rows(table.column("query_id").combine_chunks(), flat, answer.retrieved)
        file = write_table(self._storage, "runs", shard_of(table), of_queries)
        return {"table": "runs"} | file._asdict()


def _row_texts(
    queries: Sequence[str], rewrites: Sequence[Any], only: Sequence[Only], reading: Reading, strategies: frozenset[str]
) -> list[Text]:
    """Returns the texts of these strategies in a reading, row by row; of one without engines the originals alone."""
    found = []
    for row, (query, of_row, filters) in enumerate(zip(queries, rewrites, only, strict=True)):
        used = (one for one in of_row if reading.engines and one["arm"] == reading.name and one["strategy"] in strategies)
        found += query_texts(row, query, used, searched_as_one(reading.rewriting.pool), filters)
    return found


def without_arms(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which a retriever failed, without candidates and with a row in errors; RetrieverErrors are raised."""
    table = with_failure(table, "retrieve", error).drop_columns(list(RetrieveArms.DROPS))
    for field in RetrieveArms.ADDS:
        table = table.append_column(field, pa.array([[]], field.type))
    return table
