"""Retrievers of `kind: hybrid` and `union`: several retrievers search each text, and their lists become one.

`retrieve.retrievers` fuses all lists of a query; these fuse those of one text, before anything else. To every stage they are
one retriever with one list per text. The documents of a union's retrievers are apart: their ids are qualified.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import RetrieverError
from retrievers import retriever
from retrievers.fusion import fuse
from retrievers.hybrid.settings import PartsSettings
from retrievers.kinds import RetrieverSettings, part_name
from retrievers.lists import ORIGINAL, Lists, by_document
from retrievers.settings import FuseSettings

Value = TypeVar("Value")
_BETWEEN = ":"  # member and id of a document of a union: two indexes may call two documents by one id; no member has it


class Hybrid:
    """Several retrievers as one; implements `retrievers.retriever.Retriever`."""

    def __init__(self, settings: PartsSettings, parts: Mapping[str, retriever.Retriever], identity: dict[str, Any]) -> None:
        """Takes the open retrievers of `settings.of`."""
        self._settings, self._parts, self._identity = settings, parts, identity
        self._seconds = dict.fromkeys(parts, 0.0)

    def identity(self) -> dict[str, Any]:
        return self._identity

    def search(
        self, texts: Sequence[retriever.Search], depth: int, alive: retriever.Alive = retriever.no_heartbeat
    ) -> retriever.RankedLists:
        lists = []
        for name, part in self._parts.items():
            began = perf_counter()
            searched = part.search(texts, self._settings.own_depth or depth, alive)
            if member := self._settings.member(name):
                ids = pc.binary_join_element_wise(pa.scalar(member), searched.doc_ids, _BETWEEN)
                searched = searched._replace(doc_ids=ids)
            lists.append(searched)
            self._seconds[name] += perf_counter() - began
        return fused_lists(lists, self._settings.fusion(depth))

    def take_seconds(self) -> dict[str, float]:
        """Returns the seconds that each of its retrievers has searched since the last call."""
        taken, self._seconds = self._seconds, dict.fromkeys(self._parts, 0.0)
        return taken


def search_shares(opened: retriever.Retriever, names: Collection[str]) -> list[float]:
    """Returns the share of each of `search_names` in the time of searches since the last call, equal where it is unknown."""
    seconds = list(opened.take_seconds().values()) if isinstance(opened, Hybrid) else []
    return [one / sum(seconds) for one in seconds] if sum(seconds) else [1 / len(names)] * len(names)


class DenseHybrid(Hybrid):
    """A hybrid with a dense retriever; implements `retrievers.retriever.Embedder`, too."""

    def embed(self, texts: Sequence[retriever.SearchText]) -> np.ndarray:
        return next(part for part in self._parts.values() if isinstance(part, retriever.Embedder)).embed(texts)


def fused_lists(lists: Sequence[retriever.RankedLists], settings: FuseSettings) -> retriever.RankedLists:
    """Fuses each retriever's lists of the same texts into one per text, best first, equal scores by doc_id."""
    count = len(lists[0].offsets) - 1
    every = count * len(lists)
    bases = np.cumsum([0, *(len(one.scores) for one in lists)])
    flat = Lists(
        query=np.tile(np.arange(count), len(lists)),
        strategy=pa.array([ORIGINAL] * every, pa.string()),
        position=np.repeat(np.arange(len(lists)), count),
        retriever=pa.array([""] * every, pa.string()),
        text=np.zeros(every, dtype=np.int32),
        weight=np.ones(every),
        position_weight=np.ones(every),
        offsets=np.concatenate([[0], *(one.offsets[1:] + base for one, base in zip(lists, bases, strict=False))]),
        doc_ids=pa.concat_arrays([one.doc_ids for one in lists]),
        scores=np.concatenate([one.scores for one in lists]),
    )
    fused = fuse(by_document(flat, count), settings)
    return retriever.RankedLists(fused.offsets, fused.doc_ids, fused.scores)


def open_retriever(
    name: str, settings: PartsSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> retriever.Retriever:
    """Opens every retriever that it is made of; see `retrievers.retriever.open_retriever`."""
    identities = (expect_identity or {}).get("of", {})
    parts = {
        part: retriever.open_retriever(part_name(name, part), block, device=device, expect_identity=identities.get(part))
        for part, block in settings.of.items()
    }
    of_parts = {part_name(name, part): retriever.with_code(settings.of[part], one.identity()) for part, one in parts.items()}
    identity = settings.identity_of(name, of_parts)
    retriever.check_planned(f"retrieve.retrievers.{name}: an index", expect_identity, identity)
    return (Hybrid if settings.encoder is None else DenseHybrid)(settings, parts, identity)


def open_documents(name: str, settings: PartsSettings, *, patient: bool = False) -> retriever.DocumentStore:
    """Opens the documents of a union's retrievers, of a hybrid's first; see `retrievers.retriever.open_documents`."""
    first: dict[str, tuple[str, RetrieverSettings]] = {}
    for key, settings_of in settings.indexed(name).items():
        first.setdefault(settings.member(key), (key, settings_of))
    return all_documents({member: retriever.open_documents(*part, patient=patient) for member, part in first.items()})


class UnionDocuments:
    """The documents of several indexes, by qualified ids; implements `retrievers.retriever.DocumentStore`."""

    def __init__(self, stores: Mapping[str, retriever.DocumentStore]) -> None:
        """Takes the documents of each index by name."""
        self._stores = stores
        self.entry = {"corpus": {name: getattr(one, "entry", {}).get("corpus") for name, one in stores.items()}}

    def texts(self, doc_ids: Sequence[str], alive: retriever.Alive = retriever.no_heartbeat) -> list[str]:
        return self._read(doc_ids, lambda store, own: store.texts(own, alive))

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        return self._read(doc_ids, lambda store, own: store.places(own))

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        named = [doc_id for doc_id in doc_ids if doc_id.partition(_BETWEEN)[0] in self._stores]
        known = dict(zip(named, self._read(named, lambda store, own: store.known(own)), strict=True))
        return [known.get(doc_id, False) for doc_id in doc_ids]

    def some(self, count: int) -> list[str]:
        return [text for store in self._stores.values() for text in store.some(count)]

    def _read(self, doc_ids: Sequence[str], read: Callable[[retriever.DocumentStore, list[str]], list[Value]]) -> list[Value]:
        own: dict[str, list[str]] = {}
        for doc_id in doc_ids:
            member, _, own_id = doc_id.partition(_BETWEEN)
            if member not in self._stores:
                known = " or ".join(f"{name}:" for name in self._stores)
                raise RetrieverError("index-other", f"no document {doc_id!r}: ids of this union begin with {known}")
            own.setdefault(member, []).append(own_id)
        values = {member: iter(read(self._stores[member], ids)) for member, ids in own.items()}
        return [next(values[doc_id.partition(_BETWEEN)[0]]) for doc_id in doc_ids]


def all_documents(stores: Mapping[str, retriever.DocumentStore]) -> retriever.DocumentStore:
    """Returns the documents of the indexes of a union; of "" alone those of one index, by their own ids."""
    return stores[""] if "" in stores else UnionDocuments(stores)
