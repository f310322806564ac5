"""Settings of retrievers of `kind: union`."""

from typing import Annotated, Literal

from pydantic import Field

from retrievers.hybrid.settings import PartsSettings
from retrievers.kinds import IndexSettings
from retrievers.settings import FuseSettings, MemberName


class UnionSettings(PartsSettings):
    """Several indexes searched as one; a document is called `law:doc1`, by its index and its id there."""

    kind: Literal["union"]
    of: Annotated[dict[MemberName, IndexSettings], Field(min_length=1)]
    """A name of your choice -> settings of a retriever, whose index is built from `corpus.<name>`."""
    merge: Literal["rrf", "score"] = "rrf"
    """rrf: by rank, documents of the indexes alternate; score: by score, for indexes with one scale."""

    @property
    def is_approximate(self) -> bool:
        return any(one.is_approximate for one in self.of.values())

    def member(self, key: str) -> str:
        return key.rpartition(".")[2]

    def fusion(self, depth: int) -> FuseSettings:
        method: Literal["best", "rrf"] = "best" if self.merge == "score" else "rrf"
        return FuseSettings(method=method, depth=depth, keep=depth, redundancy="none")
