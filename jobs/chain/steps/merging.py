"""The candidates of an arm after a further round: those of before and those of the refined query, merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.chain.arms.shared_work import Answer
from retrievers.corpora.duplicates import as_compared
from retrievers.web.hits import indexed_text
from rewriters.steps.rounds import IterateSettings

Row = dict[str, Any]


class QueryCandidates(NamedTuple):
    """The candidates of a query, as Python values.

    Attributes:
        documents: Distinct, as `DOCUMENT`.
        fused: As `FUSED`, in order of arms and ranks.
        pages: Of the web, as `WEB_HIT`.
    """

    documents: list[Row]
    fused: list[Row]
    pages: list[Row]


class RoundArm(NamedTuple):
    """An arm with further rounds.

    Attributes:
        number: Its index among all arms; in the block of a round it has another.
        answer: The arm.
        settings: How its rounds are made.
    """

    number: int
    answer: Answer
    settings: IterateSettings


Rankings = dict[int, list[list[Row]]]
"""Index of an arm -> its fused candidates of each round so far, that before the first round included."""
_Ranked = Sequence[Sequence[Row]]


def merged(
    before: QueryCandidates,
    more: QueryCandidates,
    arms: Sequence[RoundArm],
    rankings: Rankings,
    texts: Mapping[int, Mapping[str, str]],
) -> QueryCandidates:
    """Returns the candidates of a query with those of a round.

    `best`: a document keeps its best fused score. `fuse`: the rankings of all rounds are fused by RRF, sum of 1 / (k + rank)
    (Cormack et al., SIGIR 2009). Equal scores are in order of doc_id. Candidates are made of candidates, as in a run of the
    arm alone; the fused documents behind them, which measures read, stand behind them. A page of the web that an arm has
    already keeps the text that it has there.

    Args:
        before: Of all arms.
        more: Of the round; `arm` in `fused` is an index of `arms`.
        arms: Those with further rounds.
        rankings: Of the query; that of this round is added.
        texts: Index of an arm that drops duplicates -> doc_id -> text, of the documents of indexes.
    """
    places = _Places(before, more)
    by_arm: dict[int, list[Row]] = {}
    for one in before.fused:
        by_arm.setdefault(one["arm"], []).append(one)
    for own, (number, answer, settings) in enumerate(arms):
        of_arm = rankings.setdefault(number, [by_arm.get(number, [])])
        ranked = [one["document"] for ranking in of_arm for one in ranking[: answer.candidates]]
        had = {places.documents[place]["doc_id"]: place for place in ranked}
        found = [one | {"arm": number, "document": places.of(one["document"], had)} for one in more.fused if one["arm"] == own]
        if not found:
            continue
        of_arm.append(found)
        by_arm[number] = _of_arm(of_arm, places.documents, answer, settings, places.text_of(texts.get(number)))
    return QueryCandidates(places.documents, [one for number in sorted(by_arm) for one in by_arm[number]], places.pages)


class _Places:
    """The documents and pages of before, to which those of a round are added as an arm needs them."""

    def __init__(self, before: QueryCandidates, more: QueryCandidates) -> None:
        self.documents, self.pages, self._more = list(before.documents), list(before.pages), more
        self._documents = {(one["doc_id"], one["web"]): place for place, one in enumerate(before.documents)}
        self._pages = {_page(one): place for place, one in enumerate(before.pages)}

    def of(self, document: int, had: Mapping[str, int]) -> int:
        """Returns the place of a document of the round; `had`: doc_id -> place, of those that the arm has."""
        one = self._more.documents[document]
        if one["doc_id"] in had:
            return had[one["doc_id"]]
        web = one["web"]
        if web is not None:
            page = self._more.pages[web]
            if (web := self._pages.setdefault(_page(page), len(self.pages))) == len(self.pages):
                self.pages.append(page)
        if (place := self._documents.setdefault((one["doc_id"], web), len(self.documents))) == len(self.documents):
            self.documents.append({"doc_id": one["doc_id"], "web": web})
        return place

    def text_of(self, texts: Mapping[str, str] | None) -> Callable[[int], str] | None:
        """Returns what returns the text of a document by its place; None: `texts` is, since no text is compared."""
        if texts is None:
            return None

        def of(place: int) -> str:
            one = self.documents[place]
            page = None if one["web"] is None else self.pages[one["web"]]
            return texts[one["doc_id"]] if page is None else indexed_text(page["title"] or "", page["text"] or "")

        return of


def _page(page: Row) -> tuple[Any, ...]:
    return page["doc_id"], page["title"], page["text"]


def _of_arm(
    rankings: _Ranked, documents: Sequence[Row], answer: Answer, settings: IterateSettings, text_of: Callable[[int], str] | None
) -> list[Row]:
    def of(most: int | None) -> list[Row]:
        return _merged([ranking[:most] for ranking in rankings], documents, answer, settings, key_of)

    def marks(one: Row) -> set[tuple[str, str]]:
        found = {("doc_id", documents[one["document"]]["doc_id"])}  # a page may be there with other words
        return found if key_of is None else found | {("text", key_of(one["document"]))}

    key_of = None if text_of is None else lambda place: as_compared(text_of(place), answer.fuse.duplicate_chars)
    first = of(answer.candidates)[: answer.candidates]
    known, behind = {mark for one in first for mark in marks(one)}, list[Row]()
    for one in of(None) if answer.fuse.keep > len(first) else ():
        if known.isdisjoint(marks(one)):
            known |= marks(one)
            behind.append(one)
    return [*first, *behind][: answer.fuse.keep]


def _merged(
    rankings: _Ranked, documents: Sequence[Row], answer: Answer, settings: IterateSettings, key_of: Callable[[int], str] | None
) -> list[Row]:
    """Returns the documents of all rankings, best first; those with one key are one, by the id that was found first."""
    found: dict[int | str, Row] = {}
    for ranking in rankings:
        for rank, one in enumerate(ranking, start=1):
            score = one["score"] if settings.merge == "best" else 1.0 / (answer.fuse.k + rank)
            key = one["document"] if key_of is None else key_of(one["document"])
            if (known := found.get(key)) is None:
                found[key] = one | {"score": score}
                continue
            sources = None if one["sources"] is None else [*(known["sources"] or ()), *one["sources"]]
            both = max(known["score"], score) if settings.merge == "best" else known["score"] + score
            found[key] = known | {"score": both, "sources": sources}
    return sorted(found.values(), key=lambda one: (-one["score"], documents[one["document"]]["doc_id"]))


def candidates_of(table: pa.Table) -> list[QueryCandidates]:
    """Returns the candidates of each query of a block."""
    columns = (table.column(name).to_pylist() for name in ("documents", "fused", "web"))
    return [QueryCandidates(*of_row) for of_row in zip(*columns, strict=True)]
