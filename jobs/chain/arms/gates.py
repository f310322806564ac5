"""Gates of arms, by which the originals are searched before rewriting."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.chain.arms.opened import digest
from retrievers.settings import TypoSettings
from rewriters.scores.gate import GateSettings


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
