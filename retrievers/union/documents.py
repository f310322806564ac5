"""Documents of several indexes: two may call two documents by one id, so each is called `law:doc1`, by its index and its id."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import RetrieverError
from retrievers.retriever import Alive, DocumentStore, no_heartbeat

Value = TypeVar("Value")
_BETWEEN = ":"  # member and id; no name of a member has it


def qualified(member: str, doc_ids: pa.StringArray) -> pa.StringArray:
    """Returns ids with the name of their index."""
    return pc.binary_join_element_wise(pa.scalar(member), doc_ids, _BETWEEN)


def id_parts(doc_id: str) -> tuple[str, str]:
    """Returns the name of the index of a qualified id, and the id there."""
    member, _, own = doc_id.partition(_BETWEEN)
    return member, own


class UnionDocuments:
    """The documents of several indexes, by qualified ids; implements `retrievers.retriever.DocumentStore`."""

    def __init__(self, stores: Mapping[str, DocumentStore]) -> None:
        """Takes the documents of each index by name."""
        self._stores = stores
        self.entry = {"corpus": {name: getattr(one, "entry", {}).get("corpus") for name, one in stores.items()}}

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        return self._read(doc_ids, lambda store, own: store.texts(own, alive))

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        return self._read(doc_ids, lambda store, own: store.places(own))

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        named = [doc_id for doc_id in doc_ids if id_parts(doc_id)[0] in self._stores]
        known = dict(zip(named, self._read(named, lambda store, own: store.known(own)), strict=True))
        return [known.get(doc_id, False) for doc_id in doc_ids]

    def some(self, count: int) -> list[str]:
        return [text for store in self._stores.values() for text in store.some(count)]

    def _read(self, doc_ids: Sequence[str], read: Callable[[DocumentStore, list[str]], list[Value]]) -> list[Value]:
        own: dict[str, list[str]] = {}
        for doc_id in doc_ids:
            member, doc_id_there = id_parts(doc_id)
            if member not in self._stores:
                known = " or ".join(f"{name}:" for name in self._stores)
                raise RetrieverError("index-other", f"no document {doc_id!r}: ids of this union begin with {known}")
            own.setdefault(member, []).append(doc_id_there)
        values = {member: iter(read(self._stores[member], ids)) for member, ids in own.items()}
        return [next(values[id_parts(doc_id)[0]]) for doc_id in doc_ids]


def all_documents(stores: Mapping[str, DocumentStore]) -> DocumentStore:
    """Returns the documents of the indexes of a union; of "" alone those of one index, by their own ids."""
    return stores[""] if "" in stores else UnionDocuments(stores)
