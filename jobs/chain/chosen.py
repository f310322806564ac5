"""One text of each query, by predicted performance: `rewrite.select: {kind: qpp}`.

Of the original and what its strategies search, the text with the best prediction is searched and fused, the others are not. The
original is always searched, for comparison with it; where another text is chosen, its lists have the weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.chain.drift import with_flag
from jobs.chain.search_texts import Text
from jobs.config.config import Config
from retrievers.fusion import takes_part
from retrievers.predictors import lexical_retriever
from retrievers.settings import FuseSettings

NOT_CHOSEN = "not_chosen"  # the flag of `rewrites.guards`


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
    retriever = lexical_retriever(config.retrieve.retrievers)
    if config.rewrite.predictor is None or retriever is None:
        return None
    return Choosing(config.rewrite.predictor, key(retriever))


def choose(
    texts: Sequence[Text],
    scores: np.ndarray,
    rows: int,
    fuse: FuseSettings,
    route: Callable[[str], Collection[str]],
    strategies: Collection[str] | None = None,
) -> np.ndarray:
    """Returns the number of the text of each row that is chosen, shape (rows,), int64.

    It is the one with the highest score, of equal ones the first: the original, then by the order of strategies. Texts without
    a list of weight above 0 do not compete; where none does, the original is chosen, and stands in as always.

    Args:
        texts: Of a block, row by row, the original of each row first.
        scores: Predictions, shape (texts,).
        rows: Of the block.
        fuse: The config's `fuse`.
        route: Returns the names of the retrievers that search a strategy's texts.
        strategies: Those that compete beside the original; None: all.
    """
    numbers, highest = np.zeros(rows, dtype=np.int64), dict[int, float]()
    for text, score in zip(texts, scores.tolist(), strict=True):
        if text.number and strategies is not None and text.strategy not in strategies:
            continue
        weights = text.weight, text.position_weight
        competes = any(takes_part(fuse, text.strategy, name, *weights) for name in route(text.strategy))
        if competes and (text.row not in highest or score > highest[text.row]):
            numbers[text.row], highest[text.row] = text.number, score
    return numbers


def chosen_texts(texts: Sequence[Text], numbers: np.ndarray) -> list[Text]:
    """Returns the chosen text of each row."""
    return [text for text in texts if text.number == numbers[text.row]]


def is_unchosen(rewrite: Mapping[str, Any], chosen: Text, as_one: Collection[str]) -> bool:
    """Returns whether a row of rewrites/ is no part of the text that was chosen.

    Args:
        rewrite: The row.
        chosen: The text of its query.
        as_one: Strategies whose texts make one search.
    """
    other = rewrite["position"] != chosen.position and rewrite["strategy"] not in as_one
    return bool(rewrite["strategy"] != chosen.strategy or other)


def flag_unchosen(table: pa.Table, texts: Sequence[Text], numbers: np.ndarray, as_one: Collection[str]) -> pa.Table:
    """Returns a block whose `rewrites` have the flag `not_chosen` where they were not searched."""
    chosen = chosen_texts(texts, numbers)
    return with_flag(table, NOT_CHOSEN, lambda row, one: is_unchosen(one, chosen[row], as_one))


def chosen_values(texts: Sequence[Text], scores: np.ndarray, numbers: np.ndarray) -> list[dict[str, Any]]:
    """Returns the CHOSEN of each row of a block; a prediction without a known term is null."""
    values: list[dict[str, Any]] = [
        {"strategy": text.strategy, "position": text.position, "predicted": []} for text in chosen_texts(texts, numbers)
    ]
    for text, score in zip(texts, scores.tolist(), strict=True):
        one = {"strategy": text.strategy, "position": text.position, "score": score if np.isfinite(score) else None}
        values[text.row]["predicted"].append(one)
    return values
