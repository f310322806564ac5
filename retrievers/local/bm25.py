"""BM25 over a local index: Lucene's formula as implemented in bm25s, with an exact order of equal scores.

bm25s builds and stores the matrix of scores (term x document). The search is ours: in that of bm25s, the order of equal
scores, and which of them are among the hits, depends on a partition.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.analyzer import Analyzer
from retrievers.corpora.corpus import ReadCorpus
from retrievers.corpora.files import Progress
from retrievers.join import joined_text
from retrievers.ranking import distinct
from retrievers.retriever import Alive, RankedLists, Search, no_heartbeat, ranked_lists, top_rows
from retrievers.settings import Bm25Settings, FieldWeights

METHOD = "lucene"
_HEARTBEAT_TEXTS = 256  # texts between two heartbeats


def build_bm25(
    corpus: ReadCorpus, analyzer: Analyzer, folder: Path, progress: Progress, similarity: Bm25Settings, weights: FieldWeights
) -> None:
    """Writes a bm25s index; the same corpus gives the same bytes.

    A field of weight w counts as if it stood in its document w times, in the frequency of its terms and in its length. This is
    BM25F with one k1 and one b (Robertson, Zaragoza and Taylor: Simple BM25 Extension to Multiple Weighted Fields, 2004).

    The constants of `similarity` are in the scores, which bm25s computes here.
    """
    import bm25s

    vocabulary: dict[str, int] = {}
    numbers: list[list[int]] = []
    times = {field: count for field, count in weights if count}
    for batch in corpus.batches():
        for texts in zip(*(batch.column(field).to_pylist() for field in times), strict=True):
            own: list[int] = []
            for text, count in zip(texts, times.values(), strict=True):
                own += [vocabulary.setdefault(term, len(vocabulary)) for term in analyzer(text or "")] * count
            numbers.append(own)
        progress("bm25", len(numbers), corpus.documents)
    if not vocabulary:  # no term in the whole corpus; bm25s needs at least one
        vocabulary[""] = 0
        numbers[0] = [0]
    model = bm25s.BM25(k1=similarity.k1, b=similarity.b, method=METHOD)
    model.index((numbers, vocabulary), create_empty_token=False, show_progress=False)
    model.save(str(folder), show_progress=False)


class BM25Search:
    """A loaded BM25 index; implements `retrievers.retriever.Retriever`."""

    def __init__(self, folder: Path, doc_ids: pa.StringArray, analyzer: Analyzer, identity: dict[str, Any]) -> None:
        """Opens the index of `build_bm25` in a folder, memory-mapped, with its doc_ids by row and the analyzer of the build."""
        import bm25s

        model = bm25s.BM25.load(str(folder), mmap=True, show_progress=False)
        self._vocabulary: dict[str, int] = model.vocab_dict
        # plain array views: slicing a memmap object costs a microsecond and more
        self._scores, self._rows, self._starts = (np.asarray(model.scores[k]) for k in ("data", "indices", "indptr"))
        self._doc_ids, self._analyzer, self._identity = doc_ids, analyzer, identity

    def identity(self) -> dict[str, Any]:
        return self._identity

    def search(self, texts: Sequence[Search], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Returns the `depth` best documents of each text; a term that it repeats counts as often, as in Lucene."""
        unique, inverse = distinct([joined_text(text) for text in texts])
        lists = []
        for number, text in enumerate(unique):
            lists.append(self._search(text, depth))
            if number % _HEARTBEAT_TEXTS == 0:
                alive()
        return ranked_lists([lists[i][0] for i in inverse], [lists[i][1] for i in inverse], self._doc_ids)

    def _search(self, text: str, depth: int) -> tuple[np.ndarray, np.ndarray]:
        known, counts = self._vocabulary, dict[int, int]()
        for term in self._analyzer(text):
            if (number := known.get(term)) is not None:
                counts[number] = counts.get(number, 0) + 1
        if not counts:
            return np.empty(0, dtype=np.int64), np.empty(0)
        # sorted by term number, so that the sum does not depend on the order of the words
        terms = sorted(counts)
        spans = [(self._starts[term], self._starts[term + 1]) for term in terms]
        rows = np.concatenate([self._rows[start:end] for start, end in spans], dtype=np.intp)
        parts = np.concatenate([self._scores[start:end] for start, end in spans], dtype=np.float64)
        if len(terms) < sum(counts.values()):  # one is repeated
            parts *= np.repeat([counts[term] for term in terms], [end - start for start, end in spans])
        # float64 sums of the stored float32 scores, term by term: scores do not depend on the batch, and documents with the
        # same terms tie exactly
        scores = np.bincount(rows, weights=parts, minlength=len(self._doc_ids))
        best = top_rows(scores, depth, floor=0.0)
        return best, scores[best]
