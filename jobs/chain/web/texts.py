"""The texts of documents in a block: those of pages of the web, which came with the lists, and the others, from an index.

What a search engine says of a page depends on what it was asked. So an arm takes, for each page of a query, the text of the
first of its own lists that has it: the original's, then by strategy, position and retriever. So does a run of that arm alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.run.stage import heartbeat
from jobs.chain.arms.shared_work import Answer
from jobs.chain.tables import WEB_HIT
from jobs.tables import nested, unnested
from retrievers.fusion import takes_part
from retrievers.lists import ORIGINAL, TOGETHER, Hits, Lists
from retrievers.ranking import offsets_of, ranges
from retrievers.retriever import DocumentStore, distinct
from retrievers.web.hits import indexed_text


class Pages(NamedTuple):
    """The pages of the column `web` of a block.

    Attributes:
        row: Of each.
        place: Index of its list among the `lists` of its row.
        doc_ids: Of each.
        first: The first page of its row with the same doc_id, title and text.
        flat: All of them.
    """

    row: np.ndarray
    place: np.ndarray
    doc_ids: pa.StringArray
    first: np.ndarray
    flat: pa.StructArray

    @property
    def texts(self) -> list[str]:
        """Returns the text of each as documents are indexed."""
        titles, texts = (self.flat.field(name).to_pylist() for name in ("title", "text"))
        return [indexed_text(title or "", text or "") for title, text in zip(titles, texts, strict=True)]


def pages_of(table: pa.Table) -> Pages:
    """Returns the pages of a block."""
    row, flat = unnested(table, "web")
    known: dict[tuple[object, ...], int] = {}
    columns = [flat.field(name).to_pylist() for name in ("doc_id", "title", "text")]
    first = [known.setdefault(key, place) for place, key in enumerate(zip(row.tolist(), *columns, strict=True))]
    places = flat.field("list").to_numpy(zero_copy_only=False)
    return Pages(row, places, flat.field("doc_id"), np.array(first, dtype=np.int64), flat)


class WebTexts:
    """The pages that have the texts of each pair of query and document of a search, for each arm."""

    def __init__(self, pages: Pages, lists: Lists, list_index: np.ndarray, hits: Hits) -> None:
        """Takes the lists of a search.

        Args:
            pages: Of the block.
            lists: Those that take part, cut as the search has them.
            list_index: Of each of `lists`, its index among the `lists` of its row.
            hits: By `by_document`, of `lists`.
        """
        self._pairs = len(hits.pair_query)
        self._classes: dict[bytes, int] = {}
        self.pages: list[np.ndarray] = []
        """Of each class of arms the page of each pair, -1: an index has its text."""
        self._pair, self._of, self._page = (np.zeros(0, dtype=np.int64) for _ in range(3))
        if not len(pages.row):
            return
        most = int(max(pages.place.max(initial=0), list_index.max(initial=0))) + 1
        keys, wanted = pages.row * most + pages.place, lists.query * most + list_index  # pages are in order of rows and lists
        begins, ends = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
        sizes = np.minimum(ends - begins, np.diff(lists.offsets))
        page = ranges(begins, sizes)
        of = np.repeat(np.arange(len(sizes)), sizes)
        document = pc.index_in(pages.doc_ids.take(pa.array(page)), hits.doc_ids).to_numpy(zero_copy_only=False)
        known = hits.pair_query * len(hits.doc_ids) + hits.pair_document  # ascending
        pair = np.searchsorted(known, pages.row[page] * len(hits.doc_ids) + document)
        place = np.empty(len(sizes), dtype=np.int64)
        place[hits.place] = np.arange(len(sizes))  # lists by query, strategy, position and retriever
        is_original = pc.equal(lists.strategy, ORIGINAL).to_numpy(zero_copy_only=False)
        order = np.lexsort((place[of], ~is_original[of], pair))
        self._pair, self._of, self._page = pair[order], of[order], pages.first[page[order]]
        names = zip(
            lists.strategy.to_pylist(), lists.retriever.to_pylist(), lists.weight.tolist(), lists.position_weight.tolist(),
            strict=True,
        )  # fmt: skip
        self._kinds, self._kind = distinct(list(names))

    def class_of(self, answer: Answer) -> int:
        """Returns the class of an arm, an index of `pages`."""
        mine = np.zeros(0, dtype=bool)
        if len(self._of):
            used = np.array([_is_used(answer, *kind) for kind in self._kinds], dtype=bool)[self._kind]
            mine = used[self._of]
        if mine.tobytes() not in self._classes:
            self._classes[mine.tobytes()] = len(self.pages)
            pair, page = self._pair[mine], self._page[mine]
            first = np.diff(pair, prepend=-1) != 0
            found = np.full(self._pairs, -1, dtype=np.int32)
            found[pair[first]] = page[first]
            self.pages.append(found)
        return self._classes[mine.tobytes()]


def _is_used(answer: Answer, strategy: str, retriever: str, weight: float, position_weight: float) -> bool:
    if strategy in (ORIGINAL, TOGETHER):
        return True
    return strategy in answer.strategies and takes_part(answer.fuse, strategy, retriever, weight, position_weight)


def pair_texts(hits: Hits, page: np.ndarray, texts: list[str], documents: DocumentStore) -> Callable[[np.ndarray], list[str]]:
    """Returns a function of pairs that returns their texts.

    Args:
        hits: With the pairs.
        page: Of each pair, -1: its text is in an index.
        texts: Of the pages.
        documents: Of the index.
    """

    def of(pairs: np.ndarray) -> list[str]:
        others = pairs[page[pairs] < 0]
        unique, inverse = distinct(hits.doc_ids.take(pa.array(hits.pair_document[others])).to_pylist())
        indexed = documents.texts(unique, heartbeat) if unique else []
        found = iter([indexed[number] for number in inverse.tolist()])
        return [texts[place] if place >= 0 else next(found) for place in page[pairs].tolist()]

    return of


def kept_pages(table: pa.Table, pages: Pages, kept: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """Returns a block with some of its pages, by ascending index, and by their index before the index of each in its row."""
    if not len(pages.row):
        return table, np.zeros(0, dtype=np.int64)
    sizes = np.bincount(pages.row[kept], minlength=table.num_rows)
    place = np.full(len(pages.row), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept)) - offsets_of(sizes)[:-1][pages.row[kept]]
    column = nested(offsets_of(sizes), pages.flat.take(pa.array(kept)), pa.list_(WEB_HIT))
    at = table.schema.get_field_index("web")
    return table.set_column(at, table.schema.field(at), column), place


def document_pages(table: pa.Table) -> dict[int, tuple[str, str]]:
    """Returns text and address of each document of a fused block that is a page of the web, by its index in the block."""
    rows, documents = unnested(table, "documents")
    page_rows, flat = unnested(table, "web")
    if not len(flat):
        return {}
    starts = offsets_of(np.bincount(page_rows, minlength=table.num_rows))
    title, text, url = (flat.field(name).to_pylist() for name in ("title", "text", "url"))
    found = {}
    for place, (row, page) in enumerate(zip(rows.tolist(), documents.field("web").to_pylist(), strict=True)):
        if page is not None:
            at = int(starts[row]) + page
            found[place] = indexed_text(title[at] or "", text[at] or ""), url[at] or ""
    return found
