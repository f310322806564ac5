"""A config whose queries are rewritten and not searched, so that neither an index nor a model of later stages is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

from jobs.chain.arms.arms import STEPS
from jobs.config.config import Config
from jobs.job.strategies import searched_first
from retrievers.kinds import RetrieverSettings
from retrievers.settings import RerankSettings


class NotSearched(RetrieverSettings):
    """Stands for a retriever that is not searched."""

    opener: ClassVar[str] = __name__
    kind: Literal["unsearched"] = "unsearched"
    """This kind, which no config names."""

    def indexed(self, name: str) -> dict[str, RetrieverSettings]:
        """Returns nothing: no index is looked at."""
        return {}

    def with_indexed(self, name: str, change: Callable[[str, RetrieverSettings], RetrieverSettings]) -> Self:
        """Returns itself: no index is looked at."""
        return self

    def facts_of(
        self, name: str, identities: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Returns nothing: there is no index to tell of."""
        return {}


def retriever_identity(name: str, settings: NotSearched) -> dict[str, Any]:
    """Returns its kind."""
    return {"kind": settings.kind}


def rewriting_alone(config: Config) -> Config:
    """Returns a config that rewrites as this one does, and does nothing else.

    One with a gate is returned as it is, since originals are searched before.
    """
    if searched_first(config):
        return config
    retrievers = {name: NotSearched() for name in config.retrieve.retrievers}
    later = dict.fromkeys((*STEPS, "judge"))
    return config.model_copy(
        update=later
        | {
            "retrieve": config.retrieve.model_copy(update={"retrievers": retrievers, "store": False}),
            "rerank": RerankSettings(kind="none"),
        }
    )
