"""Collections: the lists of a query are fused inside each, and the fused lists are merged into one.

Two collections may call two documents by one id, so a document is called by its collection and its id there, `law:doc1`. No
document is in two collections; merging is by

- `rank`: weight / (k + rank in its collection);
- `minmax`: weight x (score - lowest) / (highest - lowest), over all fused documents of the query's list in the collection;
- `score`: weight x score as it was fused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrievers.fusion import Fused, fuse
from retrievers.lists import Hits
from retrievers.ranking import offsets_of, order_by_score, ranges, ranks, rounded
from retrievers.redundancy import Similarity
from retrievers.retriever import Alive, DocumentStore, no_heartbeat
from retrievers.settings import FuseSettings

MERGE_VERSION = 1  # incremented when the same lists would be merged otherwise; part of the fingerprint of a run that merges
ALL = 1 << 30  # more candidates than a query has
NO_COLLECTIONS: Mapping[str, str] = {}
_BETWEEN = ":"  # collection and id; no name of a collection has it


def qualified_id(collection: str, doc_id: str) -> str:
    """Returns what a document of a collection is called."""
    return f"{collection}{_BETWEEN}{doc_id}"


def id_parts(doc_id: str) -> tuple[str, str]:
    """Returns what stands before and behind the first colon: of a qualified id its collection and the id there.

    Without a colon the first is empty.
    """
    collection, between, own = doc_id.partition(_BETWEEN)
    return (collection, own) if between else ("", doc_id)


def qualified(doc_ids: pa.StringArray, found_by: pa.StringArray, collections: Mapping[str, str]) -> pa.StringArray:
    """Returns ids with the collection of the retriever that found each; as they are without collections.

    Args:
        doc_ids: As their indexes have them.
        found_by: The retriever of each.
        collections: Retriever -> its collection.
    """
    if not collections:
        return doc_ids
    encoded = found_by.dictionary_encode()
    names = pa.array([collections[name] for name in encoded.dictionary.to_pylist()], pa.string())
    return pc.binary_join_element_wise(names.take(encoded.indices), doc_ids, _BETWEEN)


class CollectionDocuments:
    """The documents of several collections, by qualified ids."""

    def __init__(self, stores: Mapping[str, DocumentStore]) -> None:
        """`stores`: those of each collection."""
        self._stores = stores

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        """Returns the indexed text of each document, from the index of its collection.

        Raises:
            RetrieverError: It is in none.
        """
        return self._read(doc_ids, lambda store, own: store.texts(own, alive))

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        """Returns where each document is from, as the index of its collection has it."""
        return self._read(doc_ids, lambda store, own: store.places(own))

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        """Returns whether each document is in the index of its collection; of an id without a collection False."""
        found = [False] * len(doc_ids)
        for collection, places in self._by_collection(doc_ids).items():
            if collection in self._stores:
                own = [id_parts(doc_ids[place])[1] for place in places]
                for place, known in zip(places, self._stores[collection].known(own), strict=True):
                    found[place] = known
        return found

    def some(self, count: int) -> list[str]:
        """Returns the indexed texts of some documents of each collection."""
        return [text for store in self._stores.values() for text in store.some(count)]

    def _read(self, doc_ids: Sequence[str], read: Callable[[DocumentStore, list[str]], list[str]]) -> list[str]:
        found = [""] * len(doc_ids)
        for collection, places in self._by_collection(doc_ids).items():
            own = [id_parts(doc_ids[place])[1] for place in places]
            for place, words in zip(places, read(self._stores[collection], own), strict=True):
                found[place] = words
        return found

    @staticmethod
    def _by_collection(doc_ids: Sequence[str]) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for place, doc_id in enumerate(doc_ids):
            places.setdefault(id_parts(doc_id)[0], []).append(place)
        return places


def all_documents(stores: Mapping[str, DocumentStore]) -> DocumentStore:
    """Returns the documents of all collections; of "" alone those that no collection has, by their own ids."""
    return stores[""] if "" in stores else CollectionDocuments(stores)


def fuse_collections(
    hits: Hits, settings: FuseSettings, similarity: Similarity | None = None, collections: Mapping[str, str] = NO_COLLECTIONS
) -> Fused:
    """Returns the candidates of each query: `fuse` of the lists of each collection, merged; without collections that of all.

    `collections` has retriever -> its collection; the `hits` have qualified ids.
    """
    if not collections:
        return fuse(hits, settings, similarity)
    names = sorted(name for name in set(collections.values()) if settings.collection_weights.get(name, 1.0) > 0)
    keep = ALL if settings.collections == "minmax" else settings.keep  # the lowest score is that of the whole list
    inside = settings.model_copy(update={"keep": keep})
    of_retriever = np.array([collections[name] for name in hits.retrievers], dtype=object)
    parts = []
    for name in names:
        mine = (of_retriever == name)[hits.retriever] if len(hits.retrievers) else np.zeros(0, dtype=bool)
        # a list without hits takes no part, nor is it compared with others
        parts.append(fuse(hits._replace(lengths=np.where(mine, hits.lengths, 0)), inside, similarity))
    return _merged(parts, [settings.collection_weights.get(name, 1.0) for name in names], settings)


def _merged(parts: Sequence[Fused], weights: Sequence[float], settings: FuseSettings) -> Fused:
    """Returns the fused lists of collections as one, cut to `settings.keep`; equal scores by doc_id."""
    queries = len(parts[0].offsets) - 1
    query = np.concatenate([np.repeat(np.arange(queries), np.diff(one.offsets)) for one in parts])
    values = [weight * _value(one, settings) for weight, one in zip(weights, parts, strict=True)]
    scores, pairs = rounded(np.concatenate(values)), np.concatenate([one.pairs for one in parts])
    order = order_by_score(query, scores, pairs)  # pairs are sorted by query and document
    order = order[ranks(np.bincount(query, minlength=queries)) <= settings.keep]
    bases = np.cumsum([0, *(len(one.source_list) for one in parts)])
    begins = np.concatenate([base + one.source_offsets[:-1] for base, one in zip(bases, parts, strict=False)])[order]
    sizes = np.concatenate([np.diff(one.source_offsets) for one in parts])[order]
    sources = ranges(begins, sizes)
    return Fused(
        offsets_of(np.bincount(query[order], minlength=queries)),
        pa.concat_arrays([one.doc_ids for one in parts]).take(pa.array(order)),
        scores[order],
        offsets_of(sizes),
        np.concatenate([one.source_list for one in parts])[sources],
        np.concatenate([one.source_rank for one in parts])[sources],
        np.concatenate([one.source_score for one in parts])[sources],
        np.logical_or.reduce([one.stood_in for one in parts]),
        parts[0].overlap,  # of the queries, the same in each
        pairs[order],
    )


def _value(fused: Fused, settings: FuseSettings) -> np.ndarray:
    """Returns what each candidate of a collection counts without its weight."""
    lengths = np.diff(fused.offsets)
    if settings.collections == "rank":
        by_rank: np.ndarray = 1 / (settings.k + ranks(lengths))
        return by_rank
    if settings.collections == "score" or not len(fused.scores):
        return fused.scores
    filled = lengths > 0
    high = np.repeat(fused.scores[fused.offsets[:-1][filled]], lengths[filled])
    low = np.repeat(fused.scores[fused.offsets[1:][filled] - 1], lengths[filled])
    # with equal scores, or one document, all are the best of their collection
    share: np.ndarray = np.divide(fused.scores - low, high - low, out=np.ones_like(fused.scores), where=high > low)
    return share
