"""Settings of retrievers of `kind: trec`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from cluster.settings import NOT_IDENTITY, Names
from retrievers.kinds import RetrieverSettings

if TYPE_CHECKING:
    from retrievers.trec.retriever import GivenLists


class TrecSettings(RetrieverSettings):
    """Lists of another system in a TREC run file; rewrites have none."""

    opener: ClassVar[str] = "retrievers.trec.retriever"
    has_index: ClassVar[bool] = False
    originals_only: ClassVar[bool] = True
    without_index: ClassVar[str] = "has lists that were made elsewhere, so it has no index to build"
    kind: Literal["trec"]
    path: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.TEXT]
    """Run file, also compressed (`.gz`, `.zst`); a topic is a row's `log.id_column`."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Smallest score of a hit that takes part in fusion; null: any."""
    _lists: GivenLists | None = PrivateAttr(None)

    @property
    def lists(self) -> GivenLists | None:
        """Returns the lists of the log's queries; None: they are not read yet."""
        return self._lists

    def with_lists(self, lists: GivenLists) -> Self:
        """Returns a copy that has the lists of the log's queries."""
        copy = self.model_copy()
        copy._lists = lists
        return copy
