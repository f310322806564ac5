"""BM25 over a local index: Lucene's formula as bm25s computes it, exact top hits, exact ties.

bm25s builds and stores the matrix of scores (term x document). Searching it is done here, because bm25s's own selection
leaves the order of equal scores, and which of them are kept at the cut, to a partition.
Cost on 5,183 abstracts: see tests/benchmarks; no compilation, so the first search is as fast as the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.analyzer import Analyzer
from retrievers.retriever import Alive, RankedLists, SearchText, distinct, ranked_lists, top_rows, unwatched

METHOD, K1, B = "lucene", 1.2, 0.75
_SAID = 256  # texts between two words that work goes on


def build_bm25(
    texts: Iterable[list[str]], analyzer: Analyzer, total: int, folder: Path, progress: Callable[[str, int, int], None]
) -> None:
    """Write a bm25s index of the texts (given in lists, in row order) into ``folder``.

    Terms are numbered in order of first appearance: the same corpus gives the same bytes.
    """
    import bm25s

    vocabulary: dict[str, int] = {}
    documents: list[list[int]] = []
    for part in texts:
        for text in part:
            documents.append([vocabulary.setdefault(term, len(vocabulary)) for term in analyzer(text)])
        progress("bm25", len(documents), total)
    if not vocabulary:  # not one term in the whole corpus; bm25s needs a term to make a matrix of
        vocabulary[""] = 0
        documents[0] = [0]
    model = bm25s.BM25(k1=K1, b=B, method=METHOD)
    model.index((documents, vocabulary), create_empty_token=False, show_progress=False)
    model.save(str(folder), show_progress=False)


class BM25Search:
    """A loaded BM25 index; implements `retrievers.retriever.Retriever`."""

    def __init__(self, folder: Path, doc_ids: pa.StringArray, analyzer: Analyzer, identity: dict[str, Any]) -> None:
        import bm25s

        model = bm25s.BM25.load(str(folder), mmap=True, show_progress=False)
        self._vocabulary: dict[str, int] = model.vocab_dict
        # plain views of the maps: a memmap object costs a microsecond and more at every slice
        self._scores, self._rows, self._starts = (np.asarray(model.scores[k]) for k in ("data", "indices", "indptr"))
        self._doc_ids, self._analyzer, self._identity = doc_ids, analyzer, identity

    def identity(self) -> dict[str, Any]:
        """The corpus, the analyzer and the formula."""
        return self._identity

    def search(self, texts: Sequence[SearchText], depth: int, alive: Alive = unwatched) -> RankedLists:
        """The ``depth`` best documents of each text; only documents that hold one of its terms are hits.

        A term that a text repeats counts as often as it stands there, as in Lucene.
        """
        once, inverse = distinct([text[0] for text in texts])
        found = []
        for number, text in enumerate(once):
            found.append(self._search(text, depth))
            if number % _SAID == 0:
                alive()
        return ranked_lists([found[i][0] for i in inverse], [found[i][1] for i in inverse], self._doc_ids)

    def _search(self, text: str, depth: int) -> tuple[np.ndarray, np.ndarray]:
        known = self._vocabulary
        # in order of the term's number: the same words in another order add up to the same last bit
        terms = sorted(Counter(known[term] for term in self._analyzer(text) if term in known).items())
        if not terms:
            return np.empty(0, dtype=np.int64), np.empty(0)
        spans = [(self._starts[term], self._starts[term + 1], count) for term, count in terms]
        rows = np.concatenate([self._rows[start:end] for start, end, _ in spans])
        parts = np.concatenate([self._scores[start:end] * np.float64(count) for start, end, count in spans])
        # float64 sums of stored float32 scores, term by term: a document's score does not depend on the batch, and
        # documents with the same terms tie exactly
        scores = np.bincount(rows, weights=parts, minlength=len(self._doc_ids))
        best = top_rows(scores, depth, floor=0.0)
        return best, scores[best]
