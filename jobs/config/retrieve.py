"""The section `retrieve` of the config."""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, model_validator

from cluster.errors import nearest
from cluster.settings import NOT_IDENTITY, Settings
from jobs.tables import ITERATE, ORIGINAL
from retrievers.kinds import AnyRetrieverSettings


class RetrieveSettings(Settings):
    """Search with the queries and their rewrites."""

    retrievers: dict[str, AnyRetrieverSettings]
    """A name of your choice -> settings of a retriever."""
    depth: Annotated[int, Field(gt=0)] = 100
    """Hits per list."""
    keep_runs: bool = True
    """Writes every list to runs/; needed to compare with the original alone."""
    routes: dict[str, list[str]] = {}
    """Strategy (or `original`) -> names of the retrievers that search its texts; default: all."""
    store: Annotated[bool | None, NOT_IDENTITY] = None
    """Keeps lists and vectors in the store; null: all but lists of local BM25 indexes, which are faster to search than to
    read."""

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> Self:
        if not self.retrievers:
            raise ValueError("retrievers is empty; name at least one")
        if self.routes.get("original") == []:
            raise ValueError("routes.original is empty, but the original is always retrieved; set fuse.weights.original to 0 "
                             "to keep it out of the results")  # fmt: skip
        alone = next((name for name, one in self.retrievers.items() if one.originals_only), None)
        for strategy, names in self.routes.items():
            for name in names:
                if name not in self.retrievers:
                    raise ValueError(f"routes.{strategy}: no retriever {name!r}{nearest(name, self.retrievers)}")
            if strategy != ORIGINAL and alone in names:
                what = f"{alone} has lists for the log's queries only; remove it from the route"
                raise ValueError(f"routes.{strategy}: {what}")
        return self

    def route(self, strategy: str) -> list[str]:
        """Returns the names of the retrievers that search a strategy's texts, the original, or refined queries."""
        names = self.routes.get(strategy, list(self.retrievers))
        return names if strategy == ORIGINAL else [name for name in names if not self.retrievers[name].originals_only]

    def routed(self, strategies: Iterable[str]) -> dict[str, list[str]]:
        """Returns `routes` with those of strategies that not all retrievers are searched for."""
        routes = dict(self.routes)
        if any(retriever.originals_only for retriever in self.retrievers.values()):
            every = {name: self.route(name) for name in (*strategies, ITERATE)}
            routes |= {name: names for name, names in every.items() if len(names) < len(self.retrievers)}
        return routes

    @property
    def text_retriever(self) -> str:
        """Returns the first retriever with an index, which has the texts of documents; those of the web come with its hits."""
        return next((name for name, one in self.retrievers.items() if one.indexed(name)), next(iter(self.retrievers)))

    @property
    def members(self) -> list[str]:
        """Returns the names of the indexes of unions, each once; "" among them where others are searched."""
        return list(dict.fromkeys(one.member(key) for name, one in self.retrievers.items() for key in one.indexed(name)))
