"""What a build of an index in Elasticsearch says of itself."""

from __future__ import annotations

from typing import NamedTuple

from retrievers.elastic.passages import LoadCounts


class ElasticSummary(NamedTuple):
    """Summary of `build_elastic_index`.

    Attributes:
        built: False where the alias stood for the same index already.
        name: The concrete index.
        documents: In the corpus.
        duplicates: Documents whose text another one has, too.
        content: Hash of the corpus.
        counts: What was loaded.
        without_text: Documents whose text is null or blank.
        replaced: Documents of the index of another corpus for which the alias stood; None: for none.
        looks: That the corpus is plainly of another language than BM25's analyzer, in words; None: it is not.
    """

    built: bool
    name: str
    documents: int
    duplicates: int
    content: str
    counts: LoadCounts
    without_text: int
    replaced: int | None
    looks: str | None

    @property
    def notes(self) -> list[str]:
        """Returns what else a person should know."""
        return [] if self.looks is None else [f"warning: {self.looks}"]
