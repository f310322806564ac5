"""The fused candidates of a block as flat arrays, and the columns that carry them from stage to stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.tables import DOCUMENT, FUSED, PAIR_SCORE
from jobs.tables import SOURCE, WEB_PAGE, nested, unnested
from retrievers.order import ranked
from retrievers.ranking import distinct, encode, offsets_of, ranks
from retrievers.web.hits import WebHit, indexed_text

if TYPE_CHECKING:
    from jobs.chain.arms.shared_work import SharedWork

Texts = Callable[[Sequence[str]], Sequence[str]]
"""doc_ids -> the texts of documents in an index."""


class ArmCandidates(NamedTuple):
    """The candidates of one arm, row by row, best first.

    Attributes:
        row: Of each.
        document: Its index in the doc_ids of the block.
        page: The index of the page of the web that has its text; -1: an index has it.
        score: Its fused score.
        sources: The lists that it comes from; None: they are not kept.
    """

    row: np.ndarray
    document: np.ndarray
    page: np.ndarray
    score: np.ndarray
    sources: pa.ListArray | None


class BlockCandidates(NamedTuple):
    """Candidates of a block by index of the arm, with the doc_ids and pages of the web that they refer to."""

    doc_ids: pa.StringArray
    pages: Sequence[WebHit]
    arms: Mapping[int, ArmCandidates]


class RankedArm(NamedTuple):
    """The ranks of one arm, row by row.

    Attributes:
        row: Of each candidate.
        at: Its index among all candidates of the block.
        score: By which it has its rank.
        reranked: The score of the arm's reranker; NaN: it has none.
    """

    row: np.ndarray
    at: np.ndarray
    score: np.ndarray
    reranked: np.ndarray


def united(parts: Sequence[BlockCandidates]) -> BlockCandidates:
    """Returns candidates of different arms as one."""
    doc_ids = pa.concat_arrays([pa.array([], pa.string()), *(part.doc_ids for part in parts)])
    pages, arms, first = list[WebHit](), dict[int, ArmCandidates](), 0
    for part in parts:
        for number, arm in part.arms.items():
            page = np.where(arm.page < 0, -1, arm.page + len(pages))
            arms[number] = arm._replace(document=arm.document + first, page=page)
        first, pages = first + len(part.doc_ids), [*pages, *part.pages]
    return BlockCandidates(doc_ids, pages, arms)


def page_text(hit: WebHit) -> str:
    """Returns the text of a page of the web, as that of a document is indexed."""
    return indexed_text(hit.title or "", hit.text or "")


def candidate_texts(
    doc_ids: pa.StringArray, document: np.ndarray, page: np.ndarray, pages: Sequence[WebHit], indexed: Texts
) -> list[str]:
    """Returns the texts of candidates: that of their page, else that of the index, of which each is read once."""
    ids, at = distinct(doc_ids.take(pa.array(document[page < 0])).to_pylist())
    texts = indexed(ids) if ids else []
    read = iter([texts[number] for number in at.tolist()])
    return [next(read) if number < 0 else page_text(pages[number]) for number in page.tolist()]


UNRANKED = -1
"""In place of the index of an arm: documents that are handed on without being anybody's candidates."""


