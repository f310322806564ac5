"""Settings of retrievers of `kind: union`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from retrievers.hybrid.settings import PartsSettings
from retrievers.kinds import IndexSettings
from retrievers.settings import FuseSettings, MemberName

_METHODS: dict[str, Literal["best", "rrf"]] = {"score": "best", "rrf": "rrf"}


class UnionSettings(PartsSettings):
    """Several indexes that are searched as one; a document is called by the name of its index and its id there, `law:doc1`."""

    qualifies: ClassVar[bool] = True
    kind: Literal["union"]
    """This kind."""
    of: Annotated[dict[MemberName, IndexSettings], Field(min_length=1)]
    """A name chosen by you -> the settings of a retriever, as in `retrieve.retrievers`; its index is built of `corpus.<name>`.
    Unions with the same names have the same documents. With a dense one the union counts as dense."""
    merge: Literal["rrf", "score"] = "rrf"
    """rrf: the best of each index are equally good; score: scores of all indexes have one scale, as those of one encoder."""

    @property
    def is_approximate(self) -> bool:
        """Returns whether a deeper search of one of its indexes may find other documents, too."""
        return any(one.is_approximate for one in self.of.values())

    def member(self, key: str) -> str:
        """Returns the name of one of `indexed`, by its key."""
        return key.rpartition(".")[2]

    def fusion(self, depth: int) -> FuseSettings:
        """Returns how its lists of a text are merged."""
        return FuseSettings(method=_METHODS[self.merge], depth=depth, keep=depth, redundancy="none")
