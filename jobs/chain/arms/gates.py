"""Gates of arms, by which the originals are searched before rewriting."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.chain.arms.opened import digest
from rewriters.gate import GateSettings


@dataclass(frozen=True)
class RewriteGate:
    """A gate of arms.

    Attributes:
        settings: Its retriever and threshold.
        retriever: Key of `SharedWork.retrievers`.
    """

    settings: GateSettings
    retriever: str

    @property
    def key(self) -> str:
        """Returns what tells it from others."""
        return digest([self.settings.model_dump(), self.retriever])
