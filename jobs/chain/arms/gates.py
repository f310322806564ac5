"""What arms search before they rewrite, each once: by their gates, and for strategies that read lists of the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.chain.arms.corpora import Corpus
from jobs.chain.arms.opened import digest
from retrievers.settings import TypoSettings
from rewriters.scores.gate import GateSettings

if TYPE_CHECKING:
    from rewriters.python.given import Reads


@dataclass(frozen=True)
class RewriteGate:
    """A gate of arms.

    Attributes:
        settings: Its thresholds. Quantiles are numbers in workers.
        retriever: Key of `SharedWork.retrievers`.
        typos: In the originals, as they are searched.
    """

    settings: GateSettings
    retriever: str
    typos: TypoSettings | None = None

    @property
    def key(self) -> str:
        """Returns what tells it from others."""
        return digest([self.settings.model_dump(), self.retriever, self.typos and self.typos.model_dump()])


@dataclass(frozen=True)
class ReadLists:
    """The lists of the original that a strategy of an arm reads.

    Attributes:
        reads: What of them.
        retrievers: Name in the arm -> key of `SharedWork.retrievers`.
        documents: Name in the arm -> where the texts of its documents are.
        typos: In the originals, as they are searched.
        known_by: What tells what is read from other lists.
    """

    reads: Reads
    retrievers: Mapping[str, str]
    documents: Mapping[str, tuple[Corpus, ...]]
    typos: TypoSettings | None
    known_by: str


@dataclass(frozen=True)
class Before:
    """What an arm searches before it rewrites.

    Attributes:
        gate: Its gate; None: it has none, or rewrites nothing.
        lists: Strategy -> what it reads.
    """

    gate: RewriteGate | None = None
    lists: Mapping[str, ReadLists] = field(default_factory=dict)
