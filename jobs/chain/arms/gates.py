"""The gates of arms: which queries an arm rewrites at all (`rewrite.gate`), each gate once, whichever arms have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.chain.arms.opened import digest
from retrievers.settings import TypoSettings
from rewriters.scores.gate import GateSettings

if TYPE_CHECKING:
    from jobs.config.config import Config


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


def gate_of(config: Config, retrievers: Mapping[str, str]) -> RewriteGate | None:
    """Returns the gate of an arm; `retrievers`: name in the arm -> key. None: it has none, or rewrites nothing."""
    settings = config.rewrite.gated
    return None if settings is None else RewriteGate(settings, retrievers[settings.by], config.retrieve.typos)
