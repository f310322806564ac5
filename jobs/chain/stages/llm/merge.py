"""The candidates of an arm after a further round: those of all rounds so far, merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.chain.arms.shared_work import Answer
from jobs.chain.stages.candidates import ArmCandidates, BlockCandidates, united
from jobs.chain.stages.fuse import Texts
from jobs.tables import SOURCE, nested
from retrievers.fusion import as_compared
from retrievers.ranking import distinct, encode, offsets_of, ranges, ranks
from retrievers.web.hits import WebHit, indexed_text
from rewriters.steps.settings import IterateSettings


class _Merged(NamedTuple):
    """Documents row by row, best first: the candidate that each was first, its score, and its sources."""

    entry: np.ndarray
    score: np.ndarray
    sources: pa.ListArray | None


def merged(
    rankings: Sequence[BlockCandidates], rows: int, answer: Answer, settings: IterateSettings, texts: Texts | None
) -> BlockCandidates:
    """Returns the candidates of an arm of all rounds; queries without a further round keep those that they have.

    `best`: a document keeps its best fused score. `fuse`: the rankings of all rounds are fused by RRF, sum of 1 / (k + rank)
    (Cormack et al., SIGIR 2009). Equal scores are in order of doc_id. Candidates are made of candidates, as in a run of the
    arm alone; the fused documents behind them, which measures read, stand behind them. A page of the web keeps the text that it
    has among the candidates of the first ranking with it.

    Args:
        rankings: Of the arm alone, that before the first round included.
        rows: Of the block.
        answer: The arm.
        settings: How its rounds are made.
        texts: Of an arm that drops duplicates: documents with one text are one, by the id that was found first.
    """
    parts = [arm for ranking in rankings for arm in ranking.arms.values()]
    renamed = (one._replace(arms={number: arm}) for number, (one, arm) in enumerate(zip(rankings, parts, strict=True)))
    doc_ids, pages, numbered = united(list(renamed))
    row, document, page, score = (
        np.concatenate([getattr(arm, name) for arm in numbered.values()]) for name in ("row", "document", "page", "score")
    )
    rank = np.concatenate([ranks(np.bincount(arm.row, minlength=rows)) for arm in parts])
    later = np.repeat(np.arange(len(parts)), [len(arm.row) for arm in parts]) > 0
    lists = [arm.sources for arm in parts if arm.sources is not None]
    sources = pa.concat_arrays(lists) if len(lists) == len(parts) else None
    code, names = encode(doc_ids)
    code = code[document]
    nearest = np.argsort(rank > answer.candidates, kind="stable")  # what stands behind the candidates changes none of them
    _, first, group = np.unique((row * len(names) + code)[nearest], return_index=True, return_inverse=True)
    page[nearest] = page[nearest][first][group]
    identity = code if texts is None else _text_numbers(names, code, page, pages, answer.fuse.duplicate_chars, texts)
    is_refined = (np.bincount(row[later], minlength=rows) > 0)[row]
    value = score if settings.merge == "best" else 1.0 / (answer.fuse.k + rank)

    def merge(these: np.ndarray) -> _Merged:
        at = np.flatnonzero(these)
        _, first, group = np.unique(
            row[at] * (len(identity) + len(names)) + identity[at], return_index=True, return_inverse=True
        )
        total = np.full(len(first), -np.inf)
        if settings.merge == "best":
            np.maximum.at(total, group, value[at])
        else:
            total = np.bincount(group, value[at], len(first))  # added in order of the rounds
        entry, sizes = at[first], np.bincount(group, minlength=len(first))
        order = np.lexsort((code[entry], -total, row[entry]))
        members = at[np.argsort(group, kind="stable")][ranges(offsets_of(sizes)[:-1][order], sizes[order])]
        return _Merged(entry[order], total[order], None if sources is None else _grouped(sources, members, sizes[order]))

    merged_hits = merge(is_refined & (rank <= answer.candidates))
    merged_hits = _cut(merged_hits, row, rows, answer.candidates)
    behind = merge(is_refined) if answer.fuse.keep > answer.candidates else _taken(merged_hits, np.zeros(0, dtype=np.int64))
    known = set(zip(row[merged_hits.entry].tolist(), identity[merged_hits.entry].tolist(), strict=True))
    new = [one not in known for one in zip(row[behind.entry].tolist(), identity[behind.entry].tolist(), strict=True)]
    unrefined = np.flatnonzero(~is_refined)
    old = _Merged(unrefined, score[unrefined], None if sources is None else sources.take(pa.array(unrefined)))
    every = [merged_hits, _taken(behind, np.flatnonzero(new)), old]
    all_sources = [one.sources for one in every if one.sources is not None]
    whole = _Merged(
        np.concatenate([one.entry for one in every]), np.concatenate([one.score for one in every]),
        pa.concat_arrays(all_sources) if all_sources else None,
    )  # fmt: skip
    kept = _cut(_taken(whole, np.argsort(row[whole.entry], kind="stable")), row, rows, answer.fuse.keep)
    arm = ArmCandidates(row[kept.entry], document[kept.entry], page[kept.entry], kept.score, kept.sources)
    return BlockCandidates(doc_ids, pages, dict.fromkeys(rankings[0].arms, arm))


def _text_numbers(
    names: pa.StringArray, code: np.ndarray, page: np.ndarray, pages: Sequence[WebHit], chars: int | None, texts: Texts
) -> np.ndarray:
    """Returns a number for the text of each candidate, the same for texts that are compared as one."""
    indexed, at = distinct([int(one) for one, of in zip(code, page, strict=True) if of < 0])
    known = texts(names.take(pa.array(indexed, pa.int64())).to_pylist()) if indexed else []
    numbers = iter([known[number] for number in at.tolist()])
    read = [next(numbers) if of < 0 else indexed_text(pages[of].title or "", pages[of].text or "") for of in page.tolist()]
    return distinct([as_compared(text, chars) for text in read])[1]


def _taken(hits: _Merged, at: np.ndarray) -> _Merged:
    return _Merged(hits.entry[at], hits.score[at], None if hits.sources is None else hits.sources.take(pa.array(at)))


def _cut(hits: _Merged, row: np.ndarray, rows: int, most: int) -> _Merged:
    """Returns the first documents of each row."""
    return _taken(hits, np.flatnonzero(ranks(np.bincount(row[hits.entry], minlength=rows)) <= most))


def _grouped(sources: pa.ListArray, members: np.ndarray, sizes: np.ndarray) -> pa.ListArray:
    """Returns the sources of documents, each merged from `sizes[i]` consecutive candidates."""
    lists = sources.take(pa.array(members))
    ends = offsets_of(pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    return nested(ends[offsets_of(sizes)], lists.flatten(), pa.list_(SOURCE))
