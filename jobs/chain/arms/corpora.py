"""Where the texts of an arm's documents are: in one index, or with collections in one of each."""

from __future__ import annotations

from typing import NamedTuple


class Corpus(NamedTuple):
    """Where the texts of documents are.

    Attributes:
        collection: Whose documents they are; "" without collections.
        key: In `SharedWork.retrievers`, of the index that has them.
        identity: Of them as their index has it; None: not checked.
    """

    collection: str
    key: str
    identity: str | None