def candidate_columns(rows: int, block: BlockCandidates) -> tuple[list[pa.ListArray], np.ndarray]:
    """Returns the columns `documents`, `fused` and `web` of a block of `rows` rows, and where its unranked documents are now.

    A document is at an index within its row.
    """
    doc_ids, pages, arms = block
    numbers = sorted(arms)
    row, document, page, score = (
        np.concatenate([np.zeros(0, dtype=kind), *(getattr(arms[number], name) for number in numbers)])
        for name, kind in (("row", np.int64), ("document", np.int64), ("page", np.int64), ("score", np.float64))
    )
    arm = np.repeat(np.array(numbers, dtype=np.int16), [len(arms[number].row) for number in numbers])
    page_number, web = _distinct_pages(rows, row, page, pages)
    code, names = encode(doc_ids)
    most = int(page_number.max(initial=-1)) + 2
    keys, number = np.unique((row * max(1, len(names)) + code[document]) * most + page_number + 1, return_inverse=True)
    pair, own_page = np.divmod(keys, most)
    document_row, document_code = np.divmod(pair, max(1, len(names)))
    starts = offsets_of(np.bincount(document_row, minlength=rows))
    number, unranked = number - starts[row], int(np.searchsorted(arm, 0))
    moved = number[:unranked]
    row, arm, score, number = row[unranked:], arm[unranked:], score[unranked:], number[unranked:]
    order = pa.array(np.lexsort((arm, row)))  # stable: candidates keep their ranks
    sources = [kept for at in numbers if at != UNRANKED and (kept := arms[at].sources) is not None]
    has_sources = sum(map(len, sources)) == len(row)
    columns = [
        pa.array(arm).take(order),
        pa.array(number.astype(np.int32)).take(order),
        pa.array(score).take(order),
        pa.concat_arrays(sources).take(order) if sources and has_sources else pa.nulls(len(row), pa.list_(SOURCE)),
    ]
    documents = [names.take(pa.array(document_code)), pa.array((own_page - 1).astype(np.int32), mask=own_page == 0)]
    columns_of_block = [
        nested(starts, pa.StructArray.from_arrays(documents, fields=list(DOCUMENT)), pa.list_(DOCUMENT)),
        nested(
            offsets_of(np.bincount(row, minlength=rows)),
            pa.StructArray.from_arrays(columns, fields=list(FUSED)),
            pa.list_(FUSED),
        ),
        web,
    ]
    return columns_of_block, moved


def _distinct_pages(rows: int, row: np.ndarray, page: np.ndarray, pages: Sequence[WebHit]) -> tuple[np.ndarray, pa.ListArray]:
    """Returns the page of each candidate as an index among those of its row, -1: none, and the column `web`.

    Pages of a row with the same doc_id, title and text are one.
    """
    of_row: list[dict[tuple[str, str, str], WebHit]] = [{} for _ in range(rows)]
    number = np.full(len(page), -1, dtype=np.int64)
    for at in np.flatnonzero(page >= 0).tolist():
        hit, known = pages[page[at]], of_row[row[at]]
        known.setdefault(key := (hit.doc_id, hit.title, hit.text), hit)
        number[at] = list(known).index(key)
    flat = [{name: getattr(hit, name) for name in ("doc_id", "url", "title", "text")} for of in of_row for hit in of.values()]
    return number, nested(offsets_of(np.array([len(of) for of in of_row])), pa.array(flat, WEB_PAGE), pa.list_(WEB_PAGE))


