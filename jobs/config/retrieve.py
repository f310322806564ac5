"""The section `retrieve` of the config."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, model_validator

from cluster.errors import nearest
from cluster.settings import NOT_IDENTITY, Settings
from retrievers.kinds import AnyRetrieverSettings

ORIGINAL, REFINED = "original", "iterate"


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
        names = self.routes.get(strategy, list(self.retrievers))
        return names if strategy == ORIGINAL else [name for name in names if not self.retrievers[name].originals_only]

    def routed(self, strategies: Iterable[str]) -> dict[str, list[str]]:
        """Returns `routes` with those of strategies that not all retrievers are searched for."""
        some = any(one.originals_only for one in self.retrievers.values())
        found = {name: self.route(name) for name in (*strategies, REFINED)} if some else {}
        return self.routes | {name: names for name, names in found.items() if len(names) < len(self.retrievers)}

    @property
    def text_retriever(self) -> str:
        """Returns the first retriever with an index, which has the texts of documents; those of the web come with its hits."""
        return next((name for name, one in self.retrievers.items() if one.indexed(name)), next(iter(self.retrievers)))

    @property
    def members(self) -> list[str]:
        """Returns the names of the indexes of unions, each once; "" among them where others are searched."""
        return list(dict.fromkeys(one.member(key) for name, one in self.retrievers.items() for key in one.indexed(name)))
