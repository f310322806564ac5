"""Reader of run files of TREC, in the order in which trec_eval reads them.

trec_eval takes a topic's documents by their scores, and of equal scores the greater document id first; it reads scores as
numbers of 32 bits, so that nearer ones are equal. Ranks, and the order of the lines, mean nothing to it.

A published run has a thousand documents for each of thousands of topics. So lines become columns of Arrow as they are read: no
line is an object of Python for longer than its block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import RetrieverError
from retrievers.ranking import offsets_of
from retrievers.retriever import RankedList

_LINES = pa.schema([("topic", pa.int32()), ("doc_id", pa.string()), ("score", pa.float32()), ("rank", pa.int64())])
_STEP = 1e-6  # of the span of a list's scores: the most by which documents of equal score are moved
_BLOCK = 1 << 16  # lines that become columns at a time


class RunCounts(NamedTuple):
    """Counts of what was decided in one way where another was possible."""

    duplicates: int  # lines of a document that the topic's list has with a score as high, or higher: left out
    ties: int  # documents whose score is that of the document before them
    disordered: int  # topics whose ranks are not in the order of their scores


@dataclass(frozen=True, eq=False)
class RunFile:
    """A run file: the list of each topic, one behind the other.

    The scores of a list are descending, each lower than the one before: those of documents with equal scores are moved apart,
    up, by less than is between them and the one before.
    """

    topics: list[str]  # in the order in which they are first named
    begins: npt.NDArray[np.int64]  # (topics + 1,): where the list of each begins, and the last ends
    doc_ids: pa.StringArray  # each list best first
    scores: npt.NDArray[np.float64]
    counts: RunCounts

    def list_at(self, number: int) -> RankedList:
        begin, end = int(self.begins[number]), int(self.begins[number + 1])
        return RankedList(self.doc_ids[begin:end], self.scores[begin:end])

    def at(self, places: Sequence[int]) -> RunFile:
        """Returns the lists of some topics, by their places in ascending order."""
        sizes = np.diff(self.begins)
        kept = np.isin(np.arange(len(self.topics)), places)
        rows = np.repeat(kept, sizes)
        topics = [self.topics[place] for place in places]
        return RunFile(topics, offsets_of(sizes[kept]), self.doc_ids.filter(pa.array(rows)), self.scores[rows], self.counts)


def read_run(lines: Iterable[str], where: str) -> RunFile:
    """Returns the lists of the lines of a run file but those that begin with #; `where` begins messages."""
    topics: dict[str, int] = {}
    table = pa.Table.from_batches(_blocks(lines, topics, where), _LINES)
    if not topics:
        raise RetrieverError("run-file", f"{where}: holds no list; name another file")
    line_count = len(table)
    table = table.sort_by([("topic", "ascending"), ("score", "descending"), ("doc_id", "descending")])
    # of a document that is named again the first row, with its best score, counts
    table = table.append_column("row", pa.array(np.arange(line_count)))
    table = table.take(table.group_by(["topic", "doc_id"]).aggregate([("row", "min")])["row_min"].sort())
    topic, ranks = table["topic"].to_numpy(), table["rank"].to_numpy()
    # the shortest decimals that are these numbers of 32 bits, mostly as the file has them: a floor of .7 keeps .7
    scores = pc.cast(pc.cast(table["score"], pa.string()), pa.float64()).to_numpy().copy()
    begins = offsets_of(np.bincount(topic, minlength=len(topics)))
    same, falls = np.diff(topic) == 0, np.diff(scores) < 0
    disordered = np.unique(topic[1:][same & falls & (np.diff(ranks) < 0)])
    counts = RunCounts(line_count - len(table), int((same & ~falls).sum()), len(disordered))
    for begin, end in pairwise(begins.tolist()):
        scores[begin:end] = _apart(scores[begin:end])
    return RunFile(list(topics), begins, table["doc_id"].combine_chunks(), scores, counts)


def _blocks(lines: Iterable[str], topics: dict[str, int], where: str) -> Iterator[pa.RecordBatch]:
    """Yields the columns of blocks of lines, with the places of topics; adds to `topics`."""
    rows: list[tuple[int, str, np.float32, np.int64]] = []

    def columns() -> pa.RecordBatch:
        values = (pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _LINES, strict=True))
        return pa.RecordBatch.from_arrays(list(values), schema=_LINES)

    for number, line in enumerate(lines, 1):
        if line.startswith("#") or not (parts := line.split()):
            continue
        try:
            topic, _, doc_id, rank, score, _ = parts
            rows.append((topics.setdefault(topic, len(topics)), doc_id, np.float32(score), np.int64(rank)))
        except (ValueError, OverflowError):
            problem = f"is not a line of topic, Q0, document, rank, score and tag ({len(_LINES) + 2} columns)"
            raise RetrieverError("run-file", f"{where}: line {number}: {problem}; correct it: {line.strip()[:80]!r}") from None
        if not math.isfinite(rows[-1][2]):
            raise RetrieverError("run-file", f"{where}: line {number}: the score {score} is not a number; correct it")
        if len(rows) == _BLOCK:
            yield columns()
            rows.clear()
    if rows:
        yield columns()


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