class Candidates:
    """The columns `documents`, `fused`, `web` and `scores` of a block.

    Attributes:
        rows: Of the block.
        doc_ids: Of the documents of all rows.
        document_row: The row of each.
        document_page: The index in `pages` of the page that has its text; -1: an index has it.
        starts: Index of the first document of each row, shape (rows,).
        pages: Of the web, of all rows.
        document: The document of each candidate of the block, an index of `doc_ids`.
        score: Its fused score.
        rank: Its rank after fusion in its arm, from 1.
        sources: Of each candidate of the block; null where they are not kept.
        scored: Whether there are scores.
        reranked: The score of each document by each reranker, shape (rerankers, documents); NaN: none. Which of them an arm
            has, says `pairs`: the others were scored for other arms, or in an earlier round.
        has_scores: Whether no reranker has failed on a row, shape (rerankers, rows), bool; False where nothing is scored.
    """

    def __init__(self, table: pa.Table, work: SharedWork) -> None:
        self._work, self.rows = work, table.num_rows
        self.document_row, documents = unnested(table, "documents")
        self.starts = offsets_of(np.bincount(self.document_row, minlength=self.rows))[:-1]
        self.doc_ids = documents.field("doc_id")
        page_row, pages = unnested(table, "web")
        self.pages = [WebHit(**page, score=0.0) for page in pages.to_pylist()]
        page = documents.field("web").fill_null(-1).to_numpy(zero_copy_only=False)
        first_page = offsets_of(np.bincount(page_row, minlength=self.rows))
        self.document_page = np.where(page < 0, -1, page + first_page[self.document_row])
        row, fused = unnested(table, "fused")
        arm = fused.field("arm").to_numpy(zero_copy_only=False)
        self._row, self._by_arm = row, np.argsort(arm, kind="stable")
        self._bounds = np.searchsorted(arm[self._by_arm], np.arange(len(work.answers) + 1))
        self.document = self.starts[row] + fused.field("document").to_numpy(zero_copy_only=False)
        self.score = fused.field("score").to_numpy(zero_copy_only=False)
        self.rank = ranks(np.diff(np.flatnonzero(np.r_[True, np.diff(row * (len(work.answers) + 1) + arm) != 0, True])))
        self.sources = fused.field("sources")
        self.scored = "scores" in table.column_names
        self.reranked = np.full((len(work.rerankers), len(self.doc_ids)), np.nan)
        self.has_scores = np.zeros((len(work.rerankers), self.rows), dtype=bool)
        if self.scored:
            failed_rows, failed = unnested(table, "unscored")
            failed = failed.to_numpy(zero_copy_only=False)
            self.has_scores[:] = True
            self.has_scores[failed[failed >= 0], failed_rows[failed >= 0]] = False
            self.has_scores[:, failed_rows[failed < 0]] = False
            rows, flat = unnested(table, "scores")
            at = self.starts[rows] + flat.field("document").to_numpy(zero_copy_only=False)
            self.reranked[flat.field("reranker").to_numpy(zero_copy_only=False), at] = flat.field("score").to_numpy(
                zero_copy_only=False
            )

    def of_arm(self, arm: int) -> ArmCandidates:
        """Returns the candidates of an arm, by its index."""
        at = self._at(arm)
        document, sources = self.document[at], None if self.sources.null_count else self.sources.take(pa.array(at))
        return ArmCandidates(self._row[at], document, self.document_page[document], self.score[at], sources)

    def documents(self, at: np.ndarray) -> ArmCandidates:
        """Returns documents by their indexes, which are nobody's candidates."""
        return ArmCandidates(self.document_row[at], at, self.document_page[at], np.zeros(len(at)), None)

    def lengths(self, arm: int) -> np.ndarray:
        """Returns the number of candidates each row has in an arm, shape (rows,)."""
        return np.bincount(self._row[self._at(arm)], minlength=self.rows)

    def pairs(self, arm: int) -> np.ndarray:
        """Returns the number of first candidates of each row the reranker of an arm has scored for it, shape (rows,)."""
        answer = self._work.answers[arm]
        if answer.reranker is None:
            return np.zeros(self.rows, dtype=np.int64)
        return np.where(self.has_scores[answer.reranker], np.minimum(self.lengths(arm), answer.candidates), 0)

    def ranked(self, arm: int) -> RankedArm:
        """Returns the candidates of an arm by rank: as they were fused where no reranker has scored them."""
        answer, at, pairs = self._work.answers[arm], self._at(arm), self.pairs(arm)
        row = self._row[at]
        reranked = np.full(len(at), np.nan)
        if answer.reranker is not None:
            is_own = self.rank[at] <= pairs[row]  # others were scored for other arms, or in an earlier round
            reranked[is_own] = self.reranked[answer.reranker][self.document[at[is_own]]]
        doc_ids = self.doc_ids.take(pa.array(self.document[at]))
        order = ranked(self.lengths(arm), doc_ids, self.score[at], reranked, pairs, answer.combine)
        return RankedArm(row, at[order.places], order.scores, reranked[order.places])

    def _at(self, arm: int) -> np.ndarray:
        return self._by_arm[self._bounds[arm] : self._bounds[arm + 1]]


def moved_scores(before: Candidates, scored: np.ndarray, moved: np.ndarray) -> pa.ListArray:
    """Returns the column `scores` of a block whose documents moved: those that are `scored`, to `moved` within their rows."""
    moved_to = np.zeros(len(before.doc_ids), dtype=np.int32)
    moved_to[scored] = moved
    reranker, document = np.nonzero(~np.isnan(before.reranked))
    by_row = np.argsort(before.document_row[document], kind="stable")
    reranker, document = reranker[by_row], document[by_row]
    columns = [
        pa.array(reranker.astype(np.int16)), pa.array(moved_to[document]), pa.array(before.reranked[reranker, document])
    ]  # fmt: skip
    flat = pa.StructArray.from_arrays(columns, fields=list(PAIR_SCORE))
    return nested(offsets_of(np.bincount(before.document_row[document], minlength=before.rows)), flat, pa.list_(PAIR_SCORE))
