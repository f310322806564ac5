"""The candidates of an arm after a further round: those of all rounds so far, merged."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.chain.arms.shared_work import Answer
from jobs.chain.stages.candidates import ArmCandidates, BlockCandidates, Texts, candidate_texts, united
from jobs.tables import SOURCE, nested
from retrievers.fusion import as_compared
from retrievers.ranking import distinct, encode, offsets_of, ranges, ranks
from rewriters.steps.settings import IterateSettings


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
    has_sources = len(lists) == len(parts)
    sources = pa.concat_arrays(lists) if has_sources else pa.nulls(len(row), pa.list_(SOURCE))
    code, names = encode(doc_ids)
    code = code[document]
    nearest = np.argsort(rank > answer.candidates, kind="stable")  # what stands behind the candidates changes none of them
    _, first, group = np.unique((row * len(names) + code)[nearest], return_index=True, return_inverse=True)
    page[nearest] = page[nearest][first][group]
    identity = code
    if texts is not None:
        compared = candidate_texts(names, code, page, pages, texts)
        identity = distinct([as_compared(text, answer.fuse.duplicate_chars) for text in compared])[1]
    key = row * (len(identity) + len(names)) + identity
    is_refined = (np.bincount(row[later], minlength=rows) > 0)[row]
    value = score if settings.merge == "best" else 1.0 / (answer.fuse.k + rank)

    def merge(these: np.ndarray) -> pa.Table:
        """Returns documents row by row, best first: the candidate that each was first, its score, and its sources."""
        at = np.flatnonzero(these)
        _, first, group = np.unique(key[at], return_index=True, return_inverse=True)
        total = np.full(len(first), -np.inf)
        if settings.merge == "best":
            np.maximum.at(total, group, value[at])
        else:
            total = np.bincount(group, value[at], len(first))  # added in order of the rounds
        entry, sizes = at[first], np.bincount(group, minlength=len(first))
        order = np.lexsort((code[entry], -total, row[entry]))
        members = at[np.argsort(group, kind="stable")][ranges(offsets_of(sizes)[:-1][order], sizes[order])]
        own = _grouped(sources, members, sizes[order]) if has_sources else sources.take(pa.array(entry[order]))
        return pa.table({"entry": entry[order], "score": pa.array(total[order], pa.float64()), "sources": own})

    def first_of_rows(hits: pa.Table, most: int) -> pa.Table:
        return hits.filter(pa.array(ranks(np.bincount(row[hits["entry"].to_numpy()], minlength=rows)) <= most))

    best = first_of_rows(merge(is_refined & (rank <= answer.candidates)), answer.candidates)
    behind = merge(is_refined) if answer.fuse.keep > answer.candidates else best.slice(0, 0)
    is_new = ~np.isin(key[behind["entry"].to_numpy()], key[best["entry"].to_numpy()])
    unrefined = np.flatnonzero(~is_refined)
    old = pa.table({"entry": unrefined, "score": score[unrefined], "sources": sources.take(pa.array(unrefined))})
    whole = pa.concat_tables([best, behind.filter(pa.array(is_new)), old])
    by_row = np.argsort(row[whole["entry"].to_numpy()], kind="stable")
    kept = first_of_rows(whole.take(pa.array(by_row)), answer.fuse.keep)
    entry, own_sources = kept["entry"].to_numpy(), kept["sources"].combine_chunks() if has_sources else None
    arm = ArmCandidates(row[entry], document[entry], page[entry], kept["score"].to_numpy(), own_sources)
    return BlockCandidates(doc_ids, pages, dict.fromkeys(rankings[0].arms, arm))


def _grouped(sources: pa.ListArray, members: np.ndarray, sizes: np.ndarray) -> pa.ListArray:
    """Returns the sources of documents, each merged from `sizes[i]` consecutive candidates."""
    lists = sources.take(pa.array(members))
    ends = offsets_of(pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    return nested(ends[offsets_of(sizes)], lists.flatten(), pa.list_(SOURCE))
