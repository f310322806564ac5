"""What code of the user is given: a query, and by choice the first hits of the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from cluster.settings import FROZEN
from rewriters.query import Query


class Reads(BaseModel):
    """What a strategy reads of the lists of the original, which are then searched before it is asked."""

    model_config = FROZEN

    documents: Annotated[int, Field(ge=1, le=1000)] = 10
    """Of each list: the first so many."""
    by: tuple[str, ...] = ()
    """The retrievers whose lists; (): the first of the config that has a list of the original alone."""
    texts: bool = True
    """Whether it reads the texts of the documents, too, and not only their ids and scores."""


class FirstHit(NamedTuple):
    """A document of a list of the original.

    Attributes:
        doc_id: Of the document.
        score: The retriever's.
        text: As it is indexed, behind its title; None where the strategy does not read texts.
    """

    doc_id: str
    score: float
    text: str | None = None


FirstLists = Mapping[str, Sequence[FirstHit]]
"""Name of a retriever -> the first hits of its list of the original, best first."""


@dataclass(frozen=True, eq=False)
class GivenQuery:
    """What code is given for one query.

    Attributes:
        query: As a prompt would show it: personal data are masked as the config says.
        lists: Returns the lists of several queries, None of one whose search has failed, where the code reads some; None: it
            reads none, or a plan looks for its texts alone.
    """

    query: Query
    lists: Callable[[Sequence[GivenQuery]], Sequence[FirstLists | None]] | None = None
