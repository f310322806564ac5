"""How one text of each query is chosen by predicted performance: `rewrite.select: {kind: qpp}`.

Of the original and what its strategies search, the text with the best prediction is searched and fused, the others are not. The
original is always searched, for comparison with it; where another text is chosen, its lists have the weight 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.config.config import Config


@dataclass(frozen=True)
class Choosing:
    """How texts are chosen; a value that workers are given.

    Attributes:
        predictor: A key of `retrievers.predictors.PREDICTORS`.
        retriever: Name of the retriever whose index has the terms; in an ablation its key in `SharedWork.retrievers`.
    """

    predictor: str
    retriever: str


def choosing_of(config: Config, key: Callable[[str], str] = str) -> Choosing | None:
    """Returns how a config chooses one text of each query; None: all are searched.

    Args:
        config: Checked: it has a lexical retriever.
        key: Returns what a retriever is known by, from its name.
    """
    from retrievers.predictors import lexical_retriever  # here: workers are given a Choosing, and need no index for it

    retriever = lexical_retriever(config.retrieve.retrievers)
    if config.rewrite.predictor is None or retriever is None:
        return None
    return Choosing(config.rewrite.predictor, key(retriever))
