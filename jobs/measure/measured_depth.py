"""Leaves out measures and arms where a measure reads deeper than lists reach: R@100 of lists cut at 10 documents is R@10.

A list shorter than a measure reads is whole where it is also shorter than everything that could have cut it: the search found
no more. Else it may have been cut, by `retrieve.depth`, `fuse.depth`, `fuse.keep`, `rerank.keep`, `ablate.keep` or the depth
of a strategy or of a hybrid retriever. Then the value would depend on where it was cut, and a difference to longer lists, too:
with the defaults R@100 of the original alone was .357, that of its own 100 documents .604 (BM25, 93 queries).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from jobs.config.config import Config
from jobs.job.measure_checks import deeper
from jobs.measure.arrays import Numbers
from jobs.terminal.formats import and_more


class Reached(NamedTuple):
    """Arms and measures that the lists reach."""

    arms: list[int]
    """Places of the arms whose lists reach the first measure that is left."""
    measures: list[int]
    """Places of the measures that the lists of these arms reach."""
    notes: tuple[str, ...]
    """Reasons why measures and arms are left out; a sentence each."""


def reached(
    measures: Sequence[str], reads: Sequence[int], arms: Sequence[str], stay: Collection[str], lengths: Numbers,
    least: Numbers, config: Config, *, is_run: bool,
) -> Reached:  # fmt: skip
    """Returns the arms and measures that are compared: no list of theirs was cut above the depth of a measure.

    A measure that lists of an arm in `stay` do not reach is left out; then an arm that does not reach the first measure; then
    other measures that arms do not reach. `reads`: documents of a list that each measure reads; `lengths`, (arms, keys):
    documents of each list, as far as read; `least`, (arms,): what `cut_from` returns; `config`, `is_run`: see `deeper`.
    """
    lists = {depth: (lengths >= least[:, None]) & (lengths < depth) for depth in set(reads)}
    cut = np.stack([lists[depth].any(axis=1) for depth in reads], axis=1)
    fixed = np.array([arm in stay for arm in arms])
    whole = np.flatnonzero(~cut[fixed].any(axis=0)).tolist()
    left = np.flatnonzero(fixed | ~cut[:, whole[0]]) if whole else np.arange(len(arms))
    kept = [place for place in whole if not cut[left, place].any()]

    def note(names: Sequence[str], depth: int, mine: Sequence[int], of: str = "") -> str:
        ends, few = lengths[mine][lists[depth][mine]], int(lists[depth][mine].any(axis=0).sum())
        whose = "every arm" if len(mine) == len(arms) > 2 else and_more([arms[place] for place in mine])
        at = f"{ends.min():,}" + f" to {ends.max():,}" * bool(ends.min() < ends.max())
        why = f"reads {depth:,} documents, lists end at {at} ({whose}; {few:,} of {lengths.shape[1]:,} judged)"
        return f"{of}{', '.join(names)}: left out: {why}; {deeper(config, names, ends.min(), is_run=is_run)}"

    notes = []
    for depth in sorted(lists):
        names = [name for place, name in enumerate(measures) if reads[place] == depth and place not in kept]
        mine = [place for place in left.tolist() if lists[depth][place].any()]
        notes += [note(names, depth, mine)] if names else []
    if len(left) < len(arms):
        first = kept[0] if kept else 0
        out = [place for place in range(len(arms)) if place not in left]
        notes.append(note(measures[first : first + 1], reads[first], out, f"{and_more([arms[place] for place in out])}: "))
    return Reached(left.tolist(), kept, tuple(notes))
