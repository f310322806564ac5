"""The first results of arms with their texts, as LLMs are shown them."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

import pyarrow as pa

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.documents import Corpora, texts_and_places
from jobs.chain.stages.stored_rows import Rankings
from jobs.chain.steps.contexts import FoundText
from jobs.chain.web.texts import document_pages
from retrievers.retriever import DocumentStore
from retrievers.web.hits import indexed_text
from rewriters.steps.settings import IRRELEVANT

Rows = list[list[FoundText]]


def first_results(
    table: pa.Table, work: SharedWork, documents: Mapping[Corpora, DocumentStore], most: Mapping[int, int]
) -> dict[int, Rows]:
    """Returns the first results of each query, best first, by index of the arm.

    A page of the web has the text that it has in the arm, and its address as its place.

    Args:
        table: The block, ordered.
        work: Of all arms.
        documents: Of these arms, by where they are.
        most: Index of an arm -> how many results.
    """
    block = Candidates(table, len(work.answers), len(work.rerankers))
    ranked = Rankings(table, block, work)
    first = {number: ranked.first(number, documents) for number, documents in most.items()}
    doc_ids, pages = block.doc_ids.to_pylist(), document_pages(table)
    wanted: dict[Corpora, list[str]] = {key: [] for key in documents}
    for number, of in first.items():
        wanted[work.answers[number].documents] += [doc_ids[place] for place in of.document if place not in pages]
    texts = texts_and_places(documents, wanted)
    found = {}
    for number, of in first.items():
        known, reranker = texts[work.answers[number].documents], work.answers[number].reranker
        shown: Rows = [[] for _ in range(table.num_rows)]
        for row, place, score in zip(of.row.tolist(), of.document.tolist(), of.score.tolist(), strict=True):
            text, source = pages[place] if place in pages else known[doc_ids[place]]
            reranked = None if reranker is None else float(block.reranked[reranker][place])
            shown[row].append(FoundText(doc_ids[place], score, text, source, reranked))
        found[number] = shown
    return found


def corrected_results(table: pa.Table, arm: int, first: Rows) -> Rows:
    """Returns what is answered from: of the graded results those that are not irrelevant, refined, then the hits of the web.

    What could not be graded stays. A hit has no score.

    Args:
        table: The graded block.
        arm: Its index.
        first: The first results of the arm, as they were graded.
    """
    found: Rows = []
    columns = (table.column(name).to_pylist() for name in ("grades", "corrections"))
    for documents, graded, corrections in zip(first, *columns, strict=True):
        verdicts = {one["doc_id"]: one for one in graded if one["answer"] == arm}
        kept = []
        for one in documents:
            grade = verdicts.get(one.doc_id, {})
            strips = grade.get("strips")
            if grade.get("verdict") != IRRELEVANT and strips != "":
                kept.append(one if strips is None else one._replace(text=strips))
        pages = next((one["pages"] or [] for one in corrections if one["answer"] == arm), [])
        texts = [(page["doc_id"], indexed_text(page["title"] or "", page["text"] or ""), page["url"] or "") for page in pages]
        found.append([*kept, *(FoundText(doc_id, nan, text, url) for doc_id, text, url in texts)])
    return found
