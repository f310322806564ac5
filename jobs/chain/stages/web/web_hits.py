"""The rows of web/ that a block has found, and the rows in errors of failed searches of the web."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.chain.lists import Found
from jobs.chain.search_texts import Text
from jobs.chain.searches import RoutedSearch
from jobs.chain.web.searches import WebSearches
from jobs.tables import ORIGINAL, STORED, error_row, with_appended
from retrievers.lists import TOGETHER
from retrievers.web.retriever import FailedSearch

CUT = "text_cut"
"""The reason of a note on a text of which only the beginning was searched."""
PARTIAL = "partial_list"
"""The reason of a note on a search that some of the server's search engines did not answer."""


def with_web(
    table: pa.Table, routed: Sequence[RoutedSearch], lists: Sequence[Mapping[str, Found]], searches: Mapping[str, WebSearches]
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Returns a block with the errors of its searches of the web, and the rows that it has for the table web/."""
    for key, web in searches.items():
        texts = [text for of in routed for _, text in of.texts_of(key)]
        # and the originals that stand in for texts that were searched together in vain
        texts += [
            text for search, named in zip(routed, lists, strict=True) for name, used in search.search.retrievers.items()
            if used == key for text in named[name].texts
        ]  # fmt: skip
        table = with_appended(table, "errors", web_errors(table.num_rows, texts, web))
    return table, {"web": _stored_pages(table.column("query_id").combine_chunks(), routed, lists, searches)} if searches else {}


def _stored_pages(
    ids: pa.Array, routed: Sequence[RoutedSearch], lists: Sequence[Mapping[str, Found]], searches: Mapping[str, WebSearches]
) -> pa.Table:
    """Returns the rows of web/: each search of the web of each query under the first arm that has it, by rows and texts."""
    rows: dict[tuple[int, str, str], list[tuple[Any, ...]]] = {}
    for search, by_name in zip(routed, lists, strict=True):
        arms: dict[str, str] = {}  # strategy -> the first arm that has its texts
        for strategies, (first, *_) in search.arms.items():
            for strategy in (ORIGINAL, TOGETHER, *strategies):
                arms.setdefault(strategy, first)
        retrievers = search.search.retrievers
        for name, hit_lists in by_name.items():
            web = searches.get(retrievers[name])
            if web is None:
                continue
            for text in hit_lists.texts:
                sent, arm = web.web.sent(text.search), arms.get(text.strategy)
                if arm is not None and (text.row, retrievers[name], sent) not in rows:
                    hits = web.hits[text.search]
                    rows[text.row, retrievers[name], sent] = [
                        (ids[text.row].as_py(), arm, name, sent, rank, hit.doc_id, hit.url, hit.title, hit.text)
                        for rank, hit in enumerate(hits, start=1)
                    ]
    flat = [row for _, of_search in sorted(rows.items(), key=lambda one: one[0][0]) for row in of_search]
    columns = list(zip(*flat, strict=True)) or [()] * len(STORED["web"])
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, STORED["web"], strict=True)], STORED["web"])


def web_errors(rows: int, texts: Iterable[Text], searches: WebSearches) -> list[list[dict[str, object]]]:
    """Returns the rows in errors of each query whose search of the web failed, and notes on texts that were cut.

    Args:
        rows: Of the block.
        texts: That the retriever was searched with.
        searches: The retriever's.
    """
    notes: list[dict[tuple[str, str], dict[str, object]]] = [{} for _ in range(rows)]
    for text in texts:
        sent = searches.web.sent(text.search)
        if (failure := searches.failed.get(text.search)) is not None:
            attempts = max(1, searches.sends[sent])
            message = f"the search of {text.strategy} failed: {failure.message}"
            notes[text.row].setdefault(
                (failure.reason, sent), error_row("retrieve", searches.name, failure.reason, message, sent, attempts)
            )
        elif searches.web.is_cut(text.search):
            provider = searches.web.settings.provider
            message = f"the text of {text.strategy} is longer than {provider} takes; its beginning was searched"
            notes[text.row].setdefault((CUT, sent), error_row("retrieve", searches.name, CUT, message, sent))
        if silent := searches.silent.get(text.search):
            notes[text.row].setdefault((PARTIAL, sent), partial_search("retrieve", searches.name, silent, sent))
    return [list(one.values()) for one in notes]


def failed_search(component: str, failure: FailedSearch, sent: str, requests: int) -> dict[str, object]:
    """Returns the row in errors of a failed search where graded results do not suffice: what was kept stands alone."""
    message = f"the search of the web failed, so the documents that are kept stand alone: {failure.message}"
    return error_row("web", component, failure.reason, message, sent, max(1, requests))


def cut_search(component: str, provider: str, sent: str) -> dict[str, object]:
    """Returns the note on a query to the web of which only the beginning was searched, where graded results do not suffice."""
    message = f"the query to the web is longer than {provider} takes; its beginning was searched"
    return error_row("web", component, CUT, message, sent)


def partial_search(stage: str, component: str, silent: str, sent: str) -> dict[str, object]:
    """Returns the note on a search that some of the server's search engines did not answer."""
    return error_row(stage, component, PARTIAL, f"the list is partial, as these did not answer: {silent}", sent)
