"""Lists fused inside collections and merged: equal to plain loops over one query after the other, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retrievers.corpora.collections import (
    CollectionDocuments,
    all_documents,
    fuse_collections,
    id_parts,
    qualified,
    qualified_id,
)
from retrievers.corpora.duplicates import fuse_distinct
from retrievers.fusion import METHODS
from retrievers.lists import by_document
from retrievers.redundancy import REDUNDANCY
from retrievers.redundancy import Similarity as Cosines
from retrievers.settings import FuseSettings
from tests.support.retrievers.fusion_oracle import Candidate, Query, RunList, Similarity, as_lists, as_values, plain

COLLECTIONS = {"words": "law", "vectors": "law", "bm25": "med", "notes": "notes"}
TEXTS = [("original", 1), ("general", 1), ("general", 2), ("keyword", 1)]
DOC_IDS = ["d1", "d2", "d10", "é", "", "law:d1", "a:b"]  # of every collection


def drawn(rng: np.random.Generator, queries: int = 6) -> list[Query]:
    """Queries with some of the lists; few ids and few scores, so that many tie."""
    found: list[Query] = []
    for _ in range(queries):
        runs = []
        for strategy, position in TEXTS:
            for retriever, collection in COLLECTIONS.items():
                if rng.random() < 0.3:
                    continue
                ids = [qualified_id(collection, str(one)) for one in rng.permutation(DOC_IDS)[: rng.integers(0, 7)]]
                scores = np.sort(rng.choice([0.0, 0.25, 1.0, 2.5, 7.0, rng.random()], len(ids)))[::-1]
                weight = float(rng.choice([1.0, 1.0, 0.5, 0.0]))
                runs.append(RunList(strategy, position, retriever, ids, scores.tolist(), weight))
        vectors = rng.standard_normal((len(TEXTS), 3))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        alike = Similarity(TEXTS, (vectors @ vectors.T).round(6).astype(np.float32))
        found.append((runs, alike if rng.random() < 0.7 else None))
    return found


def by_product(block: Sequence[Query], settings: FuseSettings, texts: Any = None) -> list[Any]:
    squares = [np.empty(0) if alike is None else alike.cosines.ravel() for _, alike in block]
    given = Cosines(np.cumsum([0, *map(len, squares)]), np.concatenate(squares))
    hits = by_document(as_lists(block), len(block))
    if texts is None:
        fused = fuse_collections(hits, settings, given, COLLECTIONS)
    else:

        def read(pairs: np.ndarray) -> list[str]:
            return list(texts(hits.doc_ids.take(pa.array(hits.pair_document[pairs])).to_pylist()))

        fused = fuse_distinct(hits, settings, given, read, COLLECTIONS)
    return as_values([run for runs, _ in block for run in runs], fused, settings.redundancy)


def by_hand(query: Query, settings: dict[str, Any], how: str, weights: dict[str, float], keep: int) -> list[Candidate]:
    """The merged candidates of a query: each collection by plain loops, then one sort."""
    runs, alike = query
    values: list[tuple[float, str, Candidate]] = []
    for collection in sorted(set(COLLECTIONS.values())):
        weight = weights.get(collection, 1.0)
        mine = [run for run in runs if COLLECTIONS[run.retriever] == collection]
        inside = plain(mine, **settings, keep=1 << 30, similarity=alike).candidates
        scores = [one.score for one in inside]
        for rank, one in enumerate(inside, start=1):
            value = one.score
            if how == "rank":
                value = 1 / (settings["k"] + rank)
            if how == "minmax":
                low, high = min(scores), max(scores)
                value = (one.score - low) / (high - low) if high > low else 1.0
            if weight:
                values.append((-round(weight * value, 12), one.doc_id, one))
    return [Candidate(doc_id, -value + 0.0, one.sources) for value, doc_id, one in sorted(values)[:keep]]


@pytest.mark.parametrize("how", ["rank", "minmax", "score"])
@pytest.mark.parametrize("method", METHODS)
def test_merged_lists_equal_plain_loops(method: str, how: str) -> None:
    rng = np.random.default_rng(5)
    for redundancy in REDUNDANCY:
        for weights in ({}, {"law": 0.5, "notes": 3.0}, {"med": 0.0}):
            block = [*drawn(rng), ([], None)]
            settings = {"method": method, "redundancy": redundancy, "k": 7.0, "depth": 4, "retriever_weights": {"vectors": 0.5}}
            keep = int(rng.choice([1, 4, 50]))
            merging = {"collections": how, "collection_weights": weights, "keep": keep}
            found = by_product(block, FuseSettings.model_validate(settings | merging))
            for query, one in zip(block, found, strict=True):
                assert one.candidates == by_hand(query, settings, how, weights, keep)


def test_what_is_behind_the_cut_changes_nothing_before_it() -> None:
    """An arm whose measures read deeper has the candidates of its run."""
    block = drawn(np.random.default_rng(8), 20)
    for how in ("rank", "minmax", "score"):
        settings = FuseSettings(collections=how, redundancy="none")
        whole = by_product(block, settings.model_copy(update={"keep": 1000}))
        short = by_product(block, settings.model_copy(update={"keep": 3}))
        assert [one.candidates for one in short] == [one.candidates[:3] for one in whole]


def test_the_original_stands_in_for_each_collection_by_itself() -> None:
    runs = [
        RunList("original", 1, "words", ["law:a"], [1.0]),
        RunList("general", 1, "words", ["law:b"], [1.0]),
        RunList("original", 1, "bm25", ["med:a"], [1.0]),
    ]
    (found,) = by_product([(runs, None)], FuseSettings(weights={"original": 0}))
    assert [one.doc_id for one in found.candidates] == ["law:b", "med:a"]
    assert found.stood_in
    (found,) = by_product([(runs[:2], None)], FuseSettings(weights={"original": 0}))
    assert [one.doc_id for one in found.candidates] == ["law:b"]
    assert not found.stood_in


def test_duplicates_are_dropped_across_collections() -> None:
    rng = np.random.default_rng(11)
    for _ in range(20):
        block = drawn(rng)
        words = {
            qualified_id(of, doc_id): str(rng.choice(["a b", "A  b", "c", "d"]))
            for of in set(COLLECTIONS.values())
            for doc_id in DOC_IDS
        }
        settings = FuseSettings(keep=3, duplicates="drop", redundancy="none", collections=str(rng.choice(["rank", "minmax"])))
        found = by_product(block, settings, lambda doc_ids, words=words: [words[one] for one in doc_ids])
        text = {doc_id: " ".join(of.lower().split()) for doc_id, of in words.items()}
        every = settings.model_copy(update={"keep": 1000})
        joined: list[Query] = []  # twins of a collection have the id that stands best
        for (runs, alike), alone in zip(block, by_product(block, every), strict=True):
            best: dict[tuple[str, str], str] = {}
            for one in alone.candidates:
                best.setdefault((id_parts(one.doc_id)[0], text[one.doc_id]), one.doc_id)
            renamed = [
                run._replace(doc_ids=[best.get((id_parts(of)[0], text[of]), of) for of in run.doc_ids[: settings.depth]],
                             scores=run.scores[: settings.depth])
                for run in runs
            ]  # fmt: skip
            joined.append((renamed, alike))
        for mine, whole in zip(found, by_product(joined, every), strict=True):
            first: dict[str, Candidate] = {}
            for one in whole.candidates:
                first.setdefault(text[one.doc_id], one)
            assert mine.candidates == list(first.values())[:3]


def test_ids_are_qualified_by_what_found_them() -> None:
    ids, found_by = pa.array(["d1", "d1", "a:b"]), pa.array(["bm25", "words", "vectors"])
    assert qualified(ids, found_by, COLLECTIONS).to_pylist() == ["med:d1", "law:d1", "law:a:b"]
    assert qualified(ids, found_by, {}) is ids
    assert [id_parts(one) for one in ("law:d1", "law:a:b", "d1")] == [("law", "d1"), ("law", "a:b"), ("", "d1")]


class Store:
    """Documents of one collection, which remembers what it was asked."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.held, self.asked = texts, list[list[str]]()

    def texts(self, doc_ids: Sequence[str], alive: Any = None) -> list[str]:
        self.asked.append(list(doc_ids))
        return [self.held[one] for one in doc_ids]

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        return [f"{len(self.held)} {one}" for one in doc_ids]

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        return [one in self.held for one in doc_ids]

    def some(self, count: int) -> list[str]:
        return list(self.held.values())[:count]


def test_texts_are_those_of_the_collection() -> None:
    law, med = Store({"d1": "a law", "a:b": "another"}), Store({"d1": "a pill"})
    both = all_documents({"law": law, "med": med})
    assert isinstance(both, CollectionDocuments)
    assert both.texts(["med:d1", "law:a:b", "law:d1"]) == ["a pill", "another", "a law"]
    assert (law.asked, med.asked) == ([["a:b", "d1"]], [["d1"]])
    assert both.places(["med:d1", "law:a:b"]) == ["1 d1", "2 a:b"]
    assert both.known(["med:d1", "med:a:b", "d1", "other:d1", "law:a:b"]) == [True, False, False, False, True]
    assert all_documents({"": law}) is law
    assert both.some(1) == ["a law", "a pill"]


def test_no_query_and_no_hit() -> None:
    settings = FuseSettings()
    for queries in (0, 2):
        hits = by_document(as_lists([([], None)] * queries), queries)
        fused = fuse_collections(hits, settings, None, COLLECTIONS)
        assert list(pairwise(fused.offsets.tolist())) == [(0, 0)] * queries
