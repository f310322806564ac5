"""The section `retrieve` of the config."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, model_validator

from cluster.errors import nearest
from cluster.settings import NOT_IDENTITY, Settings
from jobs.config.collections import EVERYWHERE, ORIGINAL, REFINED, Collections, check_retrievers, searches
from retrievers.kinds import AnyRetrieverSettings


class RetrieveSettings(Settings):
    """How the queries and their rewrites are searched."""

    retrievers: dict[str, AnyRetrieverSettings]
    """A name chosen by you -> the retriever's settings."""
    depth: Annotated[int, Field(gt=0)] = 100
    """Hits fetched per list."""
    keep_runs: bool = True
    """Write every list to runs/."""
    routes: dict[str, list[str]] = {}
    """Strategy (or `original`) -> names of the retrievers that search its texts; default: all."""
    collections: Collections = {}
    """A name chosen by you -> retrievers over documents of their own: lists are fused inside each, then merged as
    `fuse.collections` says, and a document is called `law:doc1`. {}: all retrievers search the same documents."""
    store: Annotated[bool | None, NOT_IDENTITY] = None
    """Keep lists, and vectors for redundancy by cosines, in the store; null: but not those of local BM25 indexes, which are
    searched in less time than lists are read."""

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> RetrieveSettings:
        if not self.retrievers:
            raise ValueError("retrievers is empty; name at least one")
        if self.routes.get("original") == []:
            raise ValueError("routes.original is empty, but the original is always retrieved; set fuse.weights.original to 0 "
                             "to keep it out of the results")  # fmt: skip
        for strategy, names in self.routes.items():
            for name in names:
                if name not in self.retrievers:
                    raise ValueError(f"routes.{strategy}: no retriever {name!r}{nearest(name, self.retrievers)}")
        self._check_originals_only()
        check_retrievers(self.collections, self.retrievers, self.routes)
        return self

    def _check_originals_only(self) -> None:
        """Checks that what has lists of the log's queries alone is asked for no other texts."""
        if alone := next((name for name, one in self.retrievers.items() if one.originals_only), None):
            for strategy, names in self.routes.items():
                if strategy != ORIGINAL and alone in names:
                    words = f"{alone} has lists of the log's queries alone; take it out of the route"
                    raise ValueError(f"routes.{strategy}: {words}")

    def route(self, strategy: str) -> list[str]:
        """Returns the names of the retrievers that search a strategy's texts, the original, or refined queries."""
        names = self._route(strategy)
        return names if strategy == ORIGINAL else [name for name in names if not self.retrievers[name].originals_only]

    def _route(self, strategy: str) -> list[str]:
        if strategy in self.routes or strategy in EVERYWHERE or not self.collections:
            return self.routes.get(strategy, list(self.retrievers))
        searched = {name for one in self.collections.values() if searches(one, self.collections, strategy)
                    for name in one.retrievers}  # fmt: skip
        return [name for name in self.retrievers if name in searched]

    def routed(self, strategies: Iterable[str]) -> dict[str, list[str]]:
        """Returns `routes` with those of strategies that some collections, or retrievers, alone are searched for."""
        some = self.collections or any(one.originals_only for one in self.retrievers.values())
        found = {name: self.route(name) for name in (*strategies, REFINED)} if some else {}
        return self.routes | {name: names for name, names in found.items() if len(names) < len(self.retrievers)}

    @property
    def collection_of(self) -> dict[str, str]:
        """Returns retriever -> its collection; empty without collections."""
        return {retriever: name for name, one in self.collections.items() for retriever in one.retrievers}

    @property
    def text_retrievers(self) -> dict[str, str]:
        """Returns collection -> the retriever whose index has the texts of its documents; without collections "" -> it."""
        searched = {name: one.retrievers for name, one in self.collections.items()} or {"": list(self.retrievers)}
        indexed = {name for name, one in self.retrievers.items() if one.indexed(name)}  # texts of the web come with its hits
        return {name: next((one for one in of if one in indexed), of[0]) for name, of in searched.items()}
