"""The texts that the queries of a block are searched with: each by itself, or all texts of a query as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa

from jobs.tables import ORIGINAL
from retrievers.fusion import list_weight, takes_part
from retrievers.lists import TOGETHER
from retrievers.retriever import JoinedText, SearchText
from retrievers.settings import FuseSettings, TypoSettings
from retrievers.typos import with_typos


class Text(NamedTuple):
    """What one search is made with, and the values that its list has in fusion.

    Attributes:
        row: Of the query in the block.
        number: Among the texts of the row: the original 0, then the rewrites in order; -1: several of them as one.
        strategy: Of the text.
        position: Of the text within its strategy, from 1.
        weight: Of the strategy; `fuse.weights` may replace it.
        position_weight: Multiplies the weight.
        search: What the retriever is given.
    """

    row: int
    number: int
    strategy: str
    position: int
    weight: float
    position_weight: float
    search: SearchText | JoinedText

    @property
    def texts(self) -> int:
        """Returns the number of texts that the search stands for."""
        return 1 if isinstance(self.search, SearchText) else len(self.search.texts)


def originals(table: pa.Table, typos: TypoSettings | None) -> list[str]:
    """Returns the texts with which the queries of a block are searched and reranked: as they were asked, or with typos."""
    queries: list[str] = table.column("query").to_pylist()
    if typos is None:
        return queries
    keys = table.column("query_id").to_pylist()
    return [with_typos(query, key, typos) for query, key in zip(queries, keys, strict=True)]


def block_texts(table: pa.Table, typos: TypoSettings | None = None) -> list[Text]:
    """Returns the texts of a block, row by row: the original, with its typos, then the rewrites in order."""
    texts = []
    rows = zip(originals(table, typos), table.column("rewrites").to_pylist(), strict=True)
    for row, (query, rewrites) in enumerate(rows):
        texts.append(Text(row, 0, ORIGINAL, 1, 1.0, 1.0, SearchText(query, "query")))
        for number, one in enumerate(rewrites, start=1):
            search = SearchText(one["text"], one["search_as"])
            texts.append(Text(row, number, one["strategy"], one["position"], one["weight"], one["position_weight"], search))
    return texts


def joined(texts: Sequence[Text], retriever: str, settings: FuseSettings) -> list[Text]:
    """Returns what a retriever with `together` is searched with: one text per row.

    It joins the texts whose lists would have a weight above 0, and its weight is the sum of theirs, without that of the
    retriever. A single text of that kind keeps its name; without any the original is searched.

    Args:
        texts: Those that are routed to the retriever, row by row.
        retriever: Its name.
        settings: The config's `fuse`.
    """
    found = []
    for row, of_row in groupby(texts, key=attrgetter("row")):
        routed = list(of_row)
        fused = [one for one in routed if takes_part(settings, one.strategy, retriever, one.weight, one.position_weight)]
        if len(fused) < 2:
            found += fused or [one for one in routed if one.strategy == ORIGINAL]
            continue
        weight = sum(list_weight(settings.weights, t.strategy, retriever, t.weight) * t.position_weight for t in fused)
        singles = [one.search for one in fused if isinstance(one.search, SearchText)]
        original = singles.pop(0) if fused[0].strategy == ORIGINAL else None
        found.append(Text(row, -1, TOGETHER, 1, weight, 1.0, JoinedText(original, tuple(singles))))
    return found
