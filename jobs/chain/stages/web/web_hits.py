"""The pages of the web that a block has found: the column `web`, the rows of web/, and what is said of failed searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.search_texts import Text
from jobs.chain.searches import WebSearches
from jobs.chain.stages.lists import Found
from jobs.chain.tables import WEB_HIT
from jobs.tables import ORIGINAL, STORED, error_row, nested
from retrievers.lists import TOGETHER
from retrievers.ranking import offsets_of
from retrievers.web.retriever import FailedSearch

CUT = "text_cut"
"""The reason of a note on a text of which only the beginning was searched."""
PARTIAL = "partial_list"
"""The reason of a note on a search that some of the server's search engines did not answer."""
_OfRetriever = Mapping[str, WebSearches]
"""Searches of the web, by key of `SharedWork.retrievers`."""


def web_column(
    rows: int, work: SharedWork, found: Sequence[Mapping[str, Found]], searches: _OfRetriever, runs: pa.ListArray
) -> pa.ListArray:
    """Returns the column `web` of a block: the pages of each list of the web that is passed on, in order of lists and ranks.

    Args:
        rows: Of the block.
        work: Of all arms.
        found: The lists of each search of the arms, by the retriever's name in it.
        searches: Of the web.
        runs: The column `runs`.
    """
    of_row: list[dict[int, list[dict[str, Any]]]] = [{} for _ in range(rows)]
    texts = {
        (number, name, text.row, text.strategy, text.position): text.search
        for number, (search, by_name) in enumerate(zip(work.searches, found, strict=True))
        for name, one in by_name.items()
        if search.retrievers[name] in searches
        for text in one.texts
    }
    parents, flat = runs.value_parent_indices().to_pylist() if texts else [], runs.flatten()
    names = ("search", "retriever", "strategy", "position", "list")
    columns = [flat.field(name).to_pylist() if texts else [] for name in names]
    for row, number, name, strategy, position, place in zip(parents, *columns, strict=True):
        search = texts.get((number, name, row, strategy, position))
        if search is not None and place not in of_row[row]:
            hits = searches[work.searches[number].retrievers[name]].hits[search]
            of_row[row][place] = [_page(hit._asdict()) | {"list": place, "rank": n} for n, hit in enumerate(hits, start=1)]
    pages = [[page for place in sorted(by_list) for page in by_list[place]] for by_list in of_row]
    sizes = np.array([len(one) for one in pages], dtype=np.int64)
    return nested(offsets_of(sizes), pa.array([one for of in pages for one in of], WEB_HIT), pa.list_(WEB_HIT))


def stored_pages(
    query_ids: pa.Array, work: SharedWork, found: Sequence[Mapping[str, Found]], searches: _OfRetriever
) -> pa.Table:
    """Returns the rows of web/: each search of the web of each query under the first arm that has it, by rows and texts."""
    rows: dict[tuple[int, str, str], list[tuple[Any, ...]]] = {}
    for number, (search, by_name) in enumerate(zip(work.searches, found, strict=True)):
        arms: dict[str, str] = {}  # strategy -> the first arm that has its texts
        for answer in work.answers:
            if answer.search == number:
                for strategy in (ORIGINAL, TOGETHER, *answer.strategies):
                    arms.setdefault(strategy, answer.arm)
        for name, one in by_name.items():
            of = searches.get(search.retrievers[name])
            if of is None:
                continue
            for text in one.texts:
                sent, arm = of.web.sent(text.search), arms.get(text.strategy)
                if arm is not None and (text.row, search.retrievers[name], sent) not in rows:
                    hits = of.hits[text.search]
                    rows[text.row, search.retrievers[name], sent] = [
                        (query_ids[text.row].as_py(), arm, name, sent, rank, hit.doc_id, hit.url, hit.title, hit.text)
                        for rank, hit in enumerate(hits, start=1)
                    ]
    flat = [row for _, of_search in sorted(rows.items(), key=lambda one: one[0][0]) for row in of_search]
    columns = list(zip(*flat, strict=True)) or [()] * len(STORED["web"])
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, STORED["web"], strict=True)], STORED["web"])


def web_errors(rows: int, routed: Sequence[Sequence[Text]], searches: WebSearches) -> list[list[dict[str, object]]]:
    """Returns the rows in errors of each query whose search of the web failed, and notes on texts that were cut.

    Args:
        rows: Of the block.
        routed: The texts that the retriever was searched with, of each search of the arms.
        searches: The retriever's.
    """
    said: list[dict[tuple[str, str], dict[str, object]]] = [{} for _ in range(rows)]
    for text in (text for of in routed for text in of):
        sent = searches.web.sent(text.search)
        if (failure := searches.failed.get(text.search)) is not None:
            attempts = max(1, searches.answers.requests[sent])
            message = f"the search of {text.strategy} failed: {failure.message}"
            said[text.row].setdefault(
                (failure.reason, sent), error_row("retrieve", searches.name, failure.reason, message, sent, attempts)
            )
        elif searches.web.is_cut(text.search):
            provider = searches.web.settings.provider
            message = f"the text of {text.strategy} is longer than {provider} takes; its beginning was searched"
            said[text.row].setdefault((CUT, sent), error_row("retrieve", searches.name, CUT, message, sent))
        if silent := searches.silent.get(text.search):
            said[text.row].setdefault((PARTIAL, sent), partial_search("retrieve", searches.name, silent, sent))
    return [list(one.values()) for one in said]


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


def _page(hit: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in hit.items() if name != "score"}
