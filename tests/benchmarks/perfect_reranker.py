"""A reranker that knows the judgements: what the best that there can be would make of an arm's candidates, a bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import pyarrow.parquet as pq

from cluster.settings import Names
from retrievers.rerankers.settings import RerankerSettings


class Perfect(RerankerSettings):
    """Scores a pair by the grade of its document, 0 without one."""

    log: Annotated[str, Names.FILE] = "log.parquet"
    corpus: Annotated[str, Names.FILE] = "corpus.parquet"
    qrels: Annotated[str, Names.TEXT] = "qrels.tsv"

    def open(self, device: str) -> Grades:
        """Returns the grades by the texts of query and document."""
        return Grades(self)


class Grades:
    """Query -> text of a document -> grade."""

    def __init__(self, settings: Perfect) -> None:
        """Reads log, corpus and judgements; texts are those that an index has."""
        rows = pq.read_table(settings.corpus, columns=["doc_id", "title", "text"]).to_pylist()
        texts = {row["doc_id"]: f"{row['title']}. {row['text']}" if row["title"] else row["text"] for row in rows}
        queries = {str(row["query_id"]): row["query"] for row in pq.read_table(settings.log).to_pylist()}
        self._known = {_plain(text) for text in texts.values()}
        self._grades: defaultdict[str, dict[str, float]] = defaultdict(dict)
        with open(settings.qrels, encoding="utf-8") as lines:
            for line in lines:
                query_id, doc_id, grade = line.rstrip("\n").split("\t")
                if query_id in queries and doc_id in texts:
                    self._grades[_plain(queries[query_id])][_plain(texts[doc_id])] = max(0.0, float(grade))

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> list[float]:
        """Returns a score for each pair.

        Raises:
            KeyError: A passage is not of the corpus, so that its grade cannot be told.
        """
        if strange := [passage for passage in passages if _plain(passage) not in self._known]:
            raise KeyError(strange[0][:80])
        pairs = zip(queries, passages, strict=True)
        return [self._grades[_plain(query)].get(_plain(passage), 0.0) for query, passage in pairs]


def _plain(text: str) -> str:
    return " ".join(text.split())
