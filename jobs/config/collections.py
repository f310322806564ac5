"""Collections: retrievers over documents of their own, and which strategies' texts are searched there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

from pydantic import Field

from cluster.errors import nearest
from cluster.settings import NOT_IDENTITY, Settings
from retrievers.kinds import RetrieverSettings
from retrievers.settings import CorpusSettings, FuseSettings

COLLECTION = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"  # neither what parts it from an id, nor the dot of a key in dotted form
ORIGINAL, REFINED = "original", "iterate"
EVERYWHERE = (ORIGINAL, REFINED)  # texts that every collection is searched for: the original, and refined queries
_DEFAULT = FuseSettings()


class CollectionSettings(Settings):
    """Documents of their own with the retrievers that search them."""

    retrievers: Annotated[list[str], Field(min_length=1)]
    """Names of `retrieve.retrievers`, each of one collection; the index of the first has the texts of the documents."""
    strategies: list[str] | None = None
    """Names of the strategies whose texts are searched here, beside the original; null: all that no collection names."""
    corpus: Annotated[CorpusSettings | None, NOT_IDENTITY] = None
    """Its corpus and the columns of that; null: the columns of `corpus`."""


Collections = dict[Annotated[str, Field(pattern=COLLECTION)], CollectionSettings]
"""A name chosen by you -> the collection."""


def searches(collection: CollectionSettings, collections: Mapping[str, CollectionSettings], strategy: str) -> bool:
    """Returns whether a collection is searched for the texts of a strategy, which is not the original."""
    if collection.strategies is not None:
        return strategy in collection.strategies
    return not any(strategy in (other.strategies or ()) for other in collections.values())


def strategies_in(
    collection: CollectionSettings, route: Callable[[str], Iterable[str]], strategies: Iterable[str]
) -> list[str]:
    """Returns those of the strategies whose texts the collection is searched for; `route` is `RetrieveSettings.route`."""
    return [name for name in strategies if not set(collection.retrievers).isdisjoint(route(name))]


def check_retrievers(
    collections: Mapping[str, CollectionSettings],
    retrievers: Mapping[str, RetrieverSettings],
    routes: Mapping[str, Iterable[str]],
) -> None:
    """Checks that each retriever is of one collection, and that routes lead to where their strategy is searched.

    Raises:
        ValueError: It is not so.
    """
    owners: dict[str, str] = {}
    for name, one in collections.items():
        for retriever in one.retrievers:
            if retriever not in retrievers:
                raise ValueError(f"collections.{name}: no retriever {retriever!r}{nearest(retriever, retrievers)}")
            if retriever in owners:
                of = f"{owners[retriever]} and {name}" if owners[retriever] != name else f"{name} twice"
                raise ValueError(
                    f"collections.{name}: {retriever} is in {of}, but a retriever is of one collection; list it once"
                )
            owners[retriever] = name
    if collections and (without := next((one for one in retrievers if one not in owners), None)):
        raise ValueError(f"collections: {without} is in none; add it to the collection of its documents, or remove it")
    for strategy, names in routes.items() if collections else ():
        for name in names if strategy not in EVERYWHERE else ():
            if not searches(collections[owners[name]], collections, strategy):
                raise ValueError(
                    f"routes.{strategy}: {name} is of collection {owners[name]}, which is not searched for its texts; name it "
                    f"in collections.{owners[name]}.strategies, or take {name} out of the route"
                )


def check_whole(collections: Mapping[str, CollectionSettings], fuse: FuseSettings, strategies: Iterable[str]) -> None:
    """Checks what other sections say of the collections.

    Args:
        collections: The config's.
        fuse: Its `fuse`.
        strategies: The names of its pool.

    Raises:
        ValueError: A name is not known, a strategy is searched nowhere, or there are no collections.
    """
    pool = list(strategies)
    if not collections:
        for key in ("collections", "collection_weights"):
            if getattr(fuse, key) != getattr(_DEFAULT, key):
                raise ValueError(f"fuse.{key}: there are no retrieve.collections to merge; add them, or remove it")
        return
    for name, one in collections.items():
        for strategy in one.strategies or ():
            if strategy not in pool:
                where = f"retrieve.collections.{name}.strategies"
                raise ValueError(f"{where}: {strategy!r} is not among the strategies{nearest(strategy, pool)}")
    for strategy in pool:
        if not any(searches(one, collections, strategy) for one in collections.values()):
            raise ValueError(
                f"rewrite.strategies: {strategy!r} is searched in no collection; name it in the strategies of one, or remove it"
            )
    for name in fuse.collection_weights:
        if name not in collections:
            raise ValueError(f"fuse.collection_weights: no collection {name!r}{nearest(name, collections)}")
    if not any(fuse.collection_weights.get(name, 1.0) for name in collections):
        raise ValueError("fuse.collection_weights: all are 0, so that nothing would be found; give one of them a weight")
