"""Reader of run files of TREC, in the order in which trec_eval reads them.

trec_eval takes a topic's documents by their scores, and of equal scores the greater document id first; it reads scores as
numbers of 32 bits, so that nearer ones are equal. Ranks, and the order of the lines, mean nothing to it.

A published run has a thousand documents for each of thousands of topics. So lines become columns of Arrow and numpy as they are
read, and are ordered a portion of topics at a time: no line is an object of Python for longer than its block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import RetrieverError
from retrievers.retriever import RankedList

_COLUMNS = 6
_STEP = 1e-6  # of the span of a list's scores: the most by which documents of equal score are moved
_BLOCK = 1 << 16  # lines that become columns at a time
_PORTION = 1 << 18  # lines that are ordered at a time, at least; a topic's are never parted
_Numbers = npt.NDArray[np.int64]


@dataclass
class RunCounts:
    """Counts of what was decided in one way where another was possible."""

    duplicates: int = 0  # lines of a document that the topic's list has with a score as high, or higher: left out
    ties: int = 0  # documents whose score is that of the document before them
    disordered: int = 0  # topics whose ranks are not in the order of their scores


@dataclass(frozen=True, eq=False)
class RunFile:
    """A run file: the list of each topic, one behind the other.

    The scores of a list are descending, each lower than the one before: those of documents with equal scores are moved apart,
    up, by less than is between them and the one before.
    """

    topics: list[str]  # in the order in which they are first named
    begins: _Numbers  # (topics + 1,): where the list of each begins, and the last ends
    doc_ids: pa.ChunkedArray  # each list best first, and in one chunk
    scores: npt.NDArray[np.float64]
    counts: RunCounts = field(default_factory=RunCounts)

    def list_at(self, number: int) -> RankedList:
        begin, end = int(self.begins[number]), int(self.begins[number + 1])
        chunks = self.doc_ids.slice(begin, end - begin).chunks
        return RankedList(next((one for one in chunks if len(one)), pa.array([], pa.string())), self.scores[begin:end])

    def at(self, places: Sequence[int]) -> RunFile:
        """Returns the lists of some topics, by their places in ascending order."""
        if len(places) == len(self.topics):
            return self
        sizes = np.diff(self.begins)
        kept = np.zeros(len(self.topics), bool)
        kept[list(places)] = True
        rows = np.repeat(kept, sizes)
        begins = np.append(0, np.cumsum(sizes[kept]))
        doc_ids = self.doc_ids.filter(pa.array(rows))
        return RunFile([self.topics[place] for place in places], begins, doc_ids, self.scores[rows], self.counts)


def read_run(lines: Iterable[str], where: str) -> RunFile:
    """Returns the lists of the lines of a run file but those that begin with #; `where` begins messages."""
    topics: dict[str, int] = {}
    blocks = list(_blocks(lines, topics, where))
    if not topics:
        raise RetrieverError("run-file", f"{where}: holds no list; name another file")
    codes, scores, ranks = (np.concatenate([block[place] for block in blocks]) for place in (0, 2, 3))
    doc_ids = pa.chunked_array([block[1] for block in blocks])
    del blocks
    order = None if (np.diff(codes) >= 0).all() else np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(topics)))
    counts = RunCounts()
    parts: list[tuple[pa.Array, np.ndarray, np.ndarray]] = []
    for begin, end in pairwise(_portions(ends)):
        rows = slice(begin, end) if order is None else order[begin:end]
        ids = doc_ids.slice(begin, end - begin) if order is None else doc_ids.take(pa.array(rows))
        parts.append(_ordered(codes[rows], ids.combine_chunks(), scores[rows], ranks[rows], counts))
    lists, apart, sizes = zip(*parts, strict=True)
    begins = np.append(0, np.cumsum(np.concatenate(sizes))).astype(np.int64)
    return RunFile(list(topics), begins, pa.chunked_array(lists, pa.string()), np.concatenate(apart), counts)


