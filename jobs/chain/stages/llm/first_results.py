"""The first results of arms with their texts, as LLMs are shown them."""

from collections.abc import Collection, Mapping
from math import nan

import pyarrow as pa

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.documents import document_texts
from jobs.chain.steps.contexts import FoundText
from retrievers.ranking import ranks
from retrievers.retriever import DocumentStore
from retrievers.web.hits import indexed_text
from rewriters.steps.settings import IRRELEVANT

Rows = list[list[FoundText]]


class ShownResults:
    """The results of the arms of an ordered block, read from its columns once.

    Attributes:
        block: The candidates.
    """

    def __init__(self, table: pa.Table, work: SharedWork) -> None:
        """Reads the columns; `work`: of all arms."""
        self.block, self._work = Candidates(table, work), work
        self._doc_ids = self.block.doc_ids.to_pylist()

    def doc_ids(self, arm: int, most: int) -> list[list[str]]:
        """Returns the first results of each query in an arm, by its index, best first."""
        doc_ids: list[list[str]] = [[] for _ in range(self.block.rows)]
        for row, document, *_ in self._first(arm, most):
            doc_ids[row].append(self._doc_ids[document])
        return doc_ids

    def _first(self, arm: int, most: int) -> list[tuple[int, int, float, float]]:
        """Returns row, document, score and the reranker's score of the first results in an arm."""
        row, at, score, reranked = self.block.ranked(arm)
        kept = ranks(self.block.lengths(arm)) <= most
        columns = (row[kept], self.block.document[at[kept]], score[kept], reranked[kept])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def shown(
        self,
        documents: Mapping[str, DocumentStore],
        most: Mapping[int, int],
        only: Collection[tuple[int, int]] | None = None,
        places: bool = True,
    ) -> dict[int, Rows]:
        """Returns the first results of each query with their texts, best first, by index of the arm.

        A page of the web has the text that it has in the arm, and its address as its place.

        Args:
            documents: Of these arms, by where they are.
            most: Index of an arm -> how many results.
            only: The arms and rows whose results are read, the others have none; None: all.
            places: Whether the places of documents are read.
        """
        wanted: dict[str, list[int]] = {key: [] for key in documents}
        read: dict[int, list[tuple[int, int, float, float]]] = {}
        for arm, results in most.items():
            read[arm] = [one for one in self._first(arm, results) if only is None or (arm, one[0]) in only]
            wanted[self._work.answers[arm].documents] += [document for _, document, *_ in read[arm]]
        texts = document_texts(self.block, documents, wanted, places=places)
        shown: dict[int, Rows] = {}
        for arm, entries in read.items():
            known, has_reranker = texts[self._work.answers[arm].documents], self._work.answers[arm].reranker is not None
            rows: Rows = [[] for _ in range(self.block.rows)]
            for row, document, score, reranked in entries:
                text, source = known[document]
                shown_score = reranked if has_reranker else None
                rows[row].append(FoundText(self._doc_ids[document], score, text, source, shown_score))
            shown[arm] = rows
        return shown


def corrected_results(table: pa.Table, arm: int, first: Rows) -> Rows:
    """Returns documents to answer from: of graded results those that are not irrelevant, refined, then the hits of the web.

    What could not be graded stays. A hit has no score.

    Args:
        table: The graded block.
        arm: Its index.
        first: The first results of the arm, as they were graded.
    """
    corrected: Rows = []
    columns = (table.column(name).to_pylist() for name in ("grades", "corrections"))
    for documents, graded, corrections in zip(first, *columns, strict=True):
        verdicts = {one["doc_id"]: one for one in graded if one["answer"] == arm}
        kept = []
        for document in documents:
            grade = verdicts.get(document.doc_id, {})
            strips = grade.get("strips")
            if grade.get("verdict") != IRRELEVANT and strips != "":
                kept.append(document if strips is None else document._replace(text=strips))
        pages = next((one["pages"] or [] for one in corrections if one["answer"] == arm), [])
        texts = [(page["doc_id"], indexed_text(page["title"] or "", page["text"] or ""), page["url"] or "") for page in pages]
        corrected.append([*kept, *(FoundText(doc_id, nan, text, url) for doc_id, text, url in texts)])
    return corrected
