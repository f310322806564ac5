"""Which document a request of grading or of the judge is about, by what its completion is known by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product

from jobs.chain.steps.grading import document_values
from jobs.config.config import Config
from rewriters.reading.words.sentences import split_sentences
from rewriters.strategy import told_hash


def numbered_sentences(sentences: Iterable[str]) -> str:
    """Returns the sentences of a document as an LLM is shown them that says which help."""
    return "\n".join(f"[{n}] {' '.join(one.split())}" for n, one in enumerate(sentences, start=1))


def asked_about(config: Config, texts: Mapping[str, str], query: str, question: str | None) -> dict[str, str]:
    """Returns what tells a request from the others of its query (`told_hash`) -> the document that it is about.

    Args:
        config: Of the job.
        texts: doc_id -> its whole text, of documents that may have been shown; of several with one text the first counts.
        query: As it was asked.
        question: That was made of the query and its rewrites; None: there is none.
    """
    grade, relevance = config.grade, None if config.judge is None else config.judge.relevance
    against = {"question": question} if question not in (None, query) and grade is not None and grade.against_question else {}
    found: dict[str, str] = {}
    kinds = config.rewrite.guards.mask
    of_query = [some for count in range(len(kinds) + 1) for some in combinations(kinds, count)]  # which of them it may have
    for doc_id, text in texts.items():
        shown: list[dict[str, str]] = []
        if relevance is not None:
            shown.append(document_values(text, relevance.document_chars))
        if grade is not None:
            shown.append(document_values(text, grade.document_chars) | against)
            shown.append({"document": numbered_sentences(split_sentences(text))} | against)
        for values, masked in product(shown, of_query):
            found.setdefault(told_hash(values, masked), doc_id)
    return found