def _blocks(
    lines: Iterable[str], topics: dict[str, int], where: str
) -> Iterator[tuple[np.ndarray, pa.Array, np.ndarray, np.ndarray]]:
    """Yields places of topics, document ids, scores and ranks of a block of lines; adds to `topics`."""
    codes: list[int] = []
    doc_ids: list[str] = []
    scores: list[float] = []
    ranks: list[int] = []

    def columns() -> tuple[np.ndarray, pa.Array, np.ndarray, np.ndarray]:
        block = (
            np.array(codes, np.int32),
            pa.array(doc_ids, pa.string()),
            np.array(scores, np.float32),
            np.array(ranks, np.int64),
        )
        for column in (codes, doc_ids, scores, ranks):
            column.clear()
        return block

    for number, line in enumerate(lines, 1):
        if line.startswith("#") or not (parts := line.split()):
            continue
        try:
            topic, _, doc_id, rank, score, _ = parts
            value, rank_value = float(np.float32(score)), int(rank)
            if abs(rank_value) >> 63:
                raise OverflowError
        except (ValueError, OverflowError):
            problem = f"is not a line of topic, Q0, document, rank, score and tag ({_COLUMNS} columns)"
            raise RetrieverError("run-file", f"{where}: line {number}: {problem}; correct it: {line.strip()[:80]!r}") from None
        if not math.isfinite(value):
            raise RetrieverError("run-file", f"{where}: line {number}: the score {score} is not a number; correct it")
        codes.append(topics.setdefault(topic, len(topics)))
        doc_ids.append(doc_id)
        scores.append(value)
        ranks.append(rank_value)
        if len(codes) == _BLOCK:
            yield columns()
    if codes:
        yield columns()


def _portions(ends: _Numbers) -> list[int]:
    """Returns the rows between which whole topics of some `_PORTION` lines stand, in order; `ends`: of each topic's rows."""
    cuts, last = [0], int(ends[-1])
    while cuts[-1] < last:
        at = int(np.searchsorted(ends, cuts[-1] + _PORTION))
        cuts.append(int(ends[min(at, len(ends) - 1)]))
    return cuts


def _ordered(
    codes: np.ndarray, doc_ids: pa.Array, scores: np.ndarray, ranks: np.ndarray, counts: RunCounts
) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Returns the lists of some topics as trec_eval orders them: ids, scores, and the size of each; adds to the counts."""
    keys = [("topic", "ascending"), ("score", "descending"), ("doc_id", "descending")]
    table = pa.table({"topic": codes, "score": scores, "doc_id": doc_ids})
    order = pc.sort_indices(table, sort_keys=keys).to_numpy()
    codes, doc_ids, scores, ranks = codes[order], doc_ids.take(pa.array(order)), _decimals(scores[order]), ranks[order]
    documents = doc_ids.dictionary_encode().indices.to_numpy().astype(np.int64)
    # of a document that is named again the first row, with its best score, counts
    first = np.sort(np.unique(codes.astype(np.int64) * (int(documents.max()) + 1) + documents, return_index=True)[1])
    if len(first) < len(codes):
        counts.duplicates += len(codes) - len(first)
        codes, doc_ids, scores, ranks = codes[first], doc_ids.take(pa.array(first)), scores[first], ranks[first]
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    sizes = np.diff(begins, append=len(codes))
    same = np.diff(codes) == 0
    falls = np.diff(scores) < 0
    counts.ties += int((same & ~falls).sum())
    counts.disordered += len(np.unique(codes[1:][same & falls & (np.diff(ranks) < 0)]))
    for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True):
        scores[begin : begin + size] = _apart(scores[begin : begin + size])
    return doc_ids, scores, sizes


def _decimals(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Returns the shortest decimals that are these numbers of 32 bits, mostly as the file has them: a floor of .7 keeps .7."""
    return scores.astype("U").astype(np.float64)


def _apart(scores: np.ndarray) -> np.ndarray:
    """Returns descending scores of which none equals the one before; those of equal documents are moved up, none is lowered.

    Lists are sorted by score, then by document id ascending, where trec_eval takes the greater id first. A floor that is their
    score keeps all of them so.
    """
    span = scores[0] - scores[-1] or 1.0
    begins = np.flatnonzero(np.diff(scores, prepend=np.inf))
    if len(begins) == len(scores):
        return scores
    sizes = np.diff(begins, append=len(scores))
    gaps = np.append(span, scores[begins[:-1]] - scores[begins[1:]])
    steps = np.minimum(gaps / sizes, span * _STEP / sizes)
    below = np.repeat(begins + sizes, sizes) - 1 - np.arange(len(scores))  # documents of equal score behind each
    return scores + below * np.repeat(steps, sizes)
