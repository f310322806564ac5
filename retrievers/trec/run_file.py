"""Reader of run files of TREC, in the order in which trec_eval reads them.

trec_eval takes a topic's documents by their scores, and of equal scores the greater document id first; it reads scores as
numbers of 32 bits, so that nearer ones are equal. Ranks, and the order of the lines, mean nothing to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from cluster.errors import RetrieverError

_COLUMNS = 6
_STEP = 1e-6  # of the span of a list's scores: the most by which documents of equal score are moved apart


@dataclass(frozen=True)
class RunList:
    """The list of a topic.

    Attributes:
        doc_ids: Best first.
        scores: Descending, each lower than the one before: those of documents with equal scores are moved apart by less than is
            between them and the next.
    """

    doc_ids: list[str]
    scores: np.ndarray


@dataclass
class RunCounts:
    """What of a run file was decided in one way where another was possible.

    Attributes:
        duplicates: Lines of a document that the topic's list has with a score as high, or higher; they are left out.
        ties: Documents whose score is that of the document before them.
        disordered: Topics whose ranks are not in the order of their scores.
    """

    duplicates: int = 0
    ties: int = 0
    disordered: int = 0


@dataclass(frozen=True)
class RunFile:
    """A run file: topic -> list, in the order in which topics are first named."""

    lists: dict[str, RunList]
    counts: RunCounts = field(default_factory=RunCounts)


def read_run(lines: Iterable[str], where: str) -> RunFile:
    """Returns the lists of the lines of a run file; lines that begin with # are none.

    `where` begins messages.

    Raises:
        RetrieverError: A line has other columns, a score that is no number, or a rank that is none.
    """
    found: dict[str, list[tuple[str, float, int]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = line.split()
        try:
            topic, _, doc_id, rank, score, _ = columns
            hit = doc_id, float(np.float32(score)), int(rank)
        except (ValueError, OverflowError):
            words = f"is no line of topic, Q0, document, rank, score and tag ({_COLUMNS} columns)"
            raise RetrieverError("run-file", f"{where}: line {number}: {words}; correct it: {line.strip()[:80]!r}") from None
        if not math.isfinite(hit[1]):
            raise RetrieverError("run-file", f"{where}: line {number}: the score {score} is no number; correct it")
        found.setdefault(topic, []).append(hit)
    if not found:
        raise RetrieverError("run-file", f"{where}: holds no list; name another file")
    counts = RunCounts()
    return RunFile({topic: _ordered(hits, counts) for topic, hits in found.items()}, counts)


def _ordered(hits: list[tuple[str, float, int]], counts: RunCounts) -> RunList:
    """Returns a topic's list as trec_eval orders it; adds to the counts."""
    hits.sort(key=lambda hit: hit[0], reverse=True)
    hits.sort(key=lambda hit: hit[1], reverse=True)
    best: dict[str, tuple[float, int]] = {}
    for doc_id, score, rank in hits:
        best.setdefault(doc_id, (score, rank))
    counts.duplicates += len(hits) - len(best)
    scores = np.array([score for score, _ in best.values()])
    falls = np.diff(scores) < 0
    counts.ties += int((~falls).sum())
    ranks = np.diff([rank for _, rank in best.values()])
    counts.disordered += bool((falls & (ranks < 0)).any())
    return RunList(list(best), _apart(scores))


def _apart(scores: np.ndarray) -> np.ndarray:
    """Returns descending scores of which none equals the one before.

    Lists are sorted by score, then by document id ascending, where trec_eval takes the greater id first.
    """
    span = scores[0] - scores[-1] or 1.0
    begins = np.flatnonzero(np.diff(scores, prepend=np.inf))
    sizes = np.diff(begins, append=len(scores))
    gaps = np.append(scores[begins[:-1]] - scores[begins[1:]], span)
    steps = np.minimum(gaps / sizes, span * _STEP / sizes)
    moved: np.ndarray = scores - (np.arange(len(scores)) - np.repeat(begins, sizes)) * np.repeat(steps, sizes)
    return moved
