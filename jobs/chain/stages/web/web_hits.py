"""The rows of web/ that a block has found, and the rows in errors of failed searches of the web."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.chain.lists import Found
from jobs.chain.search_texts import Text
from jobs.chain.searches import BlockSearches, RoutedSearch
from jobs.chain.web.searches import WebSearches
from jobs.tables import ORIGINAL, STORED, error_row, with_appended
from retrievers.lists import TOGETHER
from retrievers.web.retriever import FailedSearch, PartialAnswer


def with_web(
    table: pa.Table, routed: Sequence[RoutedSearch], lists: Sequence[Mapping[str, Found]], searches: BlockSearches
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Returns a block with the errors of its searches of the web, and the rows that it has for the table web/."""
    for key, web in searches.web.items():
        texts = [text for of in routed for _, text in of.texts_of(key)]
        # and the originals that stand in for texts that had no hits together
        texts += [
            text for search, named in zip(routed, lists, strict=True) for name, used in search.retrievers.items()
            if used == key for text in named[name].texts
        ]  # fmt: skip
        table = with_appended(table, "errors", _errors(table.num_rows, texts, web, searches.stage))
    return table, {"web": _stored_pages(searches.query_ids, routed, lists, searches.web)} if searches.web else {}


def _stored_pages(
    query_ids: Sequence[str],
    routed: Sequence[RoutedSearch],
    lists: Sequence[Mapping[str, Found]],
    searches: Mapping[str, WebSearches],
) -> pa.Table:
    """Returns the rows of web/: each search of the web of each query under the first arm that has it, by rows and texts."""
    rows: dict[tuple[int, str, str], list[tuple[Any, ...]]] = {}
    for search, by_name in zip(routed, lists, strict=True):
        arms: dict[str, str] = {}  # strategy -> the first arm that has its texts
        for strategies, (first, *_) in search.arms.items():
            for strategy in (ORIGINAL, TOGETHER, *strategies):
                arms.setdefault(strategy, first)
        retrievers = search.retrievers
        for name, hit_lists in by_name.items():
            web = searches.get(retrievers[name])
            if web is None:
                continue
            for text in hit_lists.texts:
                sent, arm = web.web.sent(text.search), arms.get(text.strategy)
                if arm is not None and (text.row, retrievers[name], sent) not in rows:
                    hits = web.hits(text.search)
                    rows[text.row, retrievers[name], sent] = [
                        (query_ids[text.row], arm, name, sent, rank, hit.doc_id, hit.url, hit.title, hit.text)
                        for rank, hit in enumerate(hits, start=1)
                    ]
    flat = [row for _, of_search in sorted(rows.items(), key=lambda one: one[0][0]) for row in of_search]
    columns = list(zip(*flat, strict=True)) or [()] * len(STORED["web"])
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, STORED["web"], strict=True)], STORED["web"])


def _errors(rows: int, texts: Iterable[Text], searches: WebSearches, stage: str) -> list[list[dict[str, object]]]:
    """Returns the rows in errors of each query whose search of the web failed, and notes on texts that were cut."""
    notes: list[dict[tuple[str, str], dict[str, object]]] = [{} for _ in range(rows)]

    def note(text: Text, reason: str, message: str, attempts: int = 1) -> None:
        sent = searches.web.sent(text.search)
        notes[text.row].setdefault((reason, sent), error_row(stage, searches.name, reason, message, sent, attempts))

    for text in texts:
        answer = searches.answer(text.search)
        if isinstance(answer, FailedSearch):
            attempts = max(1, searches.sends[searches.web.sent(text.search)])
            note(text, answer.reason, f"the search of {text.strategy} failed: {answer.message}", attempts)
        elif searches.web.is_cut(text.search):
            provider = searches.web.settings.provider
            note(text, "text_cut", f"the text of {text.strategy} is longer than {provider} takes; its beginning was searched")
        if isinstance(answer, PartialAnswer):
            note(text, "partial_list", f"the list is partial, as these did not answer: {answer.silent}")
    return [list(one.values()) for one in notes]
