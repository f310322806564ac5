"""A config whose queries are rewritten and not searched, so that neither an index nor a model of later stages is needed."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from jobs.chain.arms.arms import STEPS
from jobs.config.config import Config
from jobs.job.pools import searched_first
from retrievers.kinds import WithoutIndex
from retrievers.settings import RerankSettings


class NotSearched(WithoutIndex):
    """Stands for a retriever that is not searched."""

    opener: ClassVar[str] = __name__
    kind: Literal["unsearched"] = "unsearched"
    """This kind, which no config names."""


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
