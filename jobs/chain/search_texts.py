"""Texts by which the queries of a block are searched: each by itself, those of a strategy as one, or all of a query as one."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.tables import ORIGINAL
from retrievers.fusion import list_weight, takes_part
from retrievers.lists import TOGETHER
from retrievers.retriever import JoinedText, SearchText
from retrievers.settings import FuseSettings
from rewriters.query import Query


class Text(NamedTuple):
    """The text of one search, and the values that its list has in fusion.

    Attributes:
        row: Of the query in the block.
        number: Among the texts of the row: the original 0, then the rewrites in order, those of a strategy with `as_one` as
            one; -1: all of a query as one.
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
        """Returns the number of texts that have no search of their own because of it."""
        if isinstance(self.search, SearchText):
            return 1
        # the original has a list of its own beside that of a strategy
        return len(self.search.texts if self.strategy == TOGETHER else self.search.rewrites)


def queries_of(table: pa.Table) -> list[Query]:
    """Returns the queries of a block."""
    columns = (table.column(name).to_pylist() for name in ("query_id", "query", "context", "values"))
    return [
        Query(query_id, text, context, dict(values or ())) for query_id, text, context, values in zip(*columns, strict=True)
    ]


def query_texts(row: int, query: str, rewrites: Iterable[Mapping[str, Any]], as_one: Mapping[str, str]) -> list[Text]:
    """Returns the texts of a query: the original, then the rewrites in order, those of a strategy with `as_one` as one.

    That one stands in the place of the first of them, and has its position and weight.

    Args:
        row: Of the query in the block.
        query: As it is searched.
        rewrites: Rows of rewrites/.
        as_one: Strategy -> "with_original" or "texts" (`rewriters.strategy.Strategy.as_one`).
    """
    original, parts_of = SearchText(query, "query"), dict[tuple[str, int], list[SearchText]]()
    firsts: dict[tuple[str, int], Mapping[str, Any]] = {}
    for entry in rewrites:
        key = entry["strategy"], 0 if entry["strategy"] in as_one else entry["position"]
        firsts.setdefault(key, entry)
        parts_of.setdefault(key, []).append(SearchText(entry["text"], entry["search_as"]))
    texts = [Text(row, 0, ORIGINAL, 1, 1.0, 1.0, original)]
    for number, (key, entry) in enumerate(firsts.items(), start=1):
        with_original = as_one.get(key[0]) == "with_original"
        parts = tuple(parts_of[key])
        search = JoinedText(original if with_original else None, parts) if with_original or len(parts) > 1 else parts[0]
        texts.append(Text(row, number, entry["strategy"], entry["position"], entry["weight"], entry["position_weight"], search))
    return texts


def joined(texts: Sequence[Text], retriever: str, settings: FuseSettings) -> list[Text]:
    """Returns the texts that a retriever with `together` is searched with: one per row.

    It joins the texts whose lists would have a weight above 0, and its weight is the sum of theirs, without that of the
    retriever. Such a list of a strategy with `as_one: with_original` brings the original, whatever the weight of its own list.
    A single text of that kind keeps its name; without any the original is searched.

    Args:
        texts: Those that are routed to the retriever, row by row.
        retriever: Its name.
        settings: The config's `fuse`.
    """
    joined_texts = []
    for row, of_row in groupby(texts, key=attrgetter("row")):
        routed = list(of_row)
        fused = [one for one in routed if takes_part(settings, one.strategy, retriever, one.weight, one.position_weight)]
        if len(fused) < 2:
            joined_texts += fused or [one for one in routed if one.strategy == ORIGINAL]
            continue
        weight = sum(list_weight(settings.weights, t.strategy, retriever, t.weight) * t.position_weight for t in fused)
        original = next(filter(None, map(_original_of, fused)), None)
        rewrites = [part for one in fused if one.strategy != ORIGINAL for part in rewrites_of(one.search)]
        joined_texts.append(Text(row, -1, TOGETHER, 1, weight, 1.0, JoinedText(original, tuple(rewrites))))
    return joined_texts


def _original_of(text: Text) -> SearchText | None:
    """Returns the original in what a text is searched with: itself, or that of a strategy that is searched with it."""
    if isinstance(text.search, JoinedText):
        return text.search.original
    return text.search if text.strategy == ORIGINAL else None


def rewrites_of(search: SearchText | JoinedText) -> tuple[SearchText, ...]:
    """Returns the texts of a search of rewrites, without the original that a strategy's may have beside them."""
    return (search,) if isinstance(search, SearchText) else search.rewrites
