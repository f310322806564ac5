"""What a build of an index in Elasticsearch says of itself."""

from __future__ import annotations

from typing import NamedTuple

from retrievers.elastic.passages import LoadCounts


class ElasticSummary(NamedTuple):
    """Summary of `build_elastic_index`."""

    built: bool  # False: the alias stood for the same index already
    name: str  # of the concrete index
    documents: int
    duplicates: int  # documents whose text another one has, too
    content: str  # hash of the corpus
    counts: LoadCounts
    without_text: int  # documents whose text is null or blank
    replaced: int | None  # documents of the index of another corpus for which the alias stood
    looks: str | None  # that the corpus is plainly of another language than BM25's analyzer

    @property
    def notes(self) -> list[str]:
        """Returns what else a person should know."""
        return [] if self.looks is None else [f"warning: {self.looks}"]
